#!/bin/bash
# Sets up, builds and runs every test. Arguments go to ctest: tests/run.sh -R tidy -V
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/deploy/install-deps.sh"
"$root/deploy/build.sh"
exec ctest --test-dir "$root/build" --output-on-failure --no-tests=error -j "$(nproc)" "$@"
