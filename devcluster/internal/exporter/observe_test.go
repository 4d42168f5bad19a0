package exporter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"inferenceslo.dev/devcluster/internal/gpuid"
)

const node = "node-0"

var (
	gpu0, gpu1, gpu2 = gpuid.UUID(node, 0), gpuid.UUID(node, 1), gpuid.UUID(node, 2)
	triton           = Holder{"serving", "chat-0", "triton"}
)

// world is a node with three GPUs, of which chat-0 holds two; tests change it between looks.
type world struct {
	devices  Devices
	pods     []Pod
	pages    map[string]Page // by URL; a pod without an entry does not answer
	observer *Observer
}

func newWorld() *world {
	w := &world{
		devices: Devices{All: []string{gpu2, gpu0, gpu1}, Held: map[string][]Holder{gpu0: {triton}, gpu1: {triton}}},
		pods: []Pod{{
			UID: "u1", Namespace: "serving", Name: "chat-0", MetricsURL: "http://chat-0", EmulatedContainer: "triton",
			CPULimits: map[string]float64{"triton": 16}, Devices: 2, Running: true,
		}},
		pages: map[string]Page{},
	}
	w.observer = NewObserver(node, Sources{
		Devices: func(context.Context) (Devices, error) { return w.devices, nil },
		Pods:    func(context.Context) ([]Pod, error) { return w.pods, nil },
		Page: func(_ context.Context, url string) (Page, error) {
			page, ok := w.pages[url]
			if !ok {
				return Page{}, errors.New("connection refused")
			}
			return page, nil
		},
	})
	return w
}

func (w *world) look(t *testing.T, second float64) Observation {
	t.Helper()
	observation, err := w.observer.Observe(context.Background(), at(second))
	if err != nil {
		t.Fatal(err)
	}
	return observation
}

// page has one instance on each of the pod's two GPUs.
func page(second, busy0, busy1, cpu float64) Page {
	return Page{
		At:        at(second),
		Busy:      map[string]Series{gpu0: {"i=0": busy0}, gpu1: {"i=1": busy1}},
		MemoryMiB: map[string]float64{gpu0: 36864, gpu1: 36000},
		CPU:       Series{"i=0": cpu},
	}
}

func expectPage(t *testing.T, observation Observation, want string, families ...string) {
	t.Helper()
	product := Product{Name: "NVIDIA A100-SXM4-80GB", MemoryMiB: 81920, ReservedMiB: 640}
	collector := NewCollector(node, product, time.Minute, func() time.Time { return observation.At })
	collector.Set(observation)
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), families...); err != nil {
		t.Error(err)
	}
}

func labels(index, uuid string, holder Holder) string {
	return `{Hostname="node-0",UUID="` + uuid + `",container="` + holder.Container + `",device="nvidia` + index + `",gpu="` + index +
		`",modelName="NVIDIA A100-SXM4-80GB",namespace="` + holder.Namespace + `",pod="` + holder.Pod + `"} `
}

const (
	activeHeader = "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Share of time the graphics engine was active (emulated).\n" +
		"# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge\nDCGM_FI_PROF_GR_ENGINE_ACTIVE"
	activeName = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
)

func TestHeldGPUsCarryTheirPodAndFreeOnesAreIdle(t *testing.T) {
	w := newWorld()
	w.pages["http://chat-0"] = page(10, 100, 50, 7)
	w.look(t, 10)
	w.pages["http://chat-0"] = page(15, 101.5, 50, 9.5)
	expectPage(t, w.look(t, 15),
		activeHeader+labels("0", gpu0, triton)+"0.3\n"+activeName+labels("1", gpu1, triton)+"0\n"+
			activeName+labels("2", gpu2, Holder{})+"0\n", activeName)
}

func TestMemoryFreeIsWhatUseAndReserveLeave(t *testing.T) {
	w := newWorld()
	w.pages["http://chat-0"] = page(10, 100, 50, 7)
	expectPage(t, w.look(t, 10), // 81920 − 640 − 36864 = 44416; 81920 − 640 − 36000 = 45280; 81280
		"# HELP DCGM_FI_DEV_FB_FREE Framebuffer memory free in MiB (emulated).\n# TYPE DCGM_FI_DEV_FB_FREE gauge\n"+
			"DCGM_FI_DEV_FB_FREE"+labels("0", gpu0, triton)+"44416\nDCGM_FI_DEV_FB_FREE"+labels("1", gpu1, triton)+"45280\n"+
			"DCGM_FI_DEV_FB_FREE"+labels("2", gpu2, Holder{})+"81280\n", "DCGM_FI_DEV_FB_FREE")
}

