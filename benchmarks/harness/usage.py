"""CPU time and memory of processes, from /proc, and looks at something that runs until a block is left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness.children import stat_fields

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, and of those that it has reaped; 0 for one that is gone."""
    return sum(map(int, stat_fields(pid)[11:15])) / TICKS_PER_S


def cores(pids: Callable[[], Sequence[int]], seconds: float) -> float:
    """CPU seconds of processes per second, over this many seconds."""
    every = pids()
    before_s, began_s = sum(map(cpu_s, every)), time.monotonic()
    time.sleep(seconds)
    return (sum(map(cpu_s, every)) - before_s) / (time.monotonic() - began_s)


def pss_mib(pid: int) -> float | None:
    """Memory of a process, shared pages counted in part; None when it is gone or may not be looked at."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), None)


@contextmanager
def looking(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call `look` repeatedly, in a thread of its own, until the block is left."""
    over = threading.Event()

    def look_again() -> None:
        while not over.wait(every_s):
            look()

    thread = threading.Thread(target=look_again, name="looking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
