#!/bin/bash
# What is too slow for the normal suite: the format, clang-tidy with the thread-safety analysis, a
# build without warnings in which each header compiles alone, and the tests without LibTorch under
# AddressSanitizer with UBSan and under ThreadSanitizer. Steps: format, tidy, warnings, address,
# thread; all without arguments. Clean whenever an issue is closed.
set -euo pipefail
# shellcheck source=deploy/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../deploy/common.sh"
cd "$ZEROD_ROOT"

export CCACHE_BASEDIR=$ZEROD_ROOT CCACHE_NOHASHDIR=1
jobs=$(nproc)

# configure FOLDER ARG...: quiet unless it fails.
configure() {
  local folder=$1
  shift
  mkdir -p "$folder"
  cmake -S . -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER=/usr/bin/g++ \
    -DCMAKE_C_COMPILER=/usr/bin/gcc -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@" \
    >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log" >&2
    die "cmake could not configure $folder"
  }
}

sources() {
  find proto client server worker tests \( "${@}" \) -type f | sort
}

lint_format() {
  sources -name '*.h' -o -name '*.cc' | xargs clang-format-14 --dry-run --Werror
}

# One parse per file for clang-tidy and for clang's thread-safety analysis, which is a warning. In a
# folder of its own: clang takes g++'s precompiled header for a broken one.
lint_tidy() {
  configure build-tidy -DZEROD_LIBTORCH_DIR="$(libtorch_dir)" \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON
  # The generated headers must be there to be included.
  ninja -C build-tidy -j "$jobs" -t targets all | sed -n 's/^\(generated\/.*\.pb\.h\): .*/\1/p' |
    xargs -r ninja -C build-tidy -j "$jobs"
  sources -name '*.cc' -not -path 'tests/sanitize/*' |
    xargs -P "$jobs" -n 1 clang-tidy-14 --quiet -p build-tidy \
      --extra-arg=-Wthread-safety --extra-arg=-Wno-unknown-warning-option
}

lint_warnings() {
  configure build-lint -DZEROD_LIBTORCH_DIR="$(libtorch_dir)" -DZEROD_WERROR=ON \
    -DCMAKE_VERIFY_INTERFACE_HEADER_SETS=ON
  ninja -C build-lint -j "$jobs" all all_verify_interface_header_sets
}

# lint_sanitized KIND: the daemon, the client and their tests; what needs LibTorch isn't in there.
lint_sanitized() {
  configure "build-$1" -DZEROD_SANITIZE="$1" -DZEROD_WORKER=OFF
  ninja -C "build-$1" -j "$jobs"
  ctest --test-dir "build-$1" --output-on-failure --no-tests=error -E tidy -j "$jobs"
}

lint_address() {
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
    UBSAN_OPTIONS=print_stacktrace=1 lint_sanitized address
}

lint_thread() {
  TSAN_OPTIONS=suppressions=$ZEROD_ROOT/tests/sanitize/thread.supp:second_deadlock_stack=1 \
    lint_sanitized thread
}

deploy/install-deps.sh
install_packages clang-14 clang-tidy-14 clang-format-14
if (($# == 0)); then set -- format tidy warnings address thread; fi
failed=()
for step in "$@"; do
  declare -F "lint_$step" >/dev/null || die "no step $step; there are format, tidy, warnings," \
    "address and thread"
  started=$SECONDS
  # In a shell of its own, where set -e holds although the result is asked for.
  set +e
  (set -e; "lint_$step")
  status=$?
  set -e
  ((status == 0)) || failed+=("$step")
  say "$step: $( ((status == 0)) && echo clean || echo FAILED) after $((SECONDS - started)) s"
done
((${#failed[@]} == 0)) || die "not clean: ${failed[*]}"
say "all clean"
