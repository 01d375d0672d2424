"""zerod: daemons and one zerod-train per rank, from a build folder, on private sockets and ports.

--daemons 1 puts all ranks on one node, where parameters never leave shared memory. --daemons 2
gives each of two daemons half of the ranks; they talk over the loopback interface.
"""
import collections
import json
import os
import signal
import time

import proc
import run
import workload

POLL_S = 0.003
# step_ms comes from zerod-train; the steps' total must account for this much of the time that
# passes on our clock, or work would be done outside of what is timed.
MIN_ACCOUNTED = 0.9


def find_program(build, name):
    """The program in a build folder, wherever the build puts it."""
    for folder in ("bin", ""):
        path = os.path.abspath(os.path.join(build, folder, name))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise proc.RunFailed(f"there is no program {name} in {build}: build first, or give --build")


def clean_environment(**settings):
    """Our environment without the caller's own zerod settings, and with those given here."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ZEROD_")}
    return kept | settings


Node = collections.namedtuple("Node", "name socket address ranks")


def plan_nodes(options, folder):
    """One Node per daemon; consecutive ranks live on the same node."""
    per_node, rest = divmod(options.world, options.daemons)
    if rest:
        raise proc.RunFailed(f"{options.world} ranks can't be split over {options.daemons} daemons")
    return [Node(f"daemon{index}", os.path.join(folder, f"{index}.sock"), f"127.0.0.1:{port}",
                 range(index * per_node, (index + 1) * per_node))
            for index, port in enumerate(run.free_ports(options.daemons))]


def start_daemons(family, nodes, program, checkpoint):
    peers = ",".join(node.address for node in nodes)
    for index, node in enumerate(nodes):
        family.start(node.name, [
            program, "--node", str(index), "--peers", peers, "--ranks", str(len(node.ranks)),
            "--socket", node.socket, "--listen", node.address,
            "--model-root", os.path.realpath(checkpoint)], clean_environment())
    deadline = time.monotonic() + 30
    while not all(os.path.exists(node.socket) for node in nodes):
        family.running([])
        if time.monotonic() > deadline:
            raise proc.RunFailed("a daemon made no socket within 30 s")
        time.sleep(POLL_S)


def start_workers(family, nodes, folder, options):
    """Starts every rank; returns the workers' names. Rank 0 writes the log."""
    names = []
    for node in nodes:
        for local, rank in enumerate(node.ranks):
            environment = clean_environment(
                RANK=str(rank), LOCAL_RANK=str(local), WORLD_SIZE=str(options.world),
                OMP_NUM_THREADS="1", ZEROD_SOCKET=node.socket)
            names.append(f"rank{rank}")
            family.start(names[-1], [
                find_program(options.build, "zerod-train"), "--model", options.checkpoint,
                "--tokens", options.tokens, "--batch", str(options.world * options.micro_batch),
                "--seq", str(options.seq), "--steps", str(options.warmup + options.steps),
                "--micro-batches", "1", "--lr", str(workload.LR), "--warmup", "0",
                "--weight-decay", str(workload.WEIGHT_DECAY), "--clip", str(workload.CLIP),
                "--log", os.path.join(folder, names[-1] + ".jsonl")], environment)
    return names


class StepLog:
    """Follows rank 0's log; notes clock, CPU and loopback counters when a step's line comes."""

    def __init__(self, path, family):
        self._path, self._family = path, family
        self._file = None
        self._rest = ""
        self._cpu_s_of = {}
        self.lines, self.marks = [], []

    def poll(self):
        if self._file is None:
            if not os.path.exists(self._path):
                return
            self._file = open(self._path)
        self._rest += self._file.read()
        *complete, self._rest = self._rest.split("\n")
        steps = [line for line in map(json.loads, filter(None, complete)) if "loss" in line]
        if steps:
            # Lines that come together share a mark.
            mark = (time.monotonic(), self._cpu_s(), proc.loopback_sent_bytes())
            self.lines += steps
            self.marks += [mark] * len(steps)

    def close(self):
        if self._file is not None:
            self._file.close()

    def _cpu_s(self):
        for pid in self._family.pids():
            try:
                self._cpu_s_of[pid] = proc.cpu_s(pid)
            except OSError:  # it has just ended; its last reading stays
                pass
        return sum(self._cpu_s_of.values())


