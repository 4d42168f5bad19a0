"""A real Kubernetes on one Debian machine: `python -m devcluster up`."""
