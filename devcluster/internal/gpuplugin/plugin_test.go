package gpuplugin

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

var plugin = New("nvidia.com/gpu", []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"})

func TestEachContainerSeesItsOwnGPUsInIndexOrder(t *testing.T) {
	response, err := plugin.Allocate(context.Background(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{
			{DevicesIds: []string{"GPU-c", "GPU-a"}}, {DevicesIds: []string{"GPU-d"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var visible []string
	for _, container := range response.ContainerResponses {
		visible = append(visible, container.Envs["NVIDIA_VISIBLE_DEVICES"])
	}
	if want := []string{"GPU-a,GPU-c", "GPU-d"}; !slices.Equal(visible, want) {
		t.Errorf("NVIDIA_VISIBLE_DEVICES by container: got %q, want %q", visible, want)
	}
}

func TestADeviceOfAnotherNodeIsRefusedByName(t *testing.T) {
	_, err := plugin.Allocate(context.Background(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"GPU-a", "GPU-z"}}},
	})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "GPU-z") {
		t.Errorf("got %v; want InvalidArgument that names GPU-z", err)
	}
}

func TestPreferredAllocationKeepsWhatMustBeIncludedAndThenTakesTheLowestIndices(t *testing.T) {
	response, err := plugin.GetPreferredAllocation(context.Background(), &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs:   []string{"GPU-d", "GPU-c", "GPU-b"},
			MustIncludeDeviceIDs: []string{"GPU-d"},
			AllocationSize:       2,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := response.ContainerResponses[0].DeviceIDs, []string{"GPU-d", "GPU-b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
