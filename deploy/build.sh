#!/bin/bash
# Configures build/ with the flags that all commands share, and builds the given targets (all, if
# none is given). Needs deploy/install-deps.sh to have run.
set -euo pipefail
# shellcheck source=deploy/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=$ZEROD_ROOT/build
libtorch=$(libtorch_dir)
[[ -d $libtorch ]] || die "LibTorch is not installed; run deploy/install-deps.sh first"

# A translation unit that includes LibTorch takes up to 1.5 GB.
jobs=$(nproc)
memory_jobs=$(awk '/^MemAvailable:/ {print int($2 / 1500000)}' /proc/meminfo)
if ((memory_jobs < jobs)); then jobs=$((memory_jobs < 1 ? 1 : memory_jobs)); fi

# Lets another clone of the same sources reuse what this one compiled.
export CCACHE_BASEDIR=$ZEROD_ROOT CCACHE_NOHASHDIR=1

mkdir -p "$build"
cmake -S "$ZEROD_ROOT" -B "$build" -G Ninja \
  -DCMAKE_CXX_COMPILER=/usr/bin/g++ -DCMAKE_C_COMPILER=/usr/bin/gcc \
  -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
  -DZEROD_LIBTORCH_DIR="$libtorch" -DZEROD_FAILPOINTS=ON >"$build/configure.log" 2>&1 || {
  cat "$build/configure.log" >&2
  die "cmake could not configure $build"
}
ninja -C "$build" -j "$jobs" "$@"
say "built in $SECONDS s"
