"""Compares zerod with today's Python systems on one machine, on the same model, data and steps.

Every round runs every system once, in turn, so that what else the machine does falls on all alike.
Ratios to the limit are taken within a round; the table shows the median over the rounds and, in
brackets, their range. A run during which other processes used more than --max-other cores is
repeated, and the least disturbed one of the tries counts.

The limit is as many independent processes as there are ranks, without communication. Node memory
comes from a separate run: the highest sum of PSS over all processes, workers and daemons, minus the
sum before the model. The first step is timed from the start of the first process.

A comparison is void when a loss differs too much at any step from a single process that computes
the mean gradient of all ranks and sums its norm in float64: by 1e-5, or 3e-4 for systems that sum
the norm in float32. At the end the AdamW updates alone are compared (peers/adam_speed.py). Exit
code: 0, or 1 when something was void or failed or zerod's AdamW is slower than DeepSpeed's, 2 for
wrong options.
"""
import argparse
import collections
import json
import math
import os
import signal
import statistics
import subprocess
import sys

BENCH = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(BENCH, "peers")
RUN_LIMIT_S = 3600

System = collections.namedtuple("System", "runner options daemons loss_tolerance")
SYSTEMS = {
    "limit": System("run_limit.py", [], 0, None),
    "ddp": System("run_ddp.py", [], 0, 3e-4),
    "fsdp2": System("run_fsdp2.py", [], 0, 3e-4),
    "deepspeed": System("run_deepspeed.py", [], 0, 3e-4),
    "deepspeed-layer": System("run_deepspeed.py", ["--sizes", "layer"], 0, 3e-4),
    "zerod": System("run_zerod.py", ["--daemons", "1"], 1, 1e-5),
    "zerod-2node": System("run_zerod.py", ["--daemons", "2"], 2, 1e-5),
}
DEFAULT_SYSTEMS = "limit,ddp,fsdp2,deepspeed,zerod,zerod-2node"


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- one run


