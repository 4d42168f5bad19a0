#!/usr/bin/env bash
# Makes .venv with everything that this repository's commands need. Works on a Debian 12 that has
# nothing but python3 and make: as root it adds the missing packages, otherwise it prints the line
# that does. Running it again is cheap and changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }

# ca-certificates: without it a minimal system cannot check the package index it talks to.
# git: the tests look at what is committed; python3-venv: carries ensurepip, which Debian splits off.
packages=()
need() { command -v "$1" >/dev/null 2>&1 || packages+=("$2"); }

# The first Python that is new enough and can make an environment: a Python without ensurepip cannot.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3 /usr/bin/python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

python=$(find_python || true)
[[ -n $python ]] || packages+=(python3-venv)
need git git
[[ -e /etc/ssl/certs/ca-certificates.crt ]] || packages+=(ca-certificates)

if ((${#packages[@]})); then
  command -v apt-get >/dev/null || {
    say "install: missing here: ${packages[*]} (Debian's names). Add them with this system's package manager."
    exit 1
  }
  line="apt-get update && apt-get install --yes --no-install-recommends ${packages[*]}"
  if ((EUID != 0)); then
    say "install: this system lacks ${packages[*]}. As root, run:"
    say "  $line"
    exit 1
  fi
  say "install: adding ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update --quiet=2
  apt-get install --yes --quiet=2 --no-install-recommends "${packages[@]}" >/dev/null
  python=$(find_python) || {
    say "install: no Python 3.11 or newer that can make a virtual environment, even with python3-venv installed."
    say "         Debian 12 has one; elsewhere name it: make install PYTHON=/path/to/python3.11"
    exit 1
  }
fi

# An environment whose interpreter is gone (an upgrade, a moved checkout) is made anew.
if ! .venv/bin/python -c 'import pip' 2>/dev/null || [[ $(cat .venv/.root 2>/dev/null) != "$PWD" ]]; then
  rm -rf .venv
  say "install: making .venv with $python"
  "$python" -m venv .venv
  printf '%s' "$PWD" >.venv/.root
fi

# A busy network is retried, a wrong hash is not.
say "install: Python packages from requirements-dev.lock"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --retries 10 \
  --require-hashes --no-deps --only-binary :all: --requirement requirements-dev.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check \
  --no-deps --no-build-isolation --no-index --editable .
touch .venv/.stamp
say "install: done, $(.venv/bin/python --version) in .venv; the commands are .venv/bin/slo and .venv/bin/kubectl-slo"
