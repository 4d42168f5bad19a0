package gpuplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	kubeletSocket   = "kubelet.sock"
	pollInterval    = 500 * time.Millisecond
	registerTimeout = 10 * time.Second
)

// Serve registers the plugin with the kubelet whose registry socket is in dir, and again whenever that kubelet restarts, until
// the context ends. It returns nil then; every other trouble is logged and tried again, for a kubelet may be away for long.
func (p *Plugin) Serve(ctx context.Context, dir string) error {
	for {
		if err := p.session(ctx, dir); err != nil {
			klog.ErrorS(err, "Device plugin lost its kubelet, trying again", "resource", p.resource)
		}
		if !sleep(ctx, pollInterval) {
			return nil
		}
	}
}

// session serves one life of the kubelet. It ends without error when the registry socket changes: a kubelet that starts wipes
// the folder, sockets of plugins included, and expects them to come again.
func (p *Plugin) session(ctx context.Context, dir string) error {
	registry, err := waitFor(ctx, filepath.Join(dir, kubeletSocket))
	if err != nil {
		return nil // the context ended first
	}
	endpoint := strings.ReplaceAll(p.resource, "/", "_") + ".sock"
	socket := filepath.Join(dir, endpoint)
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove the socket of an earlier run: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen for the kubelet: %w", err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer server.Stop()

	if err := p.register(ctx, filepath.Join(dir, kubeletSocket), endpoint); err != nil {
		return err
	}
	klog.InfoS("Registered with the kubelet", "resource", p.resource, "devices", len(p.uuids))
	own, err := os.Stat(socket)
	if err != nil {
		return nil // wiped already: the kubelet restarted
	}
	for sleep(ctx, pollInterval) {
		select {
		case err := <-served:
			return fmt.Errorf("serve the kubelet: %w", err)
		default:
		}
		if !unchanged(registry, filepath.Join(dir, kubeletSocket)) || !unchanged(own, socket) {
			klog.InfoS("The kubelet restarted, registering again", "resource", p.resource)
			return nil
		}
	}
	return nil
}

func (p *Plugin) register(ctx context.Context, registry, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+registry, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("dial %s: %w", registry, err)
	}
	defer connection.Close()
	options, _ := p.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	_, err = pluginapi.NewRegistrationClient(connection).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: p.resource, Options: options,
	})
	if err != nil {
		return fmt.Errorf("register %s at %s: %w", p.resource, registry, err)
	}
	return nil
}

// waitFor returns a file's identity as soon as it exists, or the context's error.
func waitFor(ctx context.Context, path string) (os.FileInfo, error) {
	for {
		if info, err := os.Stat(path); err == nil {
			return info, nil
		}
		if !sleep(ctx, pollInterval) {
			return nil, ctx.Err()
		}
	}
}

// unchanged compares inode and time: a file system may give a new socket the inode of the old one.
func unchanged(before os.FileInfo, path string) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(before, now) && before.ModTime().Equal(now.ModTime())
}

// sleep reports whether the time passed before the context ended.
func sleep(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
