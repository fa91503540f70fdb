"""Identifies processes that use the processor: a silent process is busy if it computes, and hung otherwise.

If C code holds the interpreter lock, every thread of the process is silent, but the kernel still counts the process's
processor time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_RUNNABLE = (b"R", b"D")
"""The states of a main thread that runs, or waits for a processor or a disk, and is neither stopped nor idle."""


class Computing:
    """Compares the processor time that processes have used at successive checks."""

    def __init__(self) -> None:
        self._used: dict[int, int] = {}

    def look(self, pids: Mapping[str, int]) -> list[str]:
        """Return the names of the processes that have used the processor since the last check, or whose main thread has
        one of the states `_RUNNABLE`.
        """
        before, self._used = self._used, {}
        computing: list[str] = []
        for name, pid in pids.items():
            usage = _of(pid)
            if usage is None:
                continue
            state, used = usage
            self._used[pid] = used
            if state in _RUNNABLE or used > before.get(pid, used):
                computing.append(name)
        return computing


def _of(pid: int) -> tuple[bytes, int] | None:
    """Return the state of the main thread and the clock ticks that the process has used; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0], int(fields[11]) + int(fields[12])
