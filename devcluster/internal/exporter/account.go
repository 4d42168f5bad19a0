package exporter

import "time"

// cfsPeriod is the length over which Linux meters a CPU quota, and the kubelet's default.
const cfsPeriod = 100 * time.Millisecond

// growth is how much a set of counters grew between two readings, in their unit. A counter that fell was started anew (its
// model was reloaded) and counts from zero, and so does one that was not there before; one that vanished adds nothing.
func growth(before, now Series) float64 {
	var sum float64
	for key, value := range now {
		if earlier, known := before[key]; known && value >= earlier {
			sum += value - earlier
		} else {
			sum += value
		}
	}
	return sum
}

// active is the share of the time between two pages for which a GPU's engine was busy, 0 to 1. It is unknown (false) when one
// of the pages is missing, when no time passed, or when the newer page says nothing about the GPU: never 0 instead.
func active(before, now *Page, gpu string) (float64, bool) {
	if before == nil || now == nil {
		return 0, false
	}
	elapsed := now.At.Sub(before.At).Seconds()
	busy, published := now.Busy[gpu]
	if !published || elapsed <= 0 {
		return 0, false
	}
	return min(growth(before.Busy[gpu], busy)/elapsed, 1), true
}

// cpuAccount turns a pod's counters, of which some vanish whenever an instance stops, into counters that only grow: a sum that
// fell would look to Prometheus like a restart and be counted twice. It starts at zero with the first page, since a smaller
// first value after a restart of the exporter would do the same harm.
type cpuAccount struct {
	seconds          float64
	throttledSeconds float64
	periods          float64
	throttledPeriods float64
	throttles        bool // whether the models publish throttling at all
}

func (a *cpuAccount) add(before, now *Page) {
	a.throttles = a.throttles || len(now.Throttled) > 0
	if before == nil {
		return
	}
	a.seconds += growth(before.CPU, now.CPU)
	throttled := growth(before.Throttled, now.Throttled)
	periods := now.At.Sub(before.At).Seconds() / cfsPeriod.Seconds()
	a.throttledSeconds += throttled
	a.periods += periods
	// Processes that wait together are throttled in the same period, so this is an upper bound, met when they wait in turn.
	a.throttledPeriods += min(throttled/cfsPeriod.Seconds(), periods)
}
