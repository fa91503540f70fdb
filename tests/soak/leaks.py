"""The things that a job may not leave behind: processes, sockets, files, shared memory, more and more descriptors."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness.processes import of_job
from standby.host.processes import start_time

SETTLED_S = 3.0
"""Age from which a process counts: before, it is still opening what its duties need."""

GROWTH_MAX = 16
"""Descriptors that one process may have more at the end of its life than when it was first seen in its role."""

MANIFESTS_KEPT = 2
"""The last complete checkpoint, and the one before, from which a promotion that was under way may still load."""

_SNAPSHOT = re.compile(r"e(\d+)-i\d+\.snap")


def shared_memory(pid: int) -> set[Path]:
    """Return files of POSIX shared memory that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()
    return {Path(line[line.index("/dev/shm/") :].split(" (")[0]) for line in lines if "/dev/shm/" in line}


def after(state: Path, runtimes: Iterable[Path], shared: Iterable[Path], well: bool = True) -> list[str]:
    """Return one line for each thing that a job that has ended left behind.

    Args:
        state: the job's directory.
        runtimes: its directories of sockets, as they were while it ran; each life has its own.
        shared: shared memory that its processes were seen to use.
        well: it ended well and was not changed shortly before, so its checkpoints are in order as well.
    """
    left = [f"process {pid}: {command}" for pid, command in of_job(state).items()]
    for runtime in sorted(runtimes):
        if runtime.exists():
            left.append(f"the directory of sockets {runtime}")
        left += [f"socket {path}" for path in unix_sockets(runtime)]
    left += [f"spilled segment {path}" for path in _files(state / "spill")]
    left += _stray_checkpoints(state) if well else []
    left += [f"shared memory {path}" for path in sorted(shared) if path.exists()]
    return left


def unix_sockets(directory: Path) -> list[str]:
    """Return paths of Unix sockets in a directory that some process still holds."""
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return sorted({row[7] for row in rows if len(row) > 7 and row[7].startswith(f"{directory}/")})


def runtime_of(state: Path) -> Path | None:
    """Return the directory of sockets that a job uses now."""
    try:
        return Path((state / "runtime").read_text().strip())
    except FileNotFoundError:
        return None


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _stray_checkpoints(state: Path) -> list[str]:
    """Return manifests and snapshots older than the last two checkpoints that neither of them names."""
    folder = state / "checkpoints"
    manifests = {int(path.stem[len("manifest-") :]): path for path in folder.glob("manifest-*.json")}
    if not manifests:
        return []
    kept = sorted(manifests)[-MANIFESTS_KEPT:]
    strays = [f"{manifests[epoch].relative_to(state)}" for epoch in sorted(manifests) if epoch not in kept]
    files_by_task = [json.loads(manifests[epoch].read_text())["files"] for epoch in kept]
    named = {file[0] for tasks in files_by_task for files in tasks.values() for file in files}
    for path in _files(folder):
        match = _SNAPSHOT.match(path.name)
        if match and int(match[1]) < kept[-1] and str(path.relative_to(state)) not in named:
            strays.append(f"snapshot {path.relative_to(state)} that no manifest names")
    return strays


def _age_s(started: int) -> float:
    """Return the age of a process, from its start time in clock ticks since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class ProcessUsage:
    """The descriptors and the shared memory that processes hold, followed over their lives."""

    shared: set[Path] = field(default_factory=set)
    first: dict[tuple[int, int, str], int] = field(default_factory=dict)
    last: dict[tuple[int, int, str], int] = field(default_factory=dict)

    def look(self, pid: int, role: str, expected: int = 0) -> None:
        """Look at one process.

        Args:
            role: a process that takes another role counts as a new one.
            expected: how many of them its duties account for, for example one per worker.
        """
        self.shared |= shared_memory(pid)
        started = start_time(pid)
        try:
            count = len(os.listdir(f"/proc/{pid}/fd")) - expected
        except (FileNotFoundError, ProcessLookupError):
            return
        if started is not None and _age_s(started) >= SETTLED_S:
            self.first.setdefault((pid, started, role), count)
            self.last[pid, started, role] = count

    def grown(self) -> list[str]:
        """Return one line for each process that opened more and more."""
        return [
            f"descriptors of {role} (pid {pid}) grew from {self.first[pid, started, role]} to {count}"
            for (pid, started, role), count in self.last.items()
            if count - self.first[pid, started, role] > GROWTH_MAX
        ]
