"""Options, folders and the report that all runners share."""
import argparse
import contextlib
import importlib.metadata
import json
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time

import proc
import workload


def parser(doc):
    """The options of every runner; `doc` becomes the description in --help."""
    made = argparse.ArgumentParser(description=doc,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--checkpoint", required=True,
                      help="folder with config.json and model.safetensors (see prepare.py)")
    made.add_argument("--tokens", required=True, help="token file (see prepare.py)")
    made.add_argument("--preset", default="bench33m", choices=workload.PRESETS)
    made.add_argument("--ranks", type=int, default=2, dest="world", help="processes that train (2)")
    made.add_argument("--micro-batch", type=int, default=1, help="samples per rank and step (1)")
    made.add_argument("--seq", type=int, default=128, help="tokens per sample (128)")
    made.add_argument("--warmup", type=int, default=5, help="steps before the measured ones (5)")
    made.add_argument("--steps", type=int, default=15, help="measured steps (15)")
    made.add_argument("--memory", action="store_true",
                      help="measure node_memory_mb; the sampling disturbs the speed")
    return made


@contextlib.contextmanager
def scratch_folder():
    """A short-lived folder with a path short enough for sockets."""
    folder = tempfile.mkdtemp(prefix="zbench.", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count):
    """Ports of the loopback interface that were free a moment ago."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def meet(folder, label, me, expected, patience_s=600):
    """Returns when everyone in `expected` has called this with the same label."""
    open(os.path.join(folder, f"{label}.{me}"), "w").close()
    await_arrival(folder, label, expected, patience_s=patience_s)


def await_arrival(folder, label, expected, check=lambda: None, patience_s=600):
    """Waits without taking part; `check` is called in between and may throw."""
    deadline = time.monotonic() + patience_s
    missing = set(expected)
    while missing:
        missing = {who for who in missing
                   if not os.path.exists(os.path.join(folder, f"{label}.{who}"))}
        check()
        if missing and time.monotonic() > deadline:
            raise proc.RunFailed(f"waited {patience_s} s for {missing} at '{label}'")
        if missing:
            time.sleep(0.002)


def summary(options, ranks):
    """The numbers that follow from the ranks' records, each a dict with a list per step.

    step_ms and cpu_ms have a value per step of the rank, sent_bytes of the node, loss of the rank.
    """
    measured = slice(options.warmup, None)
    medians = [statistics.median(rank["step_ms"][measured]) for rank in ranks]
    every = sorted(ms for rank in ranks for ms in rank["step_ms"][measured])
    batches = ranks[0].get("batches_per_step", 1)
    tokens = options.micro_batch * options.seq * batches
    return {
        "tokens_per_s": round(sum(tokens * 1e3 / ms for ms in medians), 1),
        "step_ms": round(statistics.mean(medians), 2),
        "step_ms_p90": round(every[round(0.9 * (len(every) - 1))], 2),
        "cpu_ms": round(statistics.mean(
            statistics.median(rank["cpu_ms"][measured]) for rank in ranks), 2),
        "sent_mb_per_rank_step": round(
            statistics.median(ranks[0]["sent_bytes"][measured]) / options.world / 1e6, 3),
        "losses": [round(statistics.mean(step), 7) for step in zip(*(r["loss"] for r in ranks))],
    }


def describe(system, options, packages=()):
    """Which system ran and with what."""
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {"system": system, "versions": versions, "ranks": options.world,
            "preset": options.preset, "micro_batch": options.micro_batch, "seq": options.seq,
            "warmup": options.warmup, "steps": options.steps}


def execute(body):
    """Calls `body()`, which returns the report, and prints that as one line of JSON with the load.

    A failed run is one message on stderr and exit code 1.
    """
    meter = proc.LoadMeter()
    try:
        report = body()
    except proc.RunFailed as failure:
        sys.exit(f"{sys.argv[0]}: {failure}")
    report["other_cpu"] = round(meter.other_cores(), 2)
    print(json.dumps(report), flush=True)
