package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"inferenceslo.dev/devcluster/internal/exporter"
	"inferenceslo.dev/devcluster/internal/gpuplugin"
)

// commands is the table of programs in the binary. Each reads os.Args, of which the first element is its own name, and
// ends the process itself when it fails. A new program is one line here.
var commands = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          run(apiserver.NewAPIServerCommand),
	"kube-controller-manager": run(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          run(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              run(proxy.NewProxyCommand),
	"kubelet":                 run(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl":                 run(cmd.NewDefaultKubectlCommand),
	"gpu-device-plugin":       run(gpuplugin.NewCommand),
	"emulated-exporter":       run(exporter.NewCommand),
}

func run(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}
