package exporter

import (
	"math"
	"testing"
	"time"
)

func at(seconds float64) time.Time { return time.UnixMilli(int64(seconds * 1000)) }

func busy(when float64, series Series) *Page {
	return &Page{At: at(when), Busy: map[string]Series{"GPU-a": series}}
}

func TestActivityIsTheGrowthOfBusyTimeOverTheIntervalBetweenTwoPages(t *testing.T) {
	cases := map[string]struct {
		before, now *Page
		want        float64
		known       bool
	}{
		"two instances, 0.5 s and 1 s of 5 s": {
			busy(10, Series{"i=0": 100, "i=1": 40}), busy(15, Series{"i=0": 100.5, "i=1": 41}), 0.3, true},
		"idle is a value": {busy(10, Series{"i=0": 100}), busy(15, Series{"i=0": 100}), 0, true},
		"a reload starts the counter anew: 1 s since then": {
			busy(10, Series{"i=0": 100}), busy(15, Series{"i=0": 1}), 0.2, true},
		"an instance that came counts from zero, one that went adds nothing": {
			busy(10, Series{"i=0": 100}), busy(15, Series{"i=1": 2}), 0.4, true},
		"overlapping executions are clamped to the whole interval": {
			busy(10, Series{"i=0": 100}), busy(15, Series{"i=0": 107}), 1, true},
		"a page that was missed stretches the interval": {
			busy(5, Series{"i=0": 100}), busy(15, Series{"i=0": 105}), 0.5, true},
		"the first page tells nothing":      {nil, busy(15, Series{"i=0": 100}), 0, false},
		"no page tells nothing":             {busy(10, Series{"i=0": 100}), nil, 0, false},
		"no time passed":                    {busy(15, Series{"i=0": 100}), busy(15, Series{"i=0": 101}), 0, false},
		"a page without the GPU is unknown": {busy(10, Series{"i=0": 100}), &Page{At: at(15)}, 0, false},
	}
	for name, c := range cases {
		got, known := active(c.before, c.now, "GPU-a")
		if known != c.known || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: got %v, %t; want %v, %t", name, got, known, c.want, c.known)
		}
	}
}

func TestCPUTimeNeverFallsWhenAnInstanceIsRemoved(t *testing.T) {
	pages := []*Page{
		{At: at(0), CPU: Series{"i=0": 50, "i=1": 30}},
		{At: at(5), CPU: Series{"i=0": 52, "i=1": 31}},               // 3 s
		{At: at(10), CPU: Series{"i=0": 53}},                         // one instance less: 1 s
		{At: at(15), CPU: Series{"i=0": 54, "i=1": 0.5, "i=2": 0.5}}, // two more: 1 + 0.5 + 0.5 s
	}
	var account cpuAccount
	var before *Page
	for i, want := range []float64{0, 3, 4, 6} {
		account.add(before, pages[i])
		if before = pages[i]; account.seconds != want {
			t.Errorf("after page %d: %v s, want %v", i, account.seconds, want)
		}
	}
	if account.throttles {
		t.Error("throttling was never published, yet it is counted")
	}
}

func TestThrottledPeriodsNeverExceedThePeriodsThatPassed(t *testing.T) {
	var account cpuAccount
	first := &Page{At: at(0), Throttled: Series{"i=0": 1, "i=1": 1}}
	second := &Page{At: at(1), Throttled: Series{"i=0": 1.3, "i=1": 1}} // 0.3 s in one second: 3 of 10 periods
	third := &Page{At: at(2), Throttled: Series{"i=0": 2.3, "i=1": 2}}  // 2 s in one second: all 10 of 10
	account.add(nil, first)
	account.add(first, second)
	if math.Abs(account.throttledPeriods-3) > 1e-9 || math.Abs(account.periods-10) > 1e-9 {
		t.Errorf("got %v of %v periods, want 3 of 10", account.throttledPeriods, account.periods)
	}
	account.add(second, third)
	if math.Abs(account.throttledPeriods-13) > 1e-9 || math.Abs(account.throttledSeconds-2.3) > 1e-9 {
		t.Errorf("got %v periods and %v s, want 13 and 2.3", account.throttledPeriods, account.throttledSeconds)
	}
}
