"""Runs a Python system as one process per rank and reports what it cost.

A runner calls main() at its end. Without RANK in the environment it is the launcher, which starts
itself once per rank; with RANK it is one of those, which calls build(options) for a function
step(inputs, targets) -> loss and times that. All ranks begin step 0 together.
"""
import json
import os
import sys
import time

import proc
import run
import workload

THREADS = "1"


class System:
    """What main() needs to know of a system.

    build     build(options) -> step function; options also carries rank (and world)
    imports   does the system's own imports, so that they count into the base
    package   its distribution, whose version is reported too
    batches   micro-batches that one process computes per step (the emulation has several)
    """

    def __init__(self, name, build, imports=lambda: None, package="torch", batches=1):
        self.name, self.build, self.imports = name, build, imports
        self.package, self.batches = package, batches


def main(system, options):
    if "RANK" in os.environ:
        options.rank = int(os.environ["RANK"])
        _train(system, options, os.environ["BENCH_FOLDER"])
    else:
        run.execute(lambda: _launch(system, options))


def _launch(system, options):
    with run.scratch_folder() as folder, proc.Family(folder) as family:
        names = [f"rank{rank}" for rank in range(options.world)]
        _start_ranks(family, names, folder, options)
        watch = proc.MemoryWatch(family)
        if options.memory:
            run.await_arrival(folder, "imported", range(options.world),
                              check=lambda: family.running(names))
            watch.set_base()
            run.meet(folder, "imported", "launcher", [])
        while family.running(names):
            if options.memory:
                watch.sample()
            time.sleep(0.02)
        records = []
        for name in names:
            with open(os.path.join(folder, name + ".json")) as file:
                records.append(json.load(file))
        report = run.describe(system.name, options, {"torch", "transformers", system.package})
        report |= {"daemons": 0, **run.summary(options, records), **_memory(records)}
        if options.memory:
            report["node_memory_mb"] = round(watch.above_base_mb(), 1)
            report["peak_anon_mb"] = [round(mb, 1) for mb in watch.peak_anon_mb.values()]
        return report


def _start_ranks(family, names, folder, options):
    (port,) = run.free_ports(1)
    environment = os.environ | {
        "WORLD_SIZE": str(options.world), "LOCAL_WORLD_SIZE": str(options.world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": THREADS, "MKL_NUM_THREADS": THREADS, "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
        "BENCH_FOLDER": folder}
    for rank, name in enumerate(names):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "BENCH_START": repr(time.time())}
        family.start(name, [sys.executable, *sys.argv], environment | own)


def _memory(records):
    """Memory per rank as the ranks saw it, and the times until they were ready."""
    def each(*keys):
        return [round(record[keys[0]][keys[1]], 1) for record in records]
    return {
        "base_rss_mb": each("base", "VmRSS"), "base_anon_mb": each("base", "RssAnon"),
        "peak_rss_mb": [round(max(r["built"]["VmHWM"], r["end"]["VmHWM"]), 1) for r in records],
        "end_anon_mb": each("end", "RssAnon"), "end_pss_mb": each("end", "Pss"),
        "import_s": round(max(record["import_s"] for record in records), 2),
        "model_ready_s": round(max(record["model_ready_s"] for record in records), 2),
        "first_step_s": round(max(record["first_step_s"] for record in records), 2)}


def _train(system, options, folder):
    """The life of one rank; leaves its record in the folder."""
    started = float(os.environ["BENCH_START"])
    import torch
    from transformers.models.gpt_neox import modeling_gpt_neox  # noqa: F401
    system.imports()
    torch.set_num_threads(int(THREADS))
    record = {"import_s": time.time() - started, "base": proc.status_mb(),
              "batches_per_step": system.batches}
    if options.memory:
        run.meet(folder, "imported", options.rank, ["launcher"])
    step = system.build(options)
    record |= {"model_ready_s": time.time() - started, "built": proc.status_mb()}
    proc.forget_peak()
    run.meet(folder, "built", options.rank, range(options.world))
    record |= _time_steps(step, workload.TokenFile(options.tokens), options)
    record["first_step_s"] = record.pop("first_step_end") - started
    record["end"] = proc.status_mb() | {"Pss": proc.pss_mb()}
    with open(os.path.join(folder, f"rank{options.rank}.json"), "w") as file:
        json.dump(record, file)
    # Nobody may leave while another still communicates; then skip teardown, which can hang.
    run.meet(folder, "trained", options.rank, range(options.world))
    sys.stdout.flush()
    os._exit(0)


def _time_steps(step, tokens, options):
    record = {"step_ms": [], "cpu_ms": [], "sent_bytes": [], "loss": []}
    for index in range(options.warmup + options.steps):
        batch = tokens.batch(index, options.rank, options)
        sent, cpu, wall = proc.loopback_sent_bytes(), time.process_time(), time.perf_counter()
        loss = step(*batch)
        record["step_ms"].append((time.perf_counter() - wall) * 1e3)
        record["cpu_ms"].append((time.process_time() - cpu) * 1e3)
        record["sent_bytes"].append(proc.loopback_sent_bytes() - sent)
        record["loss"].append(float(loss))
        record.setdefault("first_step_end", time.time())
    return record
