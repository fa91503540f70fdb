"""The memory and the open files of each process of a job, looked at after each failure: do they come to rest?"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from standby.host.processes import start_time

WARM_UP = 2
"""The failures after which a process has everything for the next ones: modules, buffers, memory of its own."""
SHARE_MAX = 1.10
NOISE_BYTES = 2 << 20
FILES_MAX = 3
"""The open files that a process may have more: a connection that is being made, a snapshot that is being written."""


def own_bytes(pid: int) -> int | None:
    """Return the bytes that would be free without that process; None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:")))


def open_files(pid: int) -> int | None:
    """Return the number of descriptors of a process; None if it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return None


@dataclass(slots=True)
class Growth:
    """The figures of each process after each failure, (bytes, files) by (pid, start)."""

    seen: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    commands: dict[tuple[int, int], str] = field(default_factory=dict)

    def look(self, living: dict[int, str]) -> None:
        """Look at each process of the job."""
        for pid, command in living.items():
            started, used_bytes, files = start_time(pid), own_bytes(pid), open_files(pid)
            if started is not None and used_bytes is not None and files is not None:
                self.seen.setdefault((pid, started), []).append((used_bytes, files))
                self.commands[pid, started] = command

    def of(self, pid: int) -> list[tuple[int, int]]:
        """Return what was seen of a process."""
        return next((looks for (each, _), looks in self.seen.items() if each == pid), [])

    def grown(self) -> list[str]:
        """Return one line for each process that has lived through several failures after the first ones and grew.

        What each failure leaves grows until the end.  A process that has grown in one step and rests does not: an
        allocator that lacked room once keeps the memory.
        """
        lines: list[str] = []
        for (pid, started), looks in self.seen.items():
            later = looks[WARM_UP:]
            if len(later) < 3:
                continue
            third = max(1, len(later) // 3)
            before, between, after = (
                [median(kind) for kind in zip(*part, strict=True)]
                for part in (later[:third], later[third:-third], later[-third:])
            )
            command = f"{self.commands[pid, started][-60:]} (pid {pid})"
            still = after[0] - between[0] > (after[0] - before[0]) / 4
            if still and after[0] > SHARE_MAX * before[0] + NOISE_BYTES:
                lines.append(f"{command} grew from {before[0] / 1e6:.1f} to {after[0] / 1e6:.1f} MB: {looks}")
            if after[1] > before[1] + FILES_MAX:
                lines.append(f"{command} grew from {before[1]:g} to {after[1]:g} open files: {looks}")
        return lines
