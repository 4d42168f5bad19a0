// Package exporter reports on GPUs and hosts that do not exist, under the names that real ones have: DCGM's for GPUs and
// cAdvisor's for CPU time. Who holds which GPU it asks the kubelet, as NVIDIA's exporter does; how busy a GPU is it learns
// from the metrics pages of the emulated models. What it cannot learn it leaves out: a GPU whose pod does not answer has no
// activity, not an activity of 0.
package exporter

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"inferenceslo.dev/devcluster/internal/gpuid"
)

// Holder is the container that a device was handed to.
type Holder struct{ Namespace, Pod, Container string }

// Devices are the node's GPUs and who holds them, as the kubelet says.
type Devices struct {
	All  []string            // identities
	Held map[string][]Holder // by identity; while a pod is being replaced there may be two
}

// Pod is what the exporter needs to know of a pod on its node.
type Pod struct {
	UID, Namespace, Name string
	MetricsURL           string // empty while the pod has no address
	EmulatedContainer    string // the container with an emulated host, if there is one
	CPULimits            map[string]float64
	Devices              int  // how many devices its containers ask for
	Running, Ending      bool // ending: deleted or finished
}

// Sources are where figures come from. Each may fail; a failure costs the figures that depend on it and nothing else.
type Sources struct {
	Devices func(context.Context) (Devices, error)
	Pods    func(context.Context) ([]Pod, error)
	Page    func(ctx context.Context, url string) (Page, error)
}

// GPU is one device in an observation. Active and MemoryMiB are nil when unknown.
type GPU struct {
	Index     int
	UUID      string
	Holder    Holder // empty when nobody is known to hold it
	Active    *float64
	MemoryMiB *float64
}

// Host is the emulated CPU use of one container.
type Host struct {
	Holder
	At       time.Time // of the page
	CPULimit float64   // cores; 0 when the container has no limit
	Account  cpuAccount
}

// Reach says whether a pod's page could be read.
type Reach struct {
	Namespace, Pod string
	OK             bool
}

// Observation is everything that the exporter knows at one moment.
type Observation struct {
	At      time.Time
	GPUs    []GPU
	Hosts   []Host
	Reaches []Reach
}

// Observer remembers each pod's last page, to tell growth from totals. It is not safe for concurrent use.
type Observer struct {
	node     string
	sources  Sources
	pods     []Pod // as last listed
	pages    map[string]*Page
	accounts map[string]*cpuAccount
}

// NewObserver returns an observer of one node.
func NewObserver(node string, sources Sources) *Observer {
	return &Observer{node: node, sources: sources, pages: map[string]*Page{}, accounts: map[string]*cpuAccount{}}
}

