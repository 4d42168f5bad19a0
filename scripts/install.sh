#!/usr/bin/env bash
# Makes .venv with everything that this repository's commands need. Works on a Debian 12 that has
# nothing but python3 and make: as root it adds the missing packages, otherwise it prints the line
# that does. When nothing changed it is done in a few milliseconds, so every make target calls it.
#
#   scripts/install.sh          PYTHON=/path/to/python3.11 chooses the interpreter
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'install: %s\n' "$*" >&2; }

# What the environment was made from: a change of any of it, or a moved checkout, makes it stale. Of
# pyproject.toml that is what stands before the settings of tools.
wanted() {
  printf '%s\n' "$PWD"
  sha256sum requirements-dev.lock scripts/install.sh
  sed '/^\[tool\.pytest/,$d' pyproject.toml | sha256sum
}

up_to_date() { [[ -x .venv/bin/slo && -f .venv/.stamp && $(<.venv/.stamp) == "$(wanted)" ]] && .venv/bin/python -c ''; }

# The first Python that is new enough and can make an environment: one without ensurepip cannot.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3 /usr/bin/python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      "$candidate" -c 'import os, sys; print(os.path.realpath(sys.executable))'
      return
    fi
  done
  return 1
}

# Debian's names of what is missing. python3-venv carries ensurepip, which Debian splits off; without
# ca-certificates a minimal system cannot verify the package index; git is how versions and tests
# look at what is committed.
missing_packages() {
  find_python >/dev/null || echo python3-venv
  command -v git >/dev/null || echo git
  [[ -e /etc/ssl/certs/ca-certificates.crt ]] || echo ca-certificates
}

add_packages() {
  local line="apt-get update && apt-get install --yes --no-install-recommends $*"
  if ! command -v apt-get >/dev/null; then
    say "this system lacks $* (Debian's names): add them with its package manager"
    exit 1
  fi
  if ((EUID != 0)); then
    say "this system lacks $*. Run as root:"
    printf '  %s\n' "$line" >&2
    exit 1
  fi
  say "adding $*"
  local log
  log=$(mktemp)
  if ! DEBIAN_FRONTEND=noninteractive bash -c "$line" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    say "could not add $*; the lines above are apt-get's"
    exit 1
  fi
  rm -f "$log"
}

make_environment() {
  local python
  python=$(find_python) || {
    say "found no Python 3.11 or newer that can make a virtual environment; name one: make install PYTHON=/path/to/python3.11"
    exit 1
  }
  # The console scripts carry the checkout's path, so a copied environment is as useless as a broken one.
  if ! .venv/bin/python -c 'import pip' 2>/dev/null || [[ $(head -n 1 .venv/.stamp 2>/dev/null) != "$PWD" ]]; then
    say "making .venv with $python"
    rm -rf .venv
    "$python" -m venv .venv
  fi
  rm -f .venv/.stamp
  say "Python packages of requirements-dev.lock"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --retries 10 --no-deps \
    --only-binary :all: --require-hashes --requirement requirements-dev.lock
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --no-index --editable .
  wanted >.venv/.stamp
  say "done: $(.venv/bin/python --version) in .venv, commands in .venv/bin (slo, kubectl-slo)"
}

up_to_date && exit 0

# Two targets at once must not fill one environment together.
mkdir -p build
exec 9>build/.install.lock
flock 9
up_to_date && exit 0

mapfile -t packages < <(missing_packages)
((${#packages[@]})) && add_packages "${packages[@]}"
make_environment
