package exporter

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	gpuLabels  = []string{"gpu", "UUID", "device", "modelName", "Hostname", "namespace", "pod", "container"}
	hostLabels = []string{"namespace", "pod", "container"}
	podLabels  = []string{"namespace", "pod"}

	grActive   = gpuFamily("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Share of time the graphics engine was active (emulated).")
	gpuUtil    = gpuFamily("DCGM_FI_DEV_GPU_UTIL", "GPU utilization in % (emulated).")
	fbUsed     = gpuFamily("DCGM_FI_DEV_FB_USED", "Framebuffer memory used in MiB (emulated).")
	fbFree     = gpuFamily("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free in MiB (emulated).")
	fbReserved = gpuFamily("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved in MiB (emulated).")

	cpuUsage = prometheus.NewDesc("container_cpu_usage_seconds_total",
		"CPU time consumed on the emulated host, in seconds.", append([]string{"cpu"}, hostLabels...), nil)
	cpuQuota         = hostFamily("container_spec_cpu_quota", "CPU quota of the emulated host, in µs per period.")
	cpuPeriod        = hostFamily("container_spec_cpu_period", "CPU period of the emulated host, in µs.")
	periods          = hostFamily("container_cpu_cfs_periods_total", "Periods of the emulated host in which the quota held.")
	throttledPeriods = hostFamily("container_cpu_cfs_throttled_periods_total", "Throttled periods of the emulated host.")
	throttledSeconds = hostFamily("container_cpu_cfs_throttled_seconds_total", "Time throttled on the emulated host, in seconds.")

	reach = prometheus.NewDesc("emulated_exporter_pod_up", "Whether the pod's metrics page could be read.", podLabels, nil)
	seen  = prometheus.NewDesc("emulated_exporter_last_observation_timestamp_seconds",
		"When the figures on this page were observed.", nil, nil)
)

func gpuFamily(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, gpuLabels, nil)
}
func hostFamily(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, hostLabels, nil)
}

// Product describes the emulated GPU.
type Product struct {
	Name        string // as in DCGM's label modelName
	MemoryMiB   float64
	ReservedMiB float64
}

// Collector serves the latest observation to Prometheus, for as long as it is fresh: figures that nobody renewed are no figures.
type Collector struct {
	node    string
	product Product
	maxAge  time.Duration
	now     func() time.Time

	mutex  sync.Mutex
	latest Observation
}

// NewCollector returns an empty collector; set fills it.
func NewCollector(node string, product Product, maxAge time.Duration, now func() time.Time) *Collector {
	return &Collector{node: node, product: product, maxAge: maxAge, now: now}
}

// Set replaces the observation that is served.
func (c *Collector) Set(observation Observation) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.latest = observation
}

// Describe says nothing on purpose: which series exist depends on what could be observed.
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends what the latest observation knows.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	c.mutex.Lock()
	observed := c.latest
	c.mutex.Unlock()
	if observed.At.IsZero() {
		return
	}
	gauge(out, seen, float64(observed.At.UnixMilli())/1000)
	if c.now().Sub(observed.At) > c.maxAge {
		return
	}
	for _, gpu := range observed.GPUs {
		c.collectGPU(out, gpu)
	}
	for _, host := range observed.Hosts {
		collectHost(out, host)
	}
	for _, pod := range observed.Reaches {
		up := 0.0
		if pod.OK {
			up = 1
		}
		gauge(out, reach, up, pod.Namespace, pod.Pod)
	}
}

func (c *Collector) collectGPU(out chan<- prometheus.Metric, gpu GPU) {
	index := strconv.Itoa(gpu.Index)
	labels := []string{
		index, gpu.UUID, "nvidia" + index, c.product.Name, c.node,
		gpu.Holder.Namespace, gpu.Holder.Pod, gpu.Holder.Container,
	}
	if gpu.Active != nil {
		gauge(out, grActive, *gpu.Active, labels...)
		gauge(out, gpuUtil, math.Round(100**gpu.Active), labels...)
	}
	if gpu.MemoryMiB != nil {
		usable := c.product.MemoryMiB - c.product.ReservedMiB
		gauge(out, fbUsed, math.Round(*gpu.MemoryMiB), labels...)
		gauge(out, fbFree, max(usable-math.Round(*gpu.MemoryMiB), 0), labels...)
	}
	gauge(out, fbReserved, c.product.ReservedMiB, labels...)
}

// collectHost sends counters with the time of their reading, as cAdvisor does: served without it, a counter that was read at
// some other moment than it is scraped gives rates that swing by an interval's worth.
func collectHost(out chan<- prometheus.Metric, host Host) {
	labels := []string{host.Namespace, host.Pod, host.Container}
	counter := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.NewMetricWithTimestamp(
			host.At, prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...))
	}
	counter(cpuUsage, host.Account.seconds, append([]string{"total"}, labels...)...)
	if host.CPULimit == 0 {
		return // without a quota cAdvisor has none of the following
	}
	period := float64(cfsPeriod.Microseconds())
	gauge(out, cpuQuota, math.Round(host.CPULimit*period), labels...)
	gauge(out, cpuPeriod, period, labels...)
	if host.Account.throttles {
		counter(periods, host.Account.periods, labels...)
		counter(throttledPeriods, host.Account.throttledPeriods, labels...)
		counter(throttledSeconds, host.Account.throttledSeconds, labels...)
	}
}

func gauge(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}
