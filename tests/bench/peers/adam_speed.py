"""Time of an AdamW update with one thread: zerod's kernel, DeepSpeedCPUAdam and torch's fused one.

The three take turns for --rounds rounds, so that load from elsewhere falls on all alike; printed
are the median and the best nanoseconds per parameter, as a line of JSON each. zerod's comes from
kernels_bench of the build folder. Needs what compare.sh installs and sets up.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import workload

PYTHON_KINDS = ("deepspeed", "torch")
UPDATES = 9


def time_updates(kind, numel):
    """Seconds of each of UPDATES updates of one tensor, after two that aren't timed."""
    import torch
    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.randn(numel) * 0.02)
    parameter.grad = torch.randn(numel) * 1e-3
    if kind == "deepspeed":
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        optimizer = DeepSpeedCPUAdam([parameter], adamw_mode=True, **workload.ADAM)
    else:
        optimizer = torch.optim.AdamW([parameter], fused=True, **workload.ADAM)
    seconds = []
    for _ in range(UPDATES + 2):
        start = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds[2:]


def python_ns(kind, numel):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu",
                                "CUDA_VISIBLE_DEVICES": ""}
    output = subprocess.run([sys.executable, __file__, "--one", kind, "--numel", str(numel)],
                            env=environment, check=True, capture_output=True, text=True).stdout
    return statistics.median(json.loads(output.splitlines()[-1])) / numel * 1e9


def zerod_ns(build):
    """The fastest of the kernel's variants: the program chooses the best one for the CPU too."""
    program = os.path.join(build, "bin", "kernels_bench")
    output = subprocess.run([program, "--benchmark_filter=^AdamW", "--benchmark_format=json"],
                            check=True, capture_output=True, text=True).stdout
    return {result["name"].removeprefix("AdamW/"): result["s_per_element"] * 1e9
            for result in json.loads(output)["benchmarks"] if "s_per_element" in result}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="zerod's build folder (build)")
    parser.add_argument("--numel", type=int, default=33608704, help="parameters (33608704)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=PYTHON_KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(time_updates(options.one, options.numel)), flush=True)
        return
    found = {}
    for _ in range(options.rounds):
        taken = {kind: python_ns(kind, options.numel) for kind in PYTHON_KINDS}
        taken |= {f"zerod {name}": ns for name, ns in zerod_ns(options.build).items()}
        for name, ns in taken.items():
            found.setdefault(name, []).append(ns)
    for name, ns in found.items():
        print(json.dumps({"adamw": name, "ns_per_parameter": round(statistics.median(ns), 3),
                          "best": round(min(ns), 3)}), flush=True)


if __name__ == "__main__":
    main()
