# shellcheck shell=bash
# Shared by the scripts of deploy/ and tests/; to be sourced, not run.

ZEROD_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ZEROD_CACHE=${XDG_CACHE_HOME:-${HOME:?HOME is not set}/.cache}/zerod

# say TEXT... / die TEXT...: one line that starts with the script's name; die also ends it.
say() { echo "$(basename "$0" .sh): $*"; }
die() {
  echo "$(basename "$0" .sh): $*" >&2
  exit 1
}

# Where LibTorch is unpacked. The name carries the pinned hashes, so that a clone that pins other
# wheels gets a folder of its own and one that pins the same shares it.
libtorch_dir() {
  local version hash
  version=$(sed -n 's/^torch==\([^ ]*\) .*/\1/p' "$ZEROD_ROOT/deploy/wheels.txt")
  hash=$(sha256sum "$ZEROD_ROOT/deploy/wheels.txt")
  echo "$ZEROD_CACHE/libtorch-$version-${hash:0:8}"
}

# missing_packages NAME...: those that dpkg doesn't have, on one line.
missing_packages() {
  local installed package
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "$@" 2>/dev/null || true)"
  for package in "$@"; do
    [[ $installed == *" installed:$package "* ]] || echo -n "$package "
  done
}

# apt_get ARG...: apt-get as root; what it prints goes into the file $apt_log.
apt_get() {
  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || die "needs root or sudo to run apt-get $*"
    as_root=(sudo)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$apt_log" 2>&1
}

# install_packages NAME...: installs what is missing of them, and runs nothing if nothing is.
install_packages() {
  local missing
  missing=$(missing_packages "$@")
  [[ -n $missing ]] || return 0
  command -v apt-get >/dev/null || die "needs Debian 12 (no apt-get here) to install: $missing"
  mkdir -p "$ZEROD_CACHE"
  apt_log=$ZEROD_CACHE/apt.log
  if [[ -z ${apt_updated:-} ]]; then
    : >"$apt_log"
    # A stale list is no reason to give up: the installation below decides.
    apt_get update || true
    apt_updated=1
  fi
  # shellcheck disable=SC2086  # the names are words
  apt_get install --no-install-recommends $missing ||
    die "could not install the Debian packages; check the network and run again" \
      "(details: $apt_log)"
}
