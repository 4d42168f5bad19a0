#!/usr/bin/env bash
# Formats, vets and tests the Go code of the development cluster that is ours (not the Kubernetes it builds).
set -euo pipefail
cd "$(dirname "$0")/.."

go=$(.venv/bin/python -m devcluster.golang) # finds a Go that is new enough, or fetches one
export CGO_ENABLED=0 GOFLAGS=-mod=mod
export GOFLAGS=-mod=readonly
cd devcluster
unformatted=$("$go" fmt -n ./cmd/... ./internal/... >/dev/null && "$(dirname "$go")/gofmt" -l cmd internal)
if [[ -n $unformatted ]]; then
  printf 'not formatted by gofmt:\n%s\n' "$unformatted"
  exit 1
fi
"$go" vet ./internal/...
"$go" test ./internal/...
