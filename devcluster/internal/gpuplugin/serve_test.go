package gpuplugin

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// kubelet is the kubelet's side of the registry, as far as a plugin sees it: it wipes the folder when it starts, and calls a
// plugin back at the socket that the plugin named.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer

	dir     string
	devices chan []*pluginapi.Device
}

func (k *kubelet) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	go func() {
		connection, err := grpc.NewClient("unix://"+filepath.Join(k.dir, request.Endpoint),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return
		}
		stream, err := pluginapi.NewDevicePluginClient(connection).ListAndWatch(context.Background(), &pluginapi.Empty{})
		if err != nil {
			return
		}
		if response, err := stream.Recv(); err == nil {
			k.devices <- response.Devices
		}
	}()
	return &pluginapi.Empty{}, nil
}

func startKubelet(t *testing.T, dir string) (*kubelet, *grpc.Server) {
	t.Helper()
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("unix", filepath.Join(dir, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	k, server := &kubelet{dir: dir, devices: make(chan []*pluginapi.Device, 1)}, grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	go func() { _ = server.Serve(listener) }()
	return k, server
}

func (k *kubelet) expectDevices(t *testing.T, want int) {
	t.Helper()
	select {
	case devices := <-k.devices:
		if len(devices) != want {
			t.Errorf("the kubelet saw %d devices, want %d", len(devices), want)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the plugin did not register")
	}
}

func TestThePluginWaitsForTheKubeletAndRegistersAgainAfterItsRestart(t *testing.T) {
	dir, err := os.MkdirTemp("", "plugin") // t.TempDir() is too long for a socket's 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- plugin.Serve(ctx, dir) }()

	first, server := startKubelet(t, dir)
	first.expectDevices(t, 4)
	server.Stop()
	second, server := startKubelet(t, dir)
	second.expectDevices(t, 4)
	server.Stop()

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("a plugin that is told to stop ends without error, got %v", err)
	}
}
