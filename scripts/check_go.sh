#!/usr/bin/env bash
# Formats, vets and tests the Go code of the development cluster that is ours, not the Kubernetes it builds.
set -euo pipefail
cd "$(dirname "$0")/.."

# The one that the cluster is built with: the system's when it is new enough, else the one from PyPI.
go=$(.venv/bin/python -c 'import sys; from devcluster.golang import go_tool; print(go_tool(lambda line: print(line, file=sys.stderr)))')
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-buildvcs=false
cd devcluster

unformatted=$("$(dirname "$go")/gofmt" -l cmd internal)
if [[ -n $unformatted ]]; then
  printf 'not formatted by gofmt:\n%s\n' "$unformatted" >&2
  exit 1
fi
"$go" vet ./internal/...
"$go" test ./internal/...
