"""Shows where a running job's CPU time goes: by process role and thread, from /proc, looked at while it runs.

A thread is counted up to the last look at it, so the sum falls short of the job's whole CPU time by up to one
interval per process, and by processes that came and went between two looks; `unseen` is that difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.children import descendants
from benchmarks.harness.processes import argv
from benchmarks.harness.usage import looking

EVERY_S = 0.1
_STANDBY, _OTHER, _STARTING = "standby", "other", "worker that has no task yet"
_PROGRAMS = {
    "standby.daemon": "supervisor",
    "standby.agent": "agent",
    "operators.runtime.worker": _STARTING,
    "deploy": "run",
}
_PROGRAM_ROLES = frozenset((_OTHER, *_PROGRAMS.values()))
_SOCKETS = "ZMQ"


class ThreadTimes:
    """The CPU time of the threads of all processes below this one, as far as it was looked at.

    Args:
        job: the job's directory, whose `status.json` lists the process of each task.
    """

    def __init__(self, job: Path) -> None:
        self._job = job
        self._roles: dict[int, str] = {}
        self._cpu_s: dict[tuple[int, int], tuple[str, float]] = {}

    def look(self) -> None:
        """Record what every thread has used so far."""
        tasks = self._tasks()
        for pid in descendants(os.getpid()):
            known = self._roles.get(pid)
            if known is None or known in _PROGRAM_ROLES:  # between its fork and its exec it looks like its parent
                known = _program(pid) or known
            role = tasks.get(pid) or known
            if role is None:
                continue
            self._roles[pid] = role
            for path in _listed(Path(f"/proc/{pid}/task")):
                used = _stat(path)
                if used is not None:
                    self._cpu_s[pid, int(path.name)] = used

    def _tasks(self) -> dict[int, str]:
        """Return which role a worker plays, as the supervisor reports it."""
        try:
            view: Mapping[str, Any] = json.loads((self._job / "status.json").read_text())
        except (OSError, ValueError):
            return {}
        roles = {}
        for process in view.get("processes", ()):
            if process.get("task") and process.get("state") == "serving":
                roles[process["pid"]] = process["task"].rpartition("/")[0]
            elif process.get("standby_of"):
                roles[process["pid"]] = _STANDBY
        return roles

    def seconds(self) -> dict[str, dict[str, float]]:
        """Role → thread (`python`, `sockets`, or its own name) → CPU seconds."""
        by_role: dict[str, dict[str, float]] = {}
        for (pid, _), (name, cpu_s) in self._cpu_s.items():
            by_thread = by_role.setdefault(self._roles.get(pid, _OTHER), {})
            by_thread[name] = by_thread.get(name, 0.0) + cpu_s
        return {role: dict(sorted(threads.items())) for role, threads in sorted(by_role.items())}


@contextmanager
def thread_times(job: Path) -> Iterator[ThreadTimes]:
    """Look at a job until the block is left."""
    times = ThreadTimes(job)
    with looking(times.look, EVERY_S):
        yield times


def _program(pid: int) -> str | None:
    """Return the role that a command line names; None for a process that is gone."""
    words = argv(pid)
    if not words:
        return None
    return next((role for program, role in _PROGRAMS.items() if program in words), _OTHER)


def _listed(place: Path) -> list[Path]:
    try:
        return list(place.iterdir())
    except OSError:
        return []


def _stat(place: Path) -> tuple[str, float] | None:
    """(sort of thread, CPU seconds); None when it is gone."""
    try:
        name = (place / "comm").read_text().strip()
        used = (place / "schedstat").read_text().split()
    except OSError:
        return None
    if place.name == place.parent.parent.name:
        name = "python"
    elif name.startswith(_SOCKETS):
        name = "sockets"
    return name, int(used[0]) / 1e9