def run_once(runner, arguments, accepted=(0,)):
    """Runs a runner to its end; its report, or None (and a message) when it failed."""
    command = [sys.executable, os.path.join(PEERS, runner), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired:
        errors = f"{runner} didn't end within {RUN_LIMIT_S} s"
    finally:
        if process.poll() is None:
            process.terminate()  # it ends its own processes
            process.wait()
    if process.returncode not in accepted or not output.strip():
        say(errors.strip())
        return None
    return json.loads(output.splitlines()[-1])


def common_arguments(options, point):
    micro_batch, seq = point
    return ["--checkpoint", options.checkpoint, "--tokens", options.tokens,
            "--preset", options.preset, "--micro-batch", micro_batch, "--seq", seq]


def system_arguments(options, point, name):
    arguments = [*common_arguments(options, point), *SYSTEMS[name].options, "--ranks",
                 options.ranks, "--steps", options.steps, "--warmup", options.warmup]
    if SYSTEMS[name].daemons:
        arguments += ["--build", options.build]
    return arguments


def run_undisturbed(options, point, name):
    """The first run with little outside load, else the least disturbed of all tries."""
    tries = []
    for _ in range(1 + options.retries):
        report = run_once(SYSTEMS[name].runner, system_arguments(options, point, name))
        if report is None:
            return None
        tries.append(report)
        say(f"  {name}: {report['tokens_per_s']} tokens/s, others used {report['other_cpu']} cores")
        if report["other_cpu"] <= options.max_other:
            break
    return min(tries, key=lambda report: report["other_cpu"])


def reference_losses(options, point):
    """Losses of every step from the single process that emulates all ranks."""
    report = run_once("run_limit.py", [
        *common_arguments(options, point), "--ranks", 1, "--emulate", options.ranks,
        "--norm", "float64", "--warmup", 0, "--steps", options.warmup + options.steps])
    if report is None:
        sys.exit("the loss reference failed, so nothing can be compared")
    return report["losses"]


def deviation(report, reference):
    """Largest difference of a loss over all steps; infinite when one is missing or not a number."""
    losses = report["losses"]
    if len(losses) != len(reference) or not all(map(math.isfinite, losses)):
        return math.inf
    return max(abs(loss - expected) for loss, expected in zip(losses, reference))


# ---- one point


def measure_point(options, point):
    """All systems at one (micro-batch, sequence); a list of result rows."""
    say(f"micro-batch {point[0]}, sequence {point[1]}: loss reference")
    reference = reference_losses(options, point)
    rounds = []
    for index in range(options.rounds):
        say(f"micro-batch {point[0]}, sequence {point[1]}: round {index + 1} of {options.rounds}")
        rounds.append({name: run_undisturbed(options, point, name) for name in options.systems})
    rows = []
    for name in options.systems:
        memory_mb = None if options.no_memory else node_memory_mb(options, point, name)
        row = make_row(options, point, name, rounds, reference) | {"node_memory_mb": memory_mb}
        if memory_mb is None and not options.no_memory:
            row["verdict"] = "failed"
        rows.append(row)
    return rows


def node_memory_mb(options, point, name):
    report = run_once(SYSTEMS[name].runner, [*system_arguments(options, point, name), "--memory"])
    if report is None:
        return None
    say(f"  {name}: {report['node_memory_mb']} MB of node memory")
    return report["node_memory_mb"]


def make_row(options, point, name, rounds, reference):
    """The result of a system at a point, but for its memory; numbers are None if void or failed."""
    row = dict.fromkeys(("tokens_per_s", "ratio_to_limit", "ratio_range", "step_ms", "cpu_ms",
                         "sent_mb_per_rank_step", "first_step_s", "max_loss_deviation",
                         "other_cpu"))
    row |= {"system": name, "daemons": SYSTEMS[name].daemons, "ranks": options.ranks,
            "micro_batch": point[0], "seq": point[1], "rounds": len(rounds), "verdict": "ok"}
    reports = [one[name] for one in rounds]
    if None in reports:
        return row | {"verdict": "failed"}
    row["other_cpu"] = max(report["other_cpu"] for report in reports)
    tolerance = SYSTEMS[name].loss_tolerance
    if tolerance is not None:
        worst = max(deviation(report, reference) for report in reports)
        row["max_loss_deviation"] = worst if math.isfinite(worst) else None
        if worst > tolerance:
            return row | {"verdict": "void"}
    for key in ("tokens_per_s", "step_ms", "cpu_ms", "sent_mb_per_rank_step", "first_step_s"):
        row[key] = round(statistics.median(report[key] for report in reports), 3)
    ratios = [one[name]["tokens_per_s"] / one["limit"]["tokens_per_s"]
              for one in rounds if one.get("limit")]
    if ratios:
        row["ratio_to_limit"] = round(statistics.median(ratios), 3)
        row["ratio_range"] = [round(min(ratios), 3), round(max(ratios), 3)]
    return row


def measure_adamw(options):
    """A result row of another kind: AdamW's time per parameter, of zerod and of the peers."""
    say("AdamW alone")
    # Exit code 1 comes with a result when zerod is slower.
    row = run_once("adam_speed.py", ["--build", options.build, "--rounds", options.rounds + 2],
                   accepted=(0, 1))
    return row or {"adamw_ns_per_parameter": None, "verdict": "failed"}


# ---- output


def print_table(point, rows, options):
    print(f"\n{options.preset}, {options.ranks} ranks with 1 thread each, micro-batch {point[0]}, "
          f"sequence {point[1]}; {options.rounds} rounds of {options.steps} steps "
          f"after {options.warmup}\n")
    print("| system | tokens/s | ratio to the limit | step ms | node memory MB | to FSDP2's "
          "| first step s | loss deviation | note |")
    print("|---|---|---|---|---|---|---|---|---|")
    fsdp2_mb = next((row["node_memory_mb"] for row in rows if row["system"] == "fsdp2"), None)
    for row in rows:
        print("| " + " | ".join(table_cells(row, fsdp2_mb, options)) + " |", flush=True)


def table_cells(row, fsdp2_mb, options):
    def cell(value, form):
        return "–" if value is None else form.format(value)

    ratio = cell(row["ratio_to_limit"], "{:.3f}")
    if row["ratio_range"] and options.rounds > 1:
        ratio += " [{:.3f}–{:.3f}]".format(*row["ratio_range"])
    memory_mb = row["node_memory_mb"]
    notes = []
    if row["verdict"] == "void":
        notes.append("VOID: the losses differ")
    elif row["verdict"] == "failed":
        notes.append("FAILED")
    if row["other_cpu"] is not None and row["other_cpu"] > options.max_other:
        notes.append(f"disturbed: others used up to {row['other_cpu']} cores")
    return [row["system"], cell(row["tokens_per_s"], "{:.0f}"), ratio,
            cell(row["step_ms"], "{:.0f}"), cell(memory_mb, "{:.0f}"),
            cell(memory_mb / fsdp2_mb if memory_mb and fsdp2_mb else None, "{:.2f}"),
            cell(row["first_step_s"], "{:.1f}"), cell(row["max_loss_deviation"], "{:.1e}"),
            "; ".join(notes)]


def print_adamw(row):
    """One line below the tables."""
    taken = row["adamw_ns_per_parameter"]
    if taken is None:
        print("\nAdamW: FAILED", flush=True)
        return
    print("\nAdamW, 1 thread, ns per parameter: "
          + ", ".join(f"{name} {ns:.2f}" for name, ns in taken.items())
          + "; zerod to DeepSpeed's {:.2f}".format(row["zerod_to"]["deepspeed"])
          + (" (SLOWER)" if row["verdict"] == "slower" else ""), flush=True)


def write_json(options, rows):
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


def points(text):
    """A list of (micro-batch, sequence) from "1x64,4x128"."""
    found = [tuple(map(int, point.split("x"))) for point in text.split(",")]
    if any(len(point) != 2 or min(point) < 1 for point in found):
        raise ValueError
    return found


def known_systems(text):
    names = text.split(",")
    for name in names:
        if name not in SYSTEMS:
            raise argparse.ArgumentTypeError(f"there is no system '{name}'")
    return names


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, prog="compare.sh",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", default="1x64,1x128,4x128,8x128", metavar="BxT,...",
                        type=points, help="micro-batch x sequence (1x64,1x128,4x128,8x128)")
    parser.add_argument("--systems", default=DEFAULT_SYSTEMS, type=known_systems, metavar="A,B,...",
                        help=f"any of {', '.join(SYSTEMS)} (default: {DEFAULT_SYSTEMS})")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each system (3)")
    parser.add_argument("--steps", type=int, default=15, help="measured steps of a run (15)")
    parser.add_argument("--warmup", type=int, default=5, help="steps before those, at least 1 (5)")
    parser.add_argument("--ranks", type=int, default=2, help="processes that train (2)")
    parser.add_argument("--preset", default="bench33m", help="bench33m (default) or tiny1m")
    parser.add_argument("--build", default=os.path.join(BENCH, "..", "..", "build"),
                        help="zerod's build folder (build/ at the top)")
    parser.add_argument("--json", metavar="FILE",
                        help="write the results here as a list, AdamW alone as its last entry")
    parser.add_argument("--no-memory", action="store_true", help="leave out the memory runs")
    parser.add_argument("--no-adamw", action="store_true", help="leave out AdamW alone")
    parser.add_argument("--max-other", type=float, default=0.2, metavar="CORES",
                        help="cores that other processes may use during a run (0.2)")
    parser.add_argument("--retries", type=int, default=2,
                        help="how often a disturbed run is repeated (2)")
    options = parser.parse_args()
    if min(options.rounds, options.steps, options.warmup, options.ranks) < 1:
        parser.error("--rounds, --steps, --warmup and --ranks must be at least 1")
    return options


def prepare(options):
    """Makes checkpoint and tokens in the cache folder and adds their places to the options."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    options.checkpoint = os.path.join(cache, "zerod", "bench-data", options.preset)
    options.tokens = os.path.join(options.checkpoint, "tokens.bin")
    subprocess.run([sys.executable, os.path.join(PEERS, "prepare.py"), options.checkpoint,
                    "--preset", options.preset], check=True, stdout=sys.stderr)


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    prepare(options)
    rows = []
    for point in options.points:
        found = measure_point(options, point)
        print_table(point, found, options)
        rows += found
        write_json(options, rows)
    if not options.no_adamw:
        rows.append(measure_adamw(options))
        print_adamw(rows[-1])
        write_json(options, rows)
    bad = [row for row in rows if row["verdict"] != "ok"]
    if bad:
        sys.exit(f"{len(bad)} of {len(rows)} comparisons are void, failed or slower")


if __name__ == "__main__":
    main()
