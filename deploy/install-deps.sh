#!/bin/bash
# Installs all that building, running and testing zerod needs on Debian 12: packages, and LibTorch
# into the user's cache folder. Safe to run again: what is there is left alone.
set -euo pipefail
# shellcheck source=deploy/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

download_packages=(ca-certificates python3-pip unzip)
build_packages=(
  g++ cmake ninja-build ccache git pkg-config
  libgrpc++-dev libgrpc-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
  libgloo-dev libspdlog-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev)

# The files of the wheels that are kept. libtorch_cpu.so finds the two CUDA libraries, which it only
# needs to load, through its own run path in nvidia/cu13/lib beside torch/.
libtorch_files=(
  'torch/include/*' torch/lib/libtorch_cpu.so torch/lib/libc10.so torch/lib/libgomp.so.1
  nvidia/cu13/lib/libcudart.so.13 nvidia/cu13/lib/libcupti.so.13)

libtorch=$(libtorch_dir)
stage=""
fetcher=""

clean_up() {
  # The minus: pip and unzip too.
  [[ -z $fetcher ]] || kill -- "-$fetcher" 2>/dev/null || true
  [[ -z $stage ]] || rm -rf "$stage"
}

# Downloads the pinned wheels into $stage. A connection that breaks in the middle is not retried by
# pip itself.
download_wheels() {
  for _ in 1 2; do
    TMPDIR=$stage /usr/bin/python3 -m pip download --no-deps --only-binary=:all: --require-hashes \
      --no-cache-dir --disable-pip-version-check --no-input --progress-bar off \
      -d "$stage/wheels" -r "$ZEROD_ROOT/deploy/wheels.txt" \
      </dev/null >"$ZEROD_CACHE/pip.log" 2>&1 && return 0
  done
  return 1
}

# Downloads and unpacks LibTorch, then moves it to its place in one step: a folder of that name is
# always complete. Runs in the background.
fetch_libtorch() {
  local wheel
  mkdir -p "$stage/wheels" "$stage/libtorch"
  download_wheels || return 1
  for wheel in "$stage"/wheels/*.whl; do
    # unzip answers 11 where a pattern matches nothing in this wheel.
    unzip -q "$wheel" "${libtorch_files[@]}" -d "$stage/libtorch" 2>/dev/null || [[ $? == 11 ]] ||
      return 2
    rm "$wheel"
  done
  [[ -f $stage/libtorch/torch/lib/libtorch_cpu.so ]] || return 2
  mv -T "$stage/libtorch" "$libtorch"
}

start_libtorch() {
  mkdir -p "$ZEROD_CACHE"
  exec {lock}>"$ZEROD_CACHE/lock"
  if ! flock -n "$lock"; then
    say "waiting for another installation to finish"
    flock "$lock"
    [[ ! -d $libtorch ]] || return 0
  fi
  say "LibTorch: downloading 540 MB in the background"
  stage=$(mktemp -d "$ZEROD_CACHE/install.XXXXXX")
  set -m  # a process group of its own, see clean_up
  fetch_libtorch &
  fetcher=$!
  set +m
}

finish_libtorch() {
  local status=0
  wait "$fetcher" || status=$?
  fetcher=""
  case $status in
    0) ;;
    1) die "could not download the LibTorch wheels of deploy/wheels.txt; check the network and" \
      "the configuration of pip, then run again (details: $ZEROD_CACHE/pip.log)" ;;
    *) die "could not unpack the LibTorch wheels; is the disk of $ZEROD_CACHE full?" ;;
  esac
  if ldd "$libtorch/torch/lib/libtorch_cpu.so" | grep -q 'not found'; then
    die "LibTorch in $libtorch lacks a library:" \
      "$(ldd "$libtorch/torch/lib/libtorch_cpu.so" | grep 'not found' | head -1)"
  fi
}

[[ $(uname -sm) == "Linux x86_64" ]] || die "needs Linux on x86-64, this is $(uname -sm)"
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

missing=$(missing_packages "${download_packages[@]}" "${build_packages[@]}")
if [[ ! -d $libtorch ]]; then
  install_packages "${download_packages[@]}"
  start_libtorch
fi
if [[ -n $missing ]]; then
  say "Debian packages: installing $(wc -w <<<"$missing")"
  install_packages "${download_packages[@]}" "${build_packages[@]}"
fi
[[ -z $fetcher ]] || finish_libtorch
say "Debian packages and LibTorch ($libtorch) are there after $SECONDS s"