// Observe asks all sources once. Without the kubelet there is nothing to say about GPUs and it returns the error; without the
// API server it goes on with the pods that it knew.
func (o *Observer) Observe(ctx context.Context, now time.Time) (Observation, error) {
	if pods, err := o.sources.Pods(ctx); err != nil {
		klog.ErrorS(err, "Cannot list the node's pods, going on with the last list", "pods", len(o.pods))
	} else {
		o.pods = pods
	}
	devices, err := o.sources.Devices(ctx)
	if err != nil {
		return Observation{}, fmt.Errorf("ask the kubelet who holds which GPU: %w", err)
	}
	holders, sure := o.holders(devices), o.consistent(devices)
	watched := o.watched(holders)
	pages := o.read(ctx, watched)

	observation := Observation{At: now}
	for _, id := range devices.All {
		gpu := o.gpu(id, holders, pages)
		if gpu.Holder == (Holder{}) && sure {
			gpu.Active, gpu.MemoryMiB = new(float64), new(float64)
		}
		observation.GPUs = append(observation.GPUs, gpu)
	}
	slices.SortFunc(observation.GPUs, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	for _, pod := range watched {
		page := pages[pod.UID]
		observation.Reaches = append(observation.Reaches, Reach{pod.Namespace, pod.Name, page != nil})
		if page == nil {
			continue
		}
		if host, ok := o.host(pod, page, holders); ok {
			observation.Hosts = append(observation.Hosts, host)
		}
	}
	o.remember(watched, pages)
	return observation, nil
}

// holders chooses one holder per held GPU, rather a pod that stays than one that goes.
func (o *Observer) holders(devices Devices) map[string]Holder {
	chosen := make(map[string]Holder, len(devices.Held))
	for id, candidates := range devices.Held {
		for _, candidate := range candidates {
			pod, known := o.pod(candidate)
			if _, taken := chosen[id]; !taken || (known && !pod.Ending) {
				chosen[id] = candidate
			}
		}
	}
	return chosen
}

// consistent tells whether a GPU without a holder is free for certain. A kubelet that has just restarted knows its devices
// before it knows its pods, and would have us report a busy GPU as idle.
func (o *Observer) consistent(devices Devices) bool {
	asked := 0
	for _, pod := range o.pods {
		if pod.Running && !pod.Ending {
			asked += pod.Devices
		}
	}
	return len(devices.Held) >= asked
}

func (o *Observer) pod(holder Holder) (Pod, bool) {
	at := slices.IndexFunc(o.pods, func(p Pod) bool { return p.Namespace == holder.Namespace && p.Name == holder.Pod })
	if at < 0 {
		return Pod{}, false
	}
	return o.pods[at], true
}

// watched are the pods with figures to expect: those that hold GPUs, and those with an emulated host.
func (o *Observer) watched(holders map[string]Holder) []Pod {
	holding := map[string]bool{}
	for _, holder := range holders {
		if pod, known := o.pod(holder); known {
			holding[pod.UID] = true
		}
	}
	var watched []Pod
	for _, pod := range o.pods {
		if holding[pod.UID] || (pod.EmulatedContainer != "" && !pod.Ending) {
			watched = append(watched, pod)
		}
	}
	return watched
}

// read fetches the pages of all pods at once, so that one that hangs delays nobody by more than the client's time-out.
func (o *Observer) read(ctx context.Context, pods []Pod) map[string]*Page {
	var (
		mutex sync.Mutex
		group sync.WaitGroup
	)
	pages := make(map[string]*Page, len(pods))
	for _, pod := range pods {
		if pod.MetricsURL == "" {
			continue
		}
		group.Add(1)
		go func() {
			defer group.Done()
			page, err := o.sources.Page(ctx, pod.MetricsURL)
			if err != nil {
				klog.V(2).InfoS("Cannot read a pod's page", "pod", klog.KRef(pod.Namespace, pod.Name), "err", err)
				return
			}
			mutex.Lock()
			defer mutex.Unlock()
			pages[pod.UID] = &page
		}()
	}
	group.Wait()
	return pages
}

func (o *Observer) gpu(id string, holders map[string]Holder, pages map[string]*Page) GPU {
	index, known := gpuid.Index(o.node, id)
	if !known {
		index = -1
	}
	holder, held := holders[id]
	observed := GPU{Index: index, UUID: id, Holder: holder}
	if !held {
		return observed
	}
	pod, known := o.pod(holder)
	page := pages[pod.UID]
	if !known || page == nil {
		return observed
	}
	if share, ok := active(o.pages[pod.UID], page, id); ok {
		observed.Active = &share
	}
	if used, ok := page.MemoryMiB[id]; ok {
		observed.MemoryMiB = &used
	}
	return observed
}

func (o *Observer) host(pod Pod, page *Page, holders map[string]Holder) (Host, bool) {
	container := pod.EmulatedContainer
	for _, holder := range holders {
		if container == "" && holder.Namespace == pod.Namespace && holder.Pod == pod.Name {
			container = holder.Container
		}
	}
	account := o.accounts[pod.UID]
	if account == nil {
		if len(page.CPU) == 0 {
			return Host{}, false
		}
		account = &cpuAccount{}
		o.accounts[pod.UID] = account
	}
	account.add(o.pages[pod.UID], page)
	return Host{Holder{pod.Namespace, pod.Name, container}, page.At, pod.CPULimits[container], *account}, true
}

// remember keeps the pages just read, and the older ones of pods that did not answer this time: their next answer then gives
// the mean over the gap. What belongs to pods that are gone is forgotten.
func (o *Observer) remember(watched []Pod, pages map[string]*Page) {
	kept, accounts := make(map[string]*Page, len(watched)), make(map[string]*cpuAccount, len(watched))
	for _, pod := range watched {
		if kept[pod.UID] = o.pages[pod.UID]; pages[pod.UID] != nil {
			kept[pod.UID] = pages[pod.UID]
		}
		accounts[pod.UID] = o.accounts[pod.UID]
	}
	o.pages, o.accounts = kept, accounts
}
