#!/bin/bash
# Shows zerod at work: installs what is missing, builds, starts two daemons and two workers on this
# machine, trains a small GPT-NeoX model from nothing and lets it write.
#
# usage: deploy/quickstart.sh [--text FILE]
#   --text FILE  train on this text instead of the licence texts of /usr/share/common-licenses
set -euo pipefail
# The daemons and workers started here take no settings from outside.
# shellcheck disable=SC2086  # the names are words
unset ${!ZEROD_@}
# shellcheck source=deploy/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

out=$ZEROD_ROOT/build/quickstart
bin=$ZEROD_ROOT/build/bin
loss_limit=2.2  # nats per byte on text that was held out
steps=440
text=""         # empty: the licence texts
scratch=""      # folder of the sockets
pids=()         # what runs in the background

usage() {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
}

# stop_all: ends what is still running, workers before their daemons, first by asking.
stop_all() {
  local i pid
  for ((i = ${#pids[@]} - 1; i >= 0; --i)); do
    pid=${pids[i]}
    kill -TERM "$pid" 2>/dev/null || true
    for _ in {1..50}; do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  pids=()
}

clean_up() {
  trap '' INT TERM
  stop_all
  [[ -z $scratch ]] || rm -rf "$scratch"
}

heading() { printf '\n== %s\n' "$*"; }

# fail LOG... TEXT: ends with the last words of the log files.
fail() {
  local log
  for log in "${@:1:$#-1}"; do
    [[ -s $log ]] || continue
    echo "--- the end of $log:" >&2
    tail -n 5 "$log" >&2
  done
  die "${*: -1}"
}

# start LOG COMMAND...: runs a command in the background; without a LOG its output is ours. In a
# session of its own: Ctrl-C reaches this script alone, which then ends all in order.
start() {
  local log=$1
  shift
  if [[ -n $log ]]; then
    setsid "$@" </dev/null >"$log" 2>&1 &
  else
    setsid "$@" </dev/null &
  fi
  pids+=($!)
}

build() {
  mkdir -p "$out"
  if [[ -t 1 ]]; then
    NINJA_STATUS='[%f/%t] ' "$ZEROD_ROOT/deploy/build.sh" zerod zeroctl zerod-train
  else
    "$ZEROD_ROOT/deploy/build.sh" zerod zeroctl zerod-train >"$out/build.log" 2>&1 ||
      fail "$out/build.log" "the build failed"
  fi
}

# The model and its text.
prepare() {
  cat >"$out/config.json" <<'END'
{
  "model_type": "gpt_neox",
  "vocab_size": 256,
  "hidden_size": 256,
  "num_hidden_layers": 4,
  "num_attention_heads": 4,
  "intermediate_size": 1024,
  "max_position_embeddings": 512,
  "hidden_act": "gelu",
  "rotary_pct": 1.0,
  "use_parallel_residual": true,
  "tie_word_embeddings": false
}
END
  rm -f "$out/train.jsonl"
  if [[ -z $text ]]; then
    text=$out/text.txt
    find /usr/share/common-licenses -type f -print0 | LC_ALL=C sort -z | xargs -0 cat >"$text"
  fi
}

start_daemons() {
  local ports peers node
  ports=$(/usr/bin/python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets))')
  peers=127.0.0.1:${ports/ /,127.0.0.1:}
  scratch=$(mktemp -d)
  for node in 0 1; do
    start "$out/zerod$node.log" "$bin/zerod" --node "$node" --peers "$peers" --ranks 1 \
      --socket "$scratch/$node.sock"
  done
  for node in 0 1; do
    for _ in {1..300}; do
      [[ ! -S $scratch/$node.sock ]] || break
      kill -0 "${pids[node]}" 2>/dev/null || break
      sleep 0.1
    done
    [[ -S $scratch/$node.sock ]] || fail "$out/zerod$node.log" "daemon $node didn't start"
  done
}

# work NAME OPTION...: one worker on each node; rank 0 shows what happens.
work() {
  local log=$out/$1-rank1.log status=0 other_status=0 rank0 rank1
  shift
  local worker=("$bin/zerod-train" --model "$out" --text "$text" --job quickstart
    --batch 8 --seq 64 --steps "$steps" "$@")
  rank0=(env WORLD_SIZE=2 LOCAL_RANK=0 OMP_NUM_THREADS=1 RANK=0 ZEROD_SOCKET="$scratch/0.sock")
  rank1=(env WORLD_SIZE=2 LOCAL_RANK=0 OMP_NUM_THREADS=1 RANK=1 ZEROD_SOCKET="$scratch/1.sock")
  start "$log" "${rank1[@]}" "${worker[@]}"
  start "" "${rank0[@]}" "${worker[@]}"
  wait "${pids[-1]}" || status=$?
  unset "pids[-1]"
  ((status == 0)) || kill -TERM "${pids[-1]}" 2>/dev/null || true
  wait "${pids[-1]}" || other_status=$?
  unset "pids[-1]"
  ((status == 0)) || fail "$log" "$out"/zerod?.log "rank 0 ended with code $status; logs: $out"
  ((other_status == 0)) || fail "$log" "rank 1 ended with code $other_status; logs: $out"
}

ctl() { "$bin/zeroctl" --address "unix:$scratch/$1.sock" "${@:2}"; }

last_eval_loss() {
  awk -F'"eval_loss":' 'NF > 1 { loss = sprintf("%.3f", $2) } END { print loss }' "$out/train.jsonl"
}

while (($# > 0)); do
  case $1 in
    --text) [[ $# -ge 2 ]] || die "--text needs a file"
      text=$(realpath "$2")
      [[ -f $text && -r $text ]] || die "--text: $2 is no file that can be read"
      shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown option $1; --help lists them" ;;
  esac
done

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

heading "set-up"
phase=$SECONDS
"$ZEROD_ROOT/deploy/install-deps.sh"
set_up_s=$((SECONDS - phase))

heading "build"
phase=$SECONDS
build
build_s=$((SECONDS - phase))

heading "training: two daemons, one worker on each, sharded with ZeRO-3"
phase=$SECONDS
prepare
start_daemons
work train --lr 1e-3 --warmup 20 --beta2 0.99 --weight-decay 0.5 --clip 1 --shuffle 1 \
  --eval-every 110 --log "$out/train.jsonl"
train_s=$((SECONDS - phase))

heading "the workers have ended; the daemons keep the model (zeroctl status, shards, memory)"
ctl 0 status
for node in 0 1; do
  echo
  echo "node $node:"
  ctl "$node" shards quickstart
done
echo
ctl 0 memory quickstart

heading "new workers attach to the job and let the model write"
work sample --attach --sample "The licence " --sample-tokens 200 --sample-temperature 0.5

loss=$(last_eval_loss)
heading "done"
echo "set-up $set_up_s s, build $build_s s, training $train_s s"
echo "held-out loss ${loss:-unknown} nats per byte; every step is in $out/train.jsonl"
# What another text can reach isn't known.
if [[ $text == "$out/text.txt" ]]; then
  awk -v loss="${loss:-99}" -v limit="$loss_limit" 'BEGIN { exit !(loss < limit) }' ||
    die "the held-out loss should have come below $loss_limit"
fi
