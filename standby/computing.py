"""Which processes use the processor: what is silent and computes is busy, what is silent and does nothing hangs.

C code that holds the interpreter's lock keeps every thread of a process from speaking.  The kernel knows better.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_RUNNABLE = (b"R", b"D")
"""States of a main thread that runs, waits for a processor, or for a disk: neither stopped nor waiting for others."""


class Computing:
    """Compares what processes have used between two looks."""

    def __init__(self) -> None:
        self._used: dict[int, int] = {}

    def look(self, pids: Mapping[str, int]) -> list[str]:
        """Names of those that have used the processor since the look before, or want to."""
        before, self._used = self._used, {}
        found: list[str] = []
        for name, pid in pids.items():
            told = _of(pid)
            if told is None:
                continue
            state, used = told
            self._used[pid] = used
            if state in _RUNNABLE or used > before.get(pid, used):
                found.append(name)
        return found


def _of(pid: int) -> tuple[bytes, int] | None:
    """State of the main thread, and clock ticks that the process has used; None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0], int(fields[11]) + int(fields[12])
