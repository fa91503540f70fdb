"""Measures what each part of the bare job takes per read: the steps of `jobs.bare`, with the clock read between them.

    python -m benchmarks.costs.budget_bare BATCH BATCHES

One bucket instead of two, as in `budget_drive`.  It prints one JSON object: task whose work it is → part → µs.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence
from time import thread_time_ns
from typing import Any

from benchmarks.costs.budget_drive import WARM_BATCHES, typical
from benchmarks.costs.budget_parts import DECODE, ENCODE, OPERATORS, READ, ROUTE, TASKS, look_ns
from benchmarks.harness.runs import RunFailed
from benchmarks.jobs.bare import GC_THRESHOLD
from benchmarks.jobs.keyed_count import key_of, prepare, slices
from causal.records.batch import decode_records, encode_records
from operators.sinks import TallySink

STEPS = (
    ("source", READ), ("source", ROUTE), ("source", ENCODE), ("count", DECODE), ("count", OPERATORS),
    ("count", ENCODE), ("sink", DECODE), ("sink", ENCODE),
)  # fmt: skip


class Bare:
    """The bare job, a read at a time."""

    def __init__(self, batch: int) -> None:
        prepare()
        self.rows = 0
        self._batch = batch
        self._place = 0
        self._bucket: list[Any] = []
        self._appends: dict[Any, Any] = {}
        self._counted: dict[Any, int] = {}
        self._encode_rows = TallySink("unused").encode

    def step(self) -> list[int]:
        """Returns when it began, and when each of `STEPS` was done, in ns."""
        times = [thread_time_ns()]
        done, bucket, appends = times.append, self._bucket, self._appends
        read = slices(0, self._place, self._place + self._batch)
        self._place += self._batch
        done(thread_time_ns())
        for row in read:
            key = key_of(row)
            append = appends.get(key)
            if append is None:
                append = appends[key] = bucket.append
            append(row)
        done(thread_time_ns())
        body = encode_records(bucket)
        bucket.clear()
        done(thread_time_ns())
        arrived = decode_records(body)
        done(thread_time_ns())
        counted, rows = self._counted, list[Any]()
        get, append = counted.get, rows.append
        for key in map(key_of, arrived):
            counted[key] = n = get(key, 0) + 1
            append((key, n))
        done(thread_time_ns())
        body = encode_records(rows)
        done(thread_time_ns())
        stored = decode_records(body)
        done(thread_time_ns())
        self._encode_rows(stored)
        done(thread_time_ns())
        self.rows += len(stored)
        return times


def _between(times: Sequence[int], look: int) -> list[float]:
    """µs from each time to the next, without what looking takes."""
    return [max(0, after - before - look) / 1000 for before, after in zip(times[:-1], times[1:], strict=True)]


def run(batch: int, batches: int) -> dict[str, dict[str, float]]:
    """Task → part → µs per read.

    Raises:
        RunFailed: other rows were counted than were read.
    """
    bare = Bare(batch)
    for _ in range(WARM_BATCHES):
        bare.step()
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    gc.freeze()
    samples = [bare.step() for _ in range(batches)]
    if bare.rows != batch * (batches + WARM_BATCHES):
        raise RunFailed(f"the bare job counted {bare.rows} rows of {batch * (batches + WARM_BATCHES)}")
    names = [f"{task} {part}" for task, part in STEPS]
    look = look_ns()
    took = typical([dict(zip(names, _between(times, look), strict=True)) for times in samples])
    by_task: dict[str, dict[str, float]] = {task: {} for task in TASKS}
    for task, part in STEPS:
        by_task[task][part] = took[f"{task} {part}"]
    return by_task


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
