"""Measures what each part of the bare job takes per read: its steps, with the clock read between them.

    python -m benchmarks.costs.budget_bare BATCH BATCHES

One bucket instead of two, as in `budget_drive`.  It prints one JSON object: task whose work it is → part → µs.
"""

from __future__ import annotations

import gc
import json
import sys
from itertools import pairwise
from time import thread_time_ns

from benchmarks.costs.budget_drive import WARM_BATCHES, typical
from benchmarks.costs.budget_parts import DECODE, ENCODE, OPERATORS, READ, ROUTE, TASKS, look_ns
from benchmarks.harness.runs import RunFailed
from benchmarks.jobs.bare import GC_THRESHOLD, Bare

STEPS = (
    ("source", READ), ("source", ROUTE), ("source", ENCODE), ("count", DECODE), ("count", OPERATORS),
    ("count", ENCODE), ("sink", DECODE), ("sink", ENCODE),
)  # fmt: skip


class Timed:
    """The bare job with one bucket, a read at a time."""

    def __init__(self, batch: int) -> None:
        self._times: list[int] = []
        self.bare = Bare(1, lambda: self._times.append(thread_time_ns()))
        self._batch = batch
        self._place = 0

    def step(self) -> list[int]:
        """Returns when it began, and when each of `STEPS` was done, in ns."""
        times = self._times = [thread_time_ns()]
        self.bare.read(0, self._place, self._place + self._batch)
        self._place += self._batch
        return times


def run(batch: int, batches: int) -> dict[str, dict[str, float]]:
    """Task → part → µs per read.

    Raises:
        RunFailed: other rows were counted than were read.
    """
    timed = Timed(batch)
    for _ in range(WARM_BATCHES):
        timed.step()
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    gc.freeze()
    samples = [timed.step() for _ in range(batches)]
    if timed.bare.rows != batch * (batches + WARM_BATCHES):
        raise RunFailed(f"the bare job counted {timed.bare.rows} rows of {batch * (batches + WARM_BATCHES)}")
    look = look_ns()
    between = ([max(0, after - before - look) / 1000 for before, after in pairwise(times)] for times in samples)
    took = typical([dict(zip(STEPS, each, strict=True)) for each in between])
    by_task: dict[str, dict[str, float]] = {task: {} for task in TASKS}
    for task, part in STEPS:
        by_task[task][part] = took[task, part]
    return by_task


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
