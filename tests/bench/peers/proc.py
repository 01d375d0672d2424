"""Reads /proc, and owns the processes of one run."""
import os
import resource
import signal
import subprocess
import sys
import time


class RunFailed(Exception):
    """A process of the run ended badly or didn't do what it should in time."""


def status_mb(pid="self"):
    """VmHWM, VmRSS and RssAnon of a process in MB (2^20 bytes)."""
    sizes = {}
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key in ("VmHWM", "VmRSS", "RssAnon"):
                sizes[key] = int(value.split()[0]) / 1024
    return sizes


def pss_mb(pid="self"):
    """Proportional set size in MB: a page that k processes map counts as 1/k in each of them."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    raise RunFailed(f"/proc/{pid}/smaps_rollup has no Pss line")


def forget_peak():
    """Lets VmHWM of this process start again from its present size."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def loopback_sent_bytes():
    """Bytes that the loopback interface has sent since it came up."""
    with open("/proc/net/dev") as file:
        for line in file:
            name, _, counters = line.partition(":")
            if name.strip() == "lo":
                return int(counters.split()[8])
    return 0


def cpu_s(pid):
    """CPU seconds that a running process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class LoadMeter:
    """Says how many cores the rest of the machine used between its making and other_cores().

    All children of this process must have been waited for by then, so that theirs isn't counted.
    """

    def __init__(self):
        self._start = self._read()

    def other_cores(self):
        wall, machine, own = (now - then for now, then in zip(self._read(), self._start))
        return max(0.0, machine - own) / wall

    @staticmethod
    def _read():
        with open("/proc/stat") as file:
            ticks = [int(field) for field in file.readline().split()[1:]]
        busy = sum(ticks[:3]) + sum(ticks[5:7])  # user, nice, system; irq, softirq
        own = sum(usage.ru_utime + usage.ru_stime for usage in
                  map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
        return time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), own


class Family:
    """Processes that are started, watched and ended together. A context manager: none outlives it.

    The output of each goes to a file in `folder`; the end of it is shown when the process fails.
    """

    def __init__(self, folder):
        self._folder = folder
        self._members = {}

    def __enter__(self):
        # A plain SIGTERM would end us without __exit__.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        return self

    def __exit__(self, *_):
        self.stop(list(self._members))

    def start(self, name, command, environment):
        with open(self._log(name), "w") as log:
            self._members[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def pids(self):
        return [member.pid for member in self._members.values() if member.poll() is None]

    def running(self, names):
        """True while any of `names` runs; throws RunFailed as soon as any member has failed."""
        for name, member in self._members.items():
            if member.poll() not in (None, 0):
                with open(self._log(name), errors="replace") as log:
                    tail = log.read()[-3000:]
                raise RunFailed(f"{name} ended with {member.returncode}; its last output:\n{tail}")
        return any(self._members[name].poll() is None for name in names)

    def stop(self, names, patience_s=10):
        """SIGTERM to the named ones that still run, SIGKILL to those that don't heed it."""
        members = [self._members[name] for name in names]
        for member in members:
            if member.poll() is None:
                member.terminate()
        deadline = time.monotonic() + patience_s
        for member in members:
            try:
                member.wait(max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()

    def _log(self, name):
        return os.path.join(self._folder, name + ".log")


class MemoryWatch:
    """The highest sum of PSS over a family above a base; set the base before the model exists."""

    def __init__(self, family):
        self._family = family
        self._base_mb = None
        self._peak_mb = 0.0
        self.peak_anon_mb = {}  # pid -> highest RssAnon

    def set_base(self):
        self._base_mb = self._sum_mb()

    def sample(self):
        self._peak_mb = max(self._peak_mb, self._sum_mb())

    def above_base_mb(self):
        if self._base_mb is None:
            raise RunFailed("the memory before the model was never measured")
        return self._peak_mb - self._base_mb

    def _sum_mb(self):
        total = 0.0
        for pid in self._family.pids():
            try:
                total += pss_mb(pid)
                anon = status_mb(pid).get("RssAnon", 0.0)
            except (OSError, RunFailed):  # it has just ended
                continue
            self.peak_anon_mb[pid] = max(anon, self.peak_anon_mb.get(pid, 0.0))
        return total
