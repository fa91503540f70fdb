"""Measures one turn of a task while the processor works all the time, and after a few ms of rest.

All tasks of a keyed count run in this process (`scale_data`), with four records to a batch.  A core that rests lets its
caches go, so the same turn then takes several times as long; nothing else differs.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from benchmarks.scale.scale_data import DataPlane, Shape
from causal.effects import Effect
from causal.events import Event, Turn
from causal.topology import FULL_DEPTH
from operators.testing.cluster import Process

RECORDS, TURNS, WARM_TURNS = 4, 200, 20
TASKS = ("source", "count", "sink")


class RestedPlane(DataPlane):
    """A source, a counting task and a sink, with a rest before each of their turns."""

    def __init__(self, rest_s: float) -> None:
        self.took_us: dict[str, list[float]] = defaultdict(list)
        self._rest_s = rest_s
        super().__init__(Shape(2, 1, 1), FULL_DEPTH, RECORDS * TURNS, RECORDS)

    def handled(self, process: Process, event: Event) -> Sequence[Effect]:
        """Return times a turn that does something."""
        if not isinstance(event, Turn):
            return super().handled(process, event)
        time.sleep(self._rest_s)
        began_ns = time.perf_counter_ns()
        effects = super().handled(process, event)
        if effects:
            self.took_us[TASKS[process.index]].append((time.perf_counter_ns() - began_ns) / 1e3)
        return effects


def turns_us(rest_s: float) -> dict[str, float]:
    """Return the median turn of each task, in µs, after this long a rest before each; 0: after a system call."""
    plane = RestedPlane(rest_s)
    plane.run()
    return {task: median(took[WARM_TURNS:]) for task, took in plane.took_us.items()}
