package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// staleAfter is how many intervals an observation is served for when no new one comes.
const staleAfter = 3

type options struct {
	kubeconfig, node, listen, socket, resource string
	interval                                   time.Duration
	product                                    Product
}

// NewCommand returns `emulated-exporter --kubeconfig FILE --node NAME`, which runs until SIGINT or SIGTERM.
func NewCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:           "emulated-exporter",
		Short:         "Serve DCGM's and cAdvisor's metrics for the emulated GPUs and hosts of this node",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return o.run(ctx)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "rights to list this node's pods; empty means those of the pod we run in")
	flags.StringVar(&o.node, "node", "", "name of the node in Kubernetes")
	flags.StringVar(&o.listen, "listen", ":9400", "address to serve /metrics and /healthz on")
	flags.StringVar(&o.socket, "pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's pod-resources socket")
	flags.StringVar(&o.resource, "resource", "nvidia.com/gpu", "extended resource whose devices are reported")
	flags.DurationVar(&o.interval, "interval", 5*time.Second, "how often to observe; also the window of activity")
	flags.StringVar(&o.product.Name, "product", "NVIDIA A100-SXM4-80GB", "value of the label modelName")
	flags.Float64Var(&o.product.MemoryMiB, "memory-mib", 81920, "memory of one GPU")
	flags.Float64Var(&o.product.ReservedMiB, "reserved-mib", 640, "part of it that the driver keeps")
	return command
}

func (o *options) run(ctx context.Context) error {
	if o.node == "" {
		return errors.New("--node: give the node's name in Kubernetes")
	}
	if o.interval < time.Second {
		return fmt.Errorf("--interval %s: must be at least 1s", o.interval)
	}
	devices, err := KubeletDevices(o.socket, o.resource)
	if err != nil {
		return err
	}
	pods, err := NodePods(o.kubeconfig, o.node, o.resource)
	if err != nil {
		return err
	}
	observer := NewObserver(o.node, Sources{Devices: devices, Pods: pods, Page: HTTPPage()})
	collector := NewCollector(o.node, o.product, staleAfter*o.interval, time.Now)
	go func() {
		tick := time.NewTicker(o.interval)
		defer tick.Stop()
		for {
			if observation, err := observer.Observe(ctx, time.Now()); err != nil {
				klog.ErrorS(err, "No observation")
			} else {
				collector.Set(observation)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return serve(ctx, o.listen, collector)
}

func serve(ctx context.Context, address string, collector prometheus.Collector) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	klog.InfoS("Serving", "address", address)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", address, err)
	}
	return nil
}
