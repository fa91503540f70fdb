"""One run of a program with all that it starts: its CPU time, its peak memory, and nothing left behind.

    python -m benchmarks.peers.launched FIGURES.json LIMIT_S COMMAND…

This process takes in every orphan of the program (PR_SET_CHILD_SUBREAPER), so that the CPU time of whatever it
started is counted when it has ended, and what still lives at the end is found and killed.  Memory is the sum of
proportional set sizes, in which a shared page counts once.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.children import descendants, end_all, reap, started, stat_fields
from benchmarks.harness.usage import TICKS_PER_S, pss_mib
from standby.host.parentage import adopt_orphans

SAMPLE_S, LOOK_S = 0.25, 0.01
LATE, UNKNOWN = 124, 127
_NAMES_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")


@dataclass(frozen=True)
class Usage:
    """The time, memory and status of a run."""

    status: int
    began_s: float
    wall_s: float
    cpu_s: float
    peak_pss_mib: float
    cpu_by_s: list[tuple[float, float]]
    """(moment, CPU seconds of all processes until then), every `SAMPLE_S`."""
    said: str
    """The last line of what it wrote to standard output or error, of those that name an error if there are any."""

    def cpu_since(self, moment_s: float) -> float:
        """CPU seconds from a moment to the end of all processes, interpolated between samples."""
        before = (self.began_s, 0.0)
        for sample in [*self.cpu_by_s, (self.began_s + self.wall_s, self.cpu_s)]:
            if sample[0] >= moment_s:
                share = (moment_s - before[0]) / max(sample[0] - before[0], 1e-9)
                return self.cpu_s - (before[1] + max(0.0, share) * (sample[1] - before[1]))
            before = sample
        return 0.0


def launch(command: Sequence[str], place: Path, limit_s: float, environment: Mapping[str, str]) -> Usage:
    """Run a command to its end, or for `limit_s` (status 124); its output goes to `place/output.log`."""
    figures = place / "usage.json"
    root = Path(__file__).parents[2]
    with open(place / "output.log", "ab") as log:
        words = [sys.executable, "-m", __spec__.name, str(figures), str(limit_s), *command]
        none = subprocess.DEVNULL
        with started(words, cwd=root, env=environment, stdin=none, stdout=log, stderr=log) as launching:
            launching.wait()
    said = blamed((place / "output.log").read_text(errors="replace"))
    if not figures.exists():
        return Usage(UNKNOWN, time.time(), 0.0, 0.0, 0.0, [], said)
    usage: dict[str, Any] = json.loads(figures.read_text())
    usage["cpu_by_s"] = [(at, cpu) for at, cpu in usage["cpu_by_s"]]
    return Usage(said=said, **usage)


def blamed(output: str) -> str:
    """Return the line that says best why a program ended: the last that names an error, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it said nothing"]
    return ([line for line in lines if _NAMES_ERROR.match(line)] or lines)[-1]


class CpuTime:
    """CPU time of a run so far: what ended processes left to those that waited for them, or what was seen of each.

    The larger counts: a parent may not have waited for a process, and one may have run between two samples.
    """

    def __init__(self) -> None:
        self.total_s = 0.0
        self._own: dict[tuple[int, str], int] = {}

    def sample(self, pids: Iterable[int]) -> float:
        """Return seconds until now; never less than before."""
        left_ticks = 0
        for pid in pids:
            if fields := stat_fields(pid):
                left_ticks += sum(map(int, fields[11:15]))
                self._own[pid, fields[19]] = sum(map(int, fields[11:13]))
        self.total_s = max(self.total_s, _reaped_s() + left_ticks / TICKS_PER_S, sum(self._own.values()) / TICKS_PER_S)
        return self.total_s


def _reaped_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch_over_orphans() -> None:
    """Take in orphans, and end when the process that started this asks for it or ends."""
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def main(arguments: Sequence[str]) -> int:
    """Run it, and write what it took."""
    figures, limit_s, *command = arguments
    _watch_over_orphans()
    began_s, status, peak, used = time.time(), None, 0.0, CpuTime()
    cpu_by_s: list[tuple[float, float]] = []
    sampled_s = 0.0
    try:
        program = subprocess.Popen(command)
        while status is None:
            status = reap().get(program.pid)
            now_s = time.time()
            if status is None and now_s - began_s > float(limit_s):
                status = LATE
            if now_s - sampled_s >= SAMPLE_S:
                sampled_s = now_s
                pids = descendants(os.getpid())
                peak = max(peak, sum(pss_mib(pid) or 0.0 for pid in pids))
                cpu_by_s.append((now_s, used.sample(pids)))
            time.sleep(LOOK_S)
        wall_s = time.time() - began_s
    finally:
        end_all()
    usage = {"status": status, "began_s": began_s, "wall_s": wall_s, "cpu_s": used.sample(()), "peak_pss_mib": peak}
    Path(figures).write_text(json.dumps({**usage, "cpu_by_s": cpu_by_s}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