func TestAPodThatDoesNotAnswerHasNoActivityRatherThanNone(t *testing.T) {
	w := newWorld()
	w.pages["http://chat-0"] = page(10, 100, 50, 7)
	w.look(t, 10)
	delete(w.pages, "http://chat-0")
	onlyFree := activeHeader + labels("2", gpu2, Holder{}) + "0\n"
	expectPage(t, w.look(t, 15), onlyFree, activeName)
	expectPage(t, w.look(t, 15), "# HELP emulated_exporter_pod_up Whether the pod's metrics page could be read.\n"+
		"# TYPE emulated_exporter_pod_up gauge\nemulated_exporter_pod_up{namespace=\"serving\",pod=\"chat-0\"} 0\n",
		"emulated_exporter_pod_up")

	w.pages["http://chat-0"] = page(20, 104, 50, 8) // back: 4 s in the 10 s since the last page
	expectPage(t, w.look(t, 20), activeHeader+labels("0", gpu0, triton)+"0.4\n"+activeName+labels("1", gpu1, triton)+"0\n"+
		activeName+labels("2", gpu2, Holder{})+"0\n", activeName)
}

func TestAKubeletThatHasForgottenItsPodsDoesNotMakeBusyGPUsIdle(t *testing.T) {
	w := newWorld()
	w.devices.Held = map[string][]Holder{}
	expectPage(t, w.look(t, 10), "", activeName)
}

func TestAReplacedPodStartsItsOwnAccount(t *testing.T) {
	w := newWorld()
	w.pages["http://chat-0"] = page(10, 100, 50, 7)
	w.look(t, 10)
	w.pods[0].UID = "u2"
	w.pages["http://chat-0"] = page(15, 2, 1, 1)
	expectPage(t, w.look(t, 15), activeHeader+labels("2", gpu2, Holder{})+"0\n", activeName)
}

func TestWhileAPodIsReplacedTheGPUBelongsToTheOneThatStays(t *testing.T) {
	w := newWorld()
	w.pods[0].Ending = true
	w.pods = append(w.pods, Pod{UID: "u2", Namespace: "serving", Name: "chat-1", Devices: 2, Running: true})
	heir := Holder{"serving", "chat-1", "triton"}
	w.devices.Held = map[string][]Holder{gpu0: {triton, heir}, gpu1: {heir, triton}}
	for _, gpu := range w.look(t, 10).GPUs[:2] {
		if gpu.Holder != heir {
			t.Errorf("GPU %d is held by %v, want %v", gpu.Index, gpu.Holder, heir)
		}
	}
}

func TestTheEmulatedHostIsReportedUnderCAdvisorsNames(t *testing.T) {
	w := newWorld()
	w.pages["http://chat-0"] = page(10, 100, 50, 7)
	w.look(t, 10)
	w.pages["http://chat-0"] = page(15, 101.5, 50, 9.5)
	expectPage(t, w.look(t, 15), `# HELP container_cpu_usage_seconds_total CPU time consumed on the emulated host, in seconds.
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="triton",cpu="total",namespace="serving",pod="chat-0"} 2.5 15000
# HELP container_spec_cpu_quota CPU quota of the emulated host, in µs per period.
# TYPE container_spec_cpu_quota gauge
container_spec_cpu_quota{container="triton",namespace="serving",pod="chat-0"} 1.6e+06
# HELP container_spec_cpu_period CPU period of the emulated host, in µs.
# TYPE container_spec_cpu_period gauge
container_spec_cpu_period{container="triton",namespace="serving",pod="chat-0"} 100000
`, "container_cpu_usage_seconds_total", "container_spec_cpu_quota", "container_spec_cpu_period",
		"container_cpu_cfs_periods_total")
}

func TestWithoutTheAPIServerTheKnownPodsAreStillObserved(t *testing.T) {
	w := newWorld()
	w.pages["http://chat-0"] = page(10, 100, 50, 7)
	w.look(t, 10)
	w.observer.sources.Pods = func(context.Context) ([]Pod, error) { return nil, errors.New("refused") }
	w.pages["http://chat-0"] = page(15, 101, 50, 7)
	if share := w.look(t, 15).GPUs[0].Active; share == nil || *share != 0.2 {
		t.Errorf("activity of GPU 0: got %v, want 0.2", share)
	}
}

func TestWithoutTheKubeletThereIsNoObservation(t *testing.T) {
	w := newWorld()
	w.observer.sources.Devices = func(context.Context) (Devices, error) { return Devices{}, errors.New("refused") }
	if _, err := w.observer.Observe(context.Background(), at(10)); err == nil {
		t.Error("an observation without the kubelet")
	}
}

func TestAnObservationThatNobodyRenewsIsNotServed(t *testing.T) {
	w := newWorld()
	w.pages["http://chat-0"] = page(10, 100, 50, 7)
	now := at(10)
	collector := NewCollector(node, Product{}, 15*time.Second, func() time.Time { return now })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	collector.Set(w.look(t, 10))
	if count, err := testutil.GatherAndCount(registry, "DCGM_FI_DEV_FB_USED"); err != nil || count != 3 {
		t.Errorf("fresh: got %d series, %v; want 3", count, err)
	}
	now = at(26)
	if count, err := testutil.GatherAndCount(registry, "DCGM_FI_DEV_FB_USED"); err != nil || count != 0 {
		t.Errorf("16 s old: got %d series, %v; want 0", count, err)
	}
}
