package exporter

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	// EmulatedCores is the variable by which a container says that its host is emulated.
	EmulatedCores = "EMULATED_CPU_CORES"

	askTimeout  = 3 * time.Second
	pageTimeout = 2 * time.Second
	pageLimit   = 16 << 20 // bytes; a large Triton page has some hundred kB
)

// KubeletDevices asks the kubelet's pod-resources API for the devices of one resource and their holders.
func KubeletDevices(socket, resource string) (func(context.Context) (Devices, error), error) {
	connection, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// A kubelet that restarts is back in seconds; the default would wait for up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, MaxDelay: 2 * time.Second},
		}))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", socket, err)
	}
	client := podresources.NewPodResourcesListerClient(connection)
	return func(ctx context.Context) (Devices, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		allocatable, err := client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
		if err != nil {
			return Devices{}, fmt.Errorf("allocatable resources: %w", err)
		}
		list, err := client.List(ctx, &podresources.ListPodResourcesRequest{})
		if err != nil {
			return Devices{}, fmt.Errorf("list pod resources: %w", err)
		}
		return devicesOf(resource, allocatable, list), nil
	}, nil
}

func devicesOf(
	resource string, allocatable *podresources.AllocatableResourcesResponse, list *podresources.ListPodResourcesResponse,
) Devices {
	devices := Devices{Held: map[string][]Holder{}}
	for _, device := range allocatable.GetDevices() {
		if device.GetResourceName() == resource {
			devices.All = append(devices.All, device.GetDeviceIds()...)
		}
	}
	for _, pod := range list.GetPodResources() {
		for _, container := range pod.GetContainers() {
			for _, device := range container.GetDevices() {
				if device.GetResourceName() != resource {
					continue
				}
				for _, id := range device.GetDeviceIds() {
					devices.Held[id] = append(devices.Held[id], Holder{pod.GetNamespace(), pod.GetName(), container.GetName()})
				}
			}
		}
	}
	return devices
}

// NodePods lists the pods of one node, with the devices of one resource that they ask for, by the rights of a kubeconfig.
func NodePods(kubeconfig, node, resource string) (func(context.Context) ([]Pod, error), error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	config.Timeout = askTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	onNode := metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node).String(),
		ResourceVersion: "0", // from the API server's cache
	}
	return func(ctx context.Context) ([]Pod, error) {
		list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, onNode)
		if err != nil {
			return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
		}
		pods := make([]Pod, len(list.Items))
		for i := range list.Items {
			pods[i] = podOf(&list.Items[i], resource)
		}
		return pods, nil
	}, nil
}

func podOf(pod *corev1.Pod, resource string) Pod {
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	slim := Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name,
		CPULimits: map[string]float64{},
		Running:   pod.Status.Phase == corev1.PodRunning, Ending: finished || pod.DeletionTimestamp != nil,
	}
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		if limit, ok := container.Resources.Limits[corev1.ResourceCPU]; ok {
			slim.CPULimits[container.Name] = limit.AsApproximateFloat64()
		}
		if devices, ok := container.Resources.Limits[corev1.ResourceName(resource)]; ok {
			slim.Devices += int(devices.Value())
		}
		for _, variable := range container.Env {
			if variable.Name == EmulatedCores && slim.EmulatedContainer == "" {
				slim.EmulatedContainer = container.Name
			}
		}
	}
	if pod.Status.PodIP != "" && !finished {
		slim.MetricsURL = fmt.Sprintf("http://%s%s",
			net.JoinHostPort(pod.Status.PodIP, annotation(pod, "prometheus.io/port", "8002")),
			annotation(pod, "prometheus.io/path", "/metrics"))
	}
	return slim
}

func annotation(pod *corev1.Pod, name, otherwise string) string {
	if value, ok := pod.Annotations[name]; ok && value != "" {
		return value
	}
	return otherwise
}

// HTTPPage fetches a metrics page. The time of a reading is when the answer arrived.
func HTTPPage() func(context.Context, string) (Page, error) {
	// No connection is kept: the address may belong to another pod the next time.
	client := &http.Client{Timeout: pageTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context, url string) (Page, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return Page{}, err
		}
		response, err := client.Do(request)
		if err != nil {
			return Page{}, err
		}
		defer response.Body.Close()
		at := time.Now()
		if response.StatusCode != http.StatusOK {
			return Page{}, fmt.Errorf("GET %s: %s, want 200", url, response.Status)
		}
		return ParsePage(io.LimitReader(response.Body, pageLimit), at)
	}
}
