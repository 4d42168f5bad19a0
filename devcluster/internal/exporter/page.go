package exporter

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	clientmodel "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// What the emulated models publish on their server's metrics page. Each instance of a model may publish a share of its own.
const (
	familyBusy      = "emulated_gpu_busy_seconds_total"
	familyMemory    = "emulated_gpu_memory_used_mib"
	familyCPU       = "emulated_cpu_seconds_total"
	familyThrottled = "emulated_cpu_throttled_seconds_total"
	gpuLabel        = "gpu"
	prefix          = "emulated_"
)

// Series maps a series, spelled by its labels, to its value.
type Series map[string]float64

// Page is one reading of a pod's emulated figures.
type Page struct {
	At        time.Time
	Busy      map[string]Series  // GPU identity → seconds of engine time, by series
	MemoryMiB map[string]float64 // GPU identity → MiB in use
	CPU       Series             // seconds of host CPU, by series
	Throttled Series             // seconds that processes waited for the pod's CPU quota, by series; empty when not published
}

// ParsePage reads the emulated families out of a metrics page in the text format. Everything else on the page is skipped
// unread, comments included: a server that writes a family's header twice must not cost us its figures. A value that is no
// finite number ≥ 0 is left out, as if it had not been published.
func ParsePage(page io.Reader, at time.Time) (Page, error) {
	var ours bytes.Buffer
	lines := bufio.NewScanner(page)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(prefix)) {
			ours.Write(lines.Bytes())
			ours.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return Page{}, fmt.Errorf("read the metrics page: %w", err)
	}
	parser := expfmt.TextParser{}
	families, err := parser.TextToMetricFamilies(&ours)
	if err != nil {
		return Page{}, fmt.Errorf("parse the emulated families: %w", err)
	}
	parsed := Page{At: at, Busy: map[string]Series{}, MemoryMiB: map[string]float64{}, CPU: Series{}, Throttled: Series{}}
	each(families[familyBusy], func(gpu, key string, value float64) {
		if parsed.Busy[gpu] == nil {
			parsed.Busy[gpu] = Series{}
		}
		parsed.Busy[gpu][key] += value
	})
	each(families[familyMemory], func(gpu, _ string, value float64) { parsed.MemoryMiB[gpu] += value })
	each(families[familyCPU], func(_, key string, value float64) { parsed.CPU[key] += value })
	each(families[familyThrottled], func(_, key string, value float64) { parsed.Throttled[key] += value })
	return parsed, nil
}

func each(family *clientmodel.MetricFamily, visit func(gpu, key string, value float64)) {
	for _, metric := range family.GetMetric() {
		value := metric.GetUntyped().GetValue() // without its header every family is untyped
		if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
			continue
		}
		var gpu string
		labels := make([]string, 0, len(metric.GetLabel()))
		for _, label := range metric.GetLabel() {
			labels = append(labels, label.GetName()+"="+label.GetValue())
			if label.GetName() == gpuLabel {
				gpu = label.GetValue()
			}
		}
		slices.Sort(labels)
		visit(gpu, strings.Join(labels, ","), value)
	}
}
