//go:build tools

// Package prometheus pins the Prometheus that the development cluster runs. It has no code of its own: a released Prometheus
// is built from its module, with Kubernetes as the only kind of service discovery (distributions leave that one out).
package prometheus

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
