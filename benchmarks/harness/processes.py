"""The processes of a running job as seen from outside: signals that reach only those that were meant, and waits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from standby.host.processes import marked, open_process, send_signal, start_time

SUPERVISOR, AGENT = "standby.daemon", "standby.agent"

WAIT_S = 180.0
"""Longer than anything here takes on a machine that is ten times too busy; what it bounds is a hang."""
PAUSE_S, PAUSE_S_MAX = 0.01, 0.5
"""The least and the longest pause between two looks."""

T = TypeVar("T")


def wait_for(what: str, holds: Callable[[], T | None], within_s: float = WAIT_S, pauses: int = 0) -> T:
    """Return the first answer of `holds` that is not None or False.

    Args:
        pauses: how many times as long as a look the pause after it is at least: expensive looks leave the processor to
            what they wait for.
    """
    deadline_s = time.monotonic() + within_s
    while (began_s := time.monotonic()) < deadline_s:
        answer = holds()
        if answer is not None and answer is not False:
            return answer
        took_s = time.monotonic() - began_s
        time.sleep(min(max(PAUSE_S, pauses * took_s), PAUSE_S_MAX))
    raise AssertionError(f"waited {within_s:.0f} s: {what}")


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Signal a process that was just seen; returns whether there was one that had not ended."""
    started = start_time(pid)
    pidfd = open_process(pid, started) if started is not None else None
    if pidfd is None:
        return False
    send_signal(pidfd, number)
    os.close(pidfd)
    return True


def children(pid: int) -> list[int]:
    """Direct children of a process; none when it is gone."""
    try:
        return [int(c) for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def argv(pid: int) -> list[str]:
    """Return its command line; empty when it is gone or may not be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def server(root: int, module: str) -> int | None:
    """Return the supervisor or the agent that a `causal run` has started."""
    return next((pid for pid in children(root) if module in argv(pid)), None)


def workers(state: Path) -> dict[str, int]:
    """Slot → process of everything an agent has started for the job and that lives."""
    pids: dict[str, int] = {}
    for process in marked(state):
        pids[process.slot] = min(process.pid, pids.get(process.slot, process.pid))
    return pids


def of_job(state: Path) -> dict[int, str]:
    """Return every living process of the job: by the marks of its environment, or by its command line."""
    pids = {process.pid for process in marked(state)}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != os.getpid() and str(state) in argv(int(entry)):
            pids.add(int(entry))
    return {pid: " ".join(argv(pid)).strip() for pid in sorted(pids) if start_time(pid) is not None}
