"""Routing of vectors to tasks: rows by key group, whole batches to tasks in turn, or everything to one channel.

A key has the same group as on the row path (`operators.records.keys`). The group is computed once per key and then
looked up for a whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causal.errors import OperatorFailed
from causal.records.vectors import Vectors
from operators.kinds.vectors.key_index import KeyIndex, Slots, column_of
from operators.records.keys import Unroutable, canonical, key_group, task_of_group
from operators.stage.routing import KEYS_CACHED_MAX, Buckets, Failed, TurnRoute, together


def _narrowed(records: Vectors, wanted: Sequence[str]) -> Vectors:
    """Select columns; keep all of them if one is missing, so that the target can report which columns exist."""
    names = records.batch.schema.names
    if len(names) == len(wanted) or any(name not in names for name in wanted):
        return records
    return Vectors(records.batch.select(wanted))


def _taken(records: Vectors, places: Slots) -> Vectors:
    """Return the rows at these places, which must be valid."""
    return Vectors(pc.take(records.batch, pa.array(places), boundscheck=False))


class VectorTurnRoute(TurnRoute):
    """A route that sends batches to channels in turn."""

    def add(self, records: Vectors, failed: Failed) -> None:
        self._buckets[self.turn].append(records)
        self.turn = (self.turn + 1) % len(self._ordinals)

    def drain(self) -> Buckets:
        return [(ordinal, together(bucket, self.target)) for ordinal, bucket in super().drain()]


class VectorKeyedRoute:
    """A route that sends each row to the task that owns its key, with the columns that the target uses."""

    def __init__(
        self, target: str, ordinals: Sequence[int], column: str, key_groups: int, wanted: Sequence[str] | None = None
    ) -> None:
        """
        Args:
            wanted: the names of the columns that the target uses; None for all columns.
        """
        self.target = target
        self._wanted = wanted
        self._ordinals = ordinals
        self._column = column
        self._key_groups = key_groups
        self._buckets: list[list[Vectors]] = [[] for _ in ordinals]
        self._index = KeyIndex()
        self._tasks = np.zeros(0, np.int32)

    def add(self, records: Vectors, failed: Failed) -> None:
        """Assign rows to channels; report a failure for each row whose key is NaN."""
        try:
            column = column_of(records, self._column)
        except KeyError as problem:
            raise OperatorFailed(f"key_by before {self.target!r}: {problem.args[0]}; correct the pipeline") from None
        if self._wanted is not None:
            records = _narrowed(records, self._wanted)
        if len(self._index) >= KEYS_CACHED_MAX:
            self._index, self._tasks = KeyIndex(), np.zeros(0, np.int32)
        slots = self._index.slots_of(column)
        lost = np.flatnonzero(slots < 0)
        for place in lost.tolist():
            self._fail(place, column[place].as_py(), failed)
        if lost.size:
            kept = np.flatnonzero(slots >= 0)
            records, slots = _taken(records, kept), slots[kept]
        if len(self._index) > len(self._tasks):
            self._learn()
        if len(self._ordinals) == 1:
            if len(records):
                self._buckets[0].append(records)
            return
        self._split(records, self._tasks[slots])

    def _fail(self, place: int, key: object, failed: Failed) -> None:
        try:
            canonical(key)
        except Unroutable as problem:
            failed(place, key, problem)

    def _learn(self) -> None:
        known = len(self._tasks)
        keys = self._index.keys_at(np.arange(known, len(self._index)))
        count, groups = len(self._ordinals), self._key_groups
        tasks = [task_of_group(key_group(key, groups), count, groups) for key in keys]
        self._tasks = np.concatenate([self._tasks, np.array(tasks, np.int32)])

    def _split(self, records: Vectors, tasks: Slots) -> None:
        for task, bucket in enumerate(self._buckets):
            places = np.flatnonzero(tasks == task)
            if places.size == len(records):
                bucket.append(records)
            elif places.size:
                bucket.append(_taken(records, places))

    def drain(self) -> Buckets:
        """Remove the added batches and return them by channel."""
        batches = []
        for ordinal, bucket in zip(self._ordinals, self._buckets, strict=True):
            if bucket:
                batches.append((ordinal, together(bucket, self.target)))
                bucket.clear()
        return batches
