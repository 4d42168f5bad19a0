// Command coredns is CoreDNS with the plugins that a cluster without a way out needs: names of Services and pods, a
// cache, the two health endpoints, and a fixed answer for every other name. Plugins that talk to clouds, and "forward",
// are left out.
package main

import (
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/coredns/coredns/coremain"
)

func main() {
	coremain.Run()
}