class HeldWorkers:
    """Stops every worker when it opens its connection to the daemon, before it has a model.

    Its libraries are loaded by then: this gives the memory before the model without any help from
    the program.
    """

    def __init__(self, pids):
        self._running, self._stopped = set(pids), set()

    def wait(self, check, patience_s=30):
        """Returns when every worker is stopped."""
        deadline = time.monotonic() + patience_s
        while self._running:
            for pid in list(self._running):
                if self._has_socket(pid):
                    os.kill(pid, signal.SIGSTOP)
                    self._running.remove(pid)
                    self._stopped.add(pid)
            check()
            if time.monotonic() > deadline:
                raise proc.RunFailed(f"a worker opened no connection within {patience_s} s")
            time.sleep(0.0005)
        time.sleep(0.2)  # let the daemons come to rest

    @staticmethod
    def _has_socket(pid):
        folder = f"/proc/{pid}/fd"
        for name in os.listdir(folder):
            try:
                if os.readlink(os.path.join(folder, name)).startswith("socket:"):
                    return True
            except OSError:  # closed meanwhile
                pass
        return False

    def release(self):
        for pid in self._stopped:
            os.kill(pid, signal.SIGCONT)


def record_of(log, options):
    """The rank record that run.summary() takes, from rank 0's log."""
    count = options.warmup + options.steps
    if len(log.lines) != count:
        raise proc.RunFailed(f"the log has {len(log.lines)} steps instead of {count}")
    step_ms = [line["step_ms"] for line in log.lines]
    before, after = log.marks[options.warmup - 1], log.marks[-1]
    wall_ms = (after[0] - before[0]) * 1e3
    accounted = sum(step_ms[options.warmup:]) / wall_ms
    if accounted < MIN_ACCOUNTED and not options.memory:  # sampling makes the marks coarse
        raise proc.RunFailed(f"step_ms accounts for only {accounted:.0%} of the time that passed")
    per_step = [(late - early) / options.steps for early, late in zip(before, after)]
    return {"step_ms": step_ms, "loss": [line["loss"] for line in log.lines],
            "cpu_ms": [per_step[1] * 1e3 / options.world] * count,
            "sent_bytes": [per_step[2]] * count}


def follow(family, names, log, watch):
    """Reads the log until all workers have ended; samples memory if there is a watch."""
    while family.running(names):
        log.poll()
        if watch:
            watch.sample()
        time.sleep(0.02 if watch else POLL_S)
    log.poll()
    log.close()


def measure(options):
    with run.scratch_folder() as folder, proc.Family(folder) as family:
        nodes = plan_nodes(options, folder)
        watch = proc.MemoryWatch(family) if options.memory else None
        log = StepLog(os.path.join(folder, "rank0.jsonl"), family)
        started = time.monotonic()
        start_daemons(family, nodes, find_program(options.build, "zerod"), options.checkpoint)
        daemon_pids = family.pids()
        names = start_workers(family, nodes, folder, options)
        if watch:
            held = HeldWorkers(set(family.pids()) - set(daemon_pids))
            held.wait(lambda: family.running(names))
            watch.set_base()
            held.release()
        follow(family, names, log, watch)
        family.stop([node.name for node in nodes])
        name = "zerod" if options.daemons == 1 else f"zerod-{options.daemons}node"
        report = run.describe(name, options) | {"daemons": options.daemons}
        report |= run.summary(options, [record_of(log, options)] * options.world)
        report["first_step_s"] = round(log.marks[0][0] - started, 2)
        if watch:
            report["node_memory_mb"] = round(watch.above_base_mb(), 1)
            report["peak_anon_mb"] = [round(mb, 1) for mb in watch.peak_anon_mb.values()]
        return report


def main():
    parser = run.parser(__doc__)
    parser.add_argument("--build", default="build", help="build folder with the programs (build)")
    parser.add_argument("--daemons", type=int, default=1)
    options = parser.parse_args()
    if options.warmup < 1:
        parser.error("--warmup must be at least 1")
    run.execute(lambda: measure(options))


if __name__ == "__main__":
    main()
