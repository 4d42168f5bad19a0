package exporter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const gpuResource = "nvidia.com/gpu"

func tritonPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1", Namespace: "serving", Name: "chat-0"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "sidecar"},
			{
				Name: "triton",
				Env:  []corev1.EnvVar{{Name: "EMULATED_CPU_CORES"}},
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("7500m"), gpuResource: resource.MustParse("2"),
				}},
			},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.7"},
	}
}

func TestAPodIsReadForItsHostItsDevicesAndItsPage(t *testing.T) {
	want := Pod{
		UID: "u1", Namespace: "serving", Name: "chat-0", MetricsURL: "http://10.0.0.7:8002/metrics",
		EmulatedContainer: "triton", CPULimits: map[string]float64{"triton": 7.5}, Devices: 2, Running: true,
	}
	if got := podOf(tritonPod(), gpuResource); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestThePageIsWhereTheAnnotationsSay(t *testing.T) {
	pod := tritonPod()
	pod.Annotations = map[string]string{"prometheus.io/port": "9002", "prometheus.io/path": "/prometheus/metrics"}
	pod.Status.PodIP = "fd00::7"
	if got, want := podOf(pod, gpuResource).MetricsURL, "http://[fd00::7]:9002/prometheus/metrics"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAFinishedPodHasNoPageAndADeletedOneIsEnding(t *testing.T) {
	finished, deleted := tritonPod(), tritonPod()
	finished.Status.Phase = corev1.PodFailed
	deleted.DeletionTimestamp = &metav1.Time{}
	if got := podOf(finished, gpuResource); got.MetricsURL != "" || !got.Ending {
		t.Errorf("finished: page %q, ending %t; want none, true", got.MetricsURL, got.Ending)
	}
	if got := podOf(deleted, gpuResource); got.MetricsURL == "" || !got.Ending {
		t.Errorf("being deleted: page %q, ending %t; it still serves, so want one, true", got.MetricsURL, got.Ending)
	}
}

func TestOnlyDevicesOfTheResourceCountAndTheirHoldersAreNamed(t *testing.T) {
	got := devicesOf(gpuResource,
		&podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
			{ResourceName: gpuResource, DeviceIds: []string{"GPU-a"}},
			{ResourceName: gpuResource, DeviceIds: []string{"GPU-b"}}, // the kubelet lists one NUMA node at a time
			{ResourceName: "example.com/nic", DeviceIds: []string{"nic-0"}},
		}},
		&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
			Namespace: "serving", Name: "chat-0", Containers: []*podresources.ContainerResources{
				{Name: "sidecar", Devices: []*podresources.ContainerDevices{{ResourceName: "example.com/nic", DeviceIds: []string{"nic-0"}}}},
				{Name: "triton", Devices: []*podresources.ContainerDevices{{ResourceName: gpuResource, DeviceIds: []string{"GPU-b"}}}},
			},
		}}})
	want := Devices{All: []string{"GPU-a", "GPU-b"}, Held: map[string][]Holder{"GPU-b": {{"serving", "chat-0", "triton"}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAPageThatIsRefusedIsAnErrorThatSaysWhatCame(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	if _, err := HTTPPage()(context.Background(), server.URL); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v, want an error with the status 404", err)
	}
}
