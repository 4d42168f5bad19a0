// Package gpuplugin is a kubelet device plugin for GPUs that do not exist. It advertises a resource with stable device
// identities the way NVIDIA's plugin does, so that everything above it is real: the scheduler counts the resource, the kubelet
// hands out devices and remembers them across restarts, and the pod-resources API tells who holds which.
package gpuplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// VisibleDevices is the variable through which NVIDIA's container runtime, and our emulated models, learn their GPUs.
const VisibleDevices = "NVIDIA_VISIBLE_DEVICES"

// Plugin answers the kubelet for one resource.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer

	resource string
	uuids    []string // in the order of the device index
}

// New returns a plugin that advertises one device per identity under an extended resource name, such as nvidia.com/gpu.
func New(resource string, uuids []string) *Plugin {
	return &Plugin{resource: resource, uuids: slices.Clone(uuids)}
}

// GetDevicePluginOptions asks the kubelet to let the plugin choose devices; without that it takes them in random order.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

// ListAndWatch reports every device as healthy once and then holds the stream: emulated GPUs do not fail by themselves, and a
// closed stream is what tells the kubelet that the plugin is gone.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	devices := make([]*pluginapi.Device, len(p.uuids))
	for i, id := range p.uuids {
		devices[i] = &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
	}
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// GetPreferredAllocation picks what must be included and then the lowest indices, so that runs repeat.
func (p *Plugin) GetPreferredAllocation(
	_ context.Context, request *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, container := range request.GetContainerRequests() {
		chosen := slices.Clone(container.GetMustIncludeDeviceIDs())
		for _, id := range p.inOrder(container.GetAvailableDeviceIDs()) {
			if len(chosen) < int(container.GetAllocationSize()) && !slices.Contains(chosen, id) {
				chosen = append(chosen, id)
			}
		}
		response.ContainerResponses = append(
			response.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: chosen},
		)
	}
	return response, nil
}

// Allocate tells each container its GPUs through NVIDIA_VISIBLE_DEVICES, in the order of the device index.
// A device that the plugin does not own is an InvalidArgument error: handing it out would break the exporter's accounts.
func (p *Plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		for _, id := range container.GetDevicesIds() {
			if !slices.Contains(p.uuids, id) {
				return nil, status.Error(codes.InvalidArgument, fmt.Sprintf(
					"device %s is not one of the %d devices of %s on this node", id, len(p.uuids), p.resource))
			}
		}
		visible := strings.Join(p.inOrder(container.GetDevicesIds()), ",")
		response.ContainerResponses = append(
			response.ContainerResponses, &pluginapi.ContainerAllocateResponse{Envs: map[string]string{VisibleDevices: visible}},
		)
	}
	return response, nil
}

// inOrder keeps those of our devices that are in ids, in the order of their index.
func (p *Plugin) inOrder(ids []string) []string {
	var kept []string
	for _, id := range p.uuids {
		if slices.Contains(ids, id) {
			kept = append(kept, id)
		}
	}
	return kept
}
