package gpuplugin

import (
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"inferenceslo.dev/devcluster/internal/gpuid"
)

// NewCommand returns `gpu-device-plugin --node NAME --gpus N`, which runs until SIGINT or SIGTERM.
func NewCommand() *cobra.Command {
	var (
		node, resource, dir string
		count               int
	)
	command := &cobra.Command{
		Use:           "gpu-device-plugin",
		Short:         "Advertise emulated GPUs to the kubelet of this node",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if node == "" {
				return fmt.Errorf("--node: give the node's name in Kubernetes; device identities follow from it")
			}
			if count < 1 || count > gpuid.MaxPerNode {
				return fmt.Errorf("--gpus %d: must be between 1 and %d", count, gpuid.MaxPerNode)
			}
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return New(resource, gpuid.UUIDs(node, count)).Serve(ctx, dir)
		},
	}
	flags := command.Flags()
	flags.StringVar(&node, "node", "", "name of the node in Kubernetes")
	flags.IntVar(&count, "gpus", 4, "how many GPUs the node has")
	flags.StringVar(&resource, "resource", "nvidia.com/gpu", "extended resource to advertise them as")
	flags.StringVar(&dir, "device-plugin-dir", pluginapi.DevicePluginPath, "folder of the kubelet's registry socket")
	return command
}
