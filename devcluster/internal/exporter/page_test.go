package exporter

import (
	"strings"
	"testing"
	"time"
)

// A page as Triton writes it: other families around ours, one family's header twice, a quantile spelled Nan.
const tritonPage = `# HELP nv_inference_request_summary_us Cumulative inference request duration
# TYPE nv_inference_request_summary_us summary
nv_inference_request_summary_us{model="pipe",version="1",quantile="0.99"} Nan
# HELP emulated_gpu_busy_seconds_total Engine time
# TYPE emulated_gpu_busy_seconds_total counter
emulated_gpu_busy_seconds_total{gpu="GPU-a",instance="forward-small_0"} 12.5
# TYPE emulated_gpu_busy_seconds_total counter
emulated_gpu_busy_seconds_total{gpu="GPU-a",instance="forward-base_0"} 2
emulated_gpu_busy_seconds_total{gpu="GPU-b",instance="forward-small_1"} 0
emulated_gpu_memory_used_mib{gpu="GPU-a",instance="forward-small_0"} 20000
emulated_gpu_memory_used_mib{gpu="GPU-a",instance="forward-base_0"} 16000
emulated_cpu_seconds_total{instance="preprocessing_0"} 3
emulated_cpu_seconds_total{instance="preprocessing_1"} 4
emulated_cpu_seconds_total{instance="preprocessing_2"} NaN
`

func TestAPageIsReadByGPUAndInstance(t *testing.T) {
	page, err := ParsePage(strings.NewReader(tritonPage), time.Unix(100, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got := growth(nil, page.Busy["GPU-a"]); got != 14.5 {
		t.Errorf("GPU-a was busy for %v s, want 12.5 + 2 = 14.5", got)
	}
	if _, published := page.Busy["GPU-b"]; !published {
		t.Error("GPU-b published 0 s, which is a value, but is missing")
	}
	if got := page.MemoryMiB["GPU-a"]; got != 36000 {
		t.Errorf("GPU-a uses %v MiB, want 20000 + 16000", got)
	}
	if got := growth(nil, page.CPU); got != 7 || len(page.CPU) != 2 {
		t.Errorf("CPU: %v s in %d series; want 7 in 2, the NaN left out", got, len(page.CPU))
	}
	if len(page.Throttled) != 0 {
		t.Errorf("nothing about throttling was published, got %v", page.Throttled)
	}
}

func TestABrokenPageIsAnErrorAndNotAnEmptyPage(t *testing.T) {
	if _, err := ParsePage(strings.NewReader("emulated_cpu_seconds_total{instance= 3\n"), time.Unix(0, 0)); err == nil {
		t.Error("a cut-off line was accepted")
	}
}
