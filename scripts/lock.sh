#!/usr/bin/env bash
# Writes requirements.lock (what the operator's image needs) and requirements-dev.lock (that, and the
# tools of this repository) from pyproject.toml: every file pinned by hash, no index address inside.
#
#   scripts/lock.sh            keep the pins that still fit
#   scripts/lock.sh --upgrade  take the newest versions
set -euo pipefail
cd "$(dirname "$0")/.."

uv=$(command -v uv || true)
if [[ -z $uv ]]; then
  python3 -m venv build/lock-venv
  build/lock-venv/bin/pip install --quiet uv
  uv=build/lock-venv/bin/uv
fi

compile() {
  local output=$1
  shift
  "$uv" pip compile pyproject.toml --quiet --generate-hashes --python-version 3.11 \
    --no-emit-index-url --no-emit-find-links --no-header --output-file "$output" "$@"
}

compile requirements.lock "$@"
# The tools are resolved with the runtime's pins, so that tests run what the image runs.
compile requirements-dev.lock --group dev --constraints requirements.lock "$@"
# Constraints leave a comment with the file's name on every pin; it says nothing that the reader needs.
sed -i '/^    #   -c requirements.lock$/d; s/^    # via -c requirements.lock$//' requirements-dev.lock
python3 scripts/check_locks.py
