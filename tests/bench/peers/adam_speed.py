"""Time of an AdamW update with one thread: zerod's kernel, DeepSpeedCPUAdam and torch's fused one.

The three take turns for --rounds rounds, so that load from elsewhere falls on all alike. Printed is
one line of JSON: the median nanoseconds per parameter of each, and the medians over the rounds of
zerod's time divided by the peers'. zerod's comes from kernels_bench of the build folder. Exit code:
0, or 1 when zerod is slower than DeepSpeed. Runs in the Python environment that compare.sh makes.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

UPDATES = 5


def set_environment():
    """What the peers read when they are imported. DeepSpeed's compiled code is where compare.sh
    put it: elsewhere it would be compiled again, for a minute or more and without a word."""
    os.environ |= {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "",
                   "DS_BUILD_OPS": "0", "TORCH_EXTENSIONS_DIR": os.path.join(sys.prefix, "ops"),
                   "PATH": os.path.join(sys.prefix, "bin") + os.pathsep + os.environ["PATH"]}


def make_peers(numel):
    """The peers' optimizers of one and the same parameter, by name; each has made two updates."""
    import torch
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    import workload
    torch.set_num_threads(1)
    torch.manual_seed(1)
    parameter = torch.nn.Parameter(torch.randn(numel) * 0.02)
    parameter.grad = torch.randn(numel) * 1e-3
    peers = {"deepspeed": DeepSpeedCPUAdam([parameter], adamw_mode=True, **workload.ADAM),
             "torch_fused": torch.optim.AdamW([parameter], fused=True, **workload.ADAM)}
    for optimizer in peers.values():
        optimizer.step()
        optimizer.step()
    return peers


def peer_ns(optimizer, numel):
    seconds = []
    for _ in range(UPDATES):
        start = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) / numel * 1e9


def zerod_ns(build):
    """Of the kernel, the pages and the grain that the daemon uses on this machine."""
    program = os.path.join(build, "bin", "kernels_bench")
    output = subprocess.run([program, "--benchmark_filter=^AdamW/as_in_daemon$",
                             "--benchmark_min_time=0.25", "--benchmark_format=json"],
                            check=True, capture_output=True, text=True).stdout
    return json.loads(output)["benchmarks"][0]["s_per_element"] * 1e9


def summary(rounds):
    medians = {name: round(statistics.median(one[name] for one in rounds), 3)
               for name in rounds[0]}
    ratios = {name: round(statistics.median(one["zerod"] / one[name] for one in rounds), 3)
              for name in rounds[0] if name != "zerod"}
    return {"adamw_ns_per_parameter": medians, "zerod_to": ratios, "rounds": len(rounds),
            "verdict": "ok" if ratios["deepspeed"] <= 1 else "slower"}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="zerod's build folder (build)")
    parser.add_argument("--numel", type=int, default=33600000,
                        help="the peers' parameters; zerod's are 33600000 (33600000)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    set_environment()
    peers = make_peers(options.numel)
    rounds = []
    for _ in range(options.rounds):
        taken = {"zerod": zerod_ns(options.build)}
        taken |= {name: peer_ns(peer, options.numel) for name, peer in peers.items()}
        rounds.append(taken)
    result = summary(rounds)
    print(json.dumps(result), flush=True)
    sys.exit(result["verdict"] != "ok")


if __name__ == "__main__":
    main()
