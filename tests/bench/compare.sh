#!/bin/bash
# Compares zerod with FSDP2, DeepSpeed ZeRO-3, DDP and the compute limit: compare.sh --help.
# The first run installs the peers (about 5 GB) into the user's cache folder, or into
# $ZEROD_BENCH_VENV. zerod itself must be built: deploy/build.sh.
set -euo pipefail
bench=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=deploy/common.sh
source "$bench/../../deploy/common.sh"
venv=${ZEROD_BENCH_VENV:-$ZEROD_CACHE/bench-venv}

for argument in "$@"; do
  case $argument in
    -h | --help) exec /usr/bin/python3 "$bench/compare.py" --help ;;
  esac
done

# DeepSpeed compiles what it needs of its CPU code with ninja, once, into $venv/ops.
export DS_BUILD_OPS=0 DS_ACCELERATOR=cpu TORCH_EXTENSIONS_DIR=$venv/ops PATH=$venv/bin:$PATH

if ! cmp -s "$bench/peers/requirements.txt" "$venv/complete"; then
  echo "installing the peers into $venv (a few minutes, 5 GB)" >&2
  # A venv gets a pip of its own only where python3-venv is installed; Debian's pip serves as well.
  /usr/bin/python3 -m venv --without-pip "$venv"
  /usr/bin/python3 -m pip --python "$venv/bin/python" install --disable-pip-version-check \
    --no-input --progress-bar off --quiet -r "$bench/peers/requirements.txt"
  python >&2 - <<'END'
from deepspeed.accelerator import get_accelerator
for name in "CPUAdamBuilder", "ShareMemCommBuilder":
    get_accelerator().create_op_builder(name).load()
END
  cp "$bench/peers/requirements.txt" "$venv/complete"
fi
exec "$venv/bin/python" "$bench/compare.py" "$@"
