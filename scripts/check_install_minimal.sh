#!/usr/bin/env bash
# Proves that `make install` works on a Debian 12 that has python3 and make and nothing else: makes such
# a root file system (kept in the cache), copies this checkout into it, and runs the step there, first
# without root (it must name the missing packages) and then with.
#
# Needs root for the chroot. The network is the host's; its settings for apt, pip and certificates are
# taken along, because a machine behind a proxy or a mirror reaches nothing without them.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'minimal install: %s\n' "$*"; }
fail() {
  say "FAILED: $*"
  exit 1
}

((EUID == 0)) || fail "needs root (chroot)"
cache=${INFERENCESLO_CACHE:-$HOME/.cache/inferenceslo}
mkdir -p "$cache"
work=$(mktemp -d "$cache/minimal.XXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root

# The cached system is made anew every month, so that it never drifts far from what people have.
archive=$cache/debian-12-minimal-$(date -u +%Y%m).tar
if [[ ! -f $archive ]]; then
  if ! command -v mmdebstrap >/dev/null; then
    say "adding mmdebstrap"
    apt-get update --quiet=2 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet=2 mmdebstrap >/dev/null
  fi
  say "making a minimal Debian 12 (once a month, about 40 s)"
  mmdebstrap --quiet --variant=minbase --include=python3,make bookworm "$work/root.tar" ||
    fail "mmdebstrap could not make the root file system"
  mv "$work/root.tar" "$archive"
fi
mkdir "$root"
tar -C "$root" -xf "$archive" --exclude='./dev/*'

# The host's way to the network. None of it is part of this repository.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
for file in /etc/pip.conf /etc/apt/apt.conf; do
  [[ ! -f $file ]] || cp "$file" "$root$file"
done
for file in /etc/apt/apt.conf.d/*proxy*; do
  [[ ! -f $file ]] || cp "$file" "$root/etc/apt/apt.conf.d/"
done
settings=()
while IFS='=' read -r name _; do
  settings+=("$name=${!name}")
done < <(env | grep -E '^(PIP_(INDEX_URL|EXTRA_INDEX_URL|PROXY|TRUSTED_HOST|DEFAULT_TIMEOUT)|(https?|no)_proxy|(HTTPS?|NO)_PROXY)=' || true)
# A host that names its own certificates needs them inside, too: under a name that Debian's own
# ca-certificates, which the step installs, does not overwrite.
if [[ -n ${PIP_CERT:-}${SSL_CERT_FILE:-}${REQUESTS_CA_BUNDLE:-} ]] || grep -qs '^ *cert' /etc/pip.conf ~/.config/pip/pip.conf; then
  cp -L "${PIP_CERT:-${SSL_CERT_FILE:-${REQUESTS_CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}}}" "$root/etc/host-certificates.pem"
  settings+=(PIP_CERT=/etc/host-certificates.pem)
fi

mkdir "$root/src"
git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do [[ -e $file ]] && printf '%s\0' "$file"; done |
  tar --null --files-from=- -cf - | tar -C "$root/src" -xf - --no-same-owner
chown -R 65534:65534 "$root/src"

# The mounts live in a namespace of their own and go with it.
inside() {
  local user=$1
  shift
  unshare --mount --propagation private bash -c '
    set -e
    root=$1 user=$2
    shift 2
    mount --rbind /dev "$root/dev"
    mount -t proc proc "$root/proc"
    exec chroot --userspec="$user" "$root" env -i HOME=/tmp LANG=C.UTF-8 \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
  ' bash "$root" "$user" "${settings[@]}" "$@"
}

say "without root it must say what is missing"
if output=$(inside 65534:65534 make -C /src install 2>&1); then
  fail "make install succeeded without root on a system without python3-venv"
fi
grep -q 'apt-get install .*python3-venv' <<<"$output" || fail "the line that adds the packages is missing in: $output"

say "as root it must install"
began=$SECONDS
inside 0:0 make -C /src install || fail "make install"
inside 0:0 /src/.venv/bin/slo --help >/dev/null || fail "the installed slo command does not run"
inside 0:0 /src/.venv/bin/python -c 'import kopf, kubernetes, tritonclient.grpc, slo_operator, slo_tuner' ||
  fail "an installed package does not import"
say "ok, the step took $((SECONDS - began)) s"
