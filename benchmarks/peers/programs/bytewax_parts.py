"""Sources and sinks that the dataflows of Bytewax have in common."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from benchmarks.peers.programs import inputs

PLACE = Path(os.environ.get("PEER_PLACE", "."))
BATCH = 1000


class Reader(StatefulSourcePartition[Any, int]):
    """Slices of a partition, as fast as they are taken or each element when it is due."""

    def __init__(self, read: Any, count: int, position: int, batch: int, interval_s: float, began_s: float) -> None:
        self._read, self._count, self._position, self._batch = read, count, position, batch
        self._interval_s, self._began_s = interval_s, began_s

    def next_batch(self) -> Iterable[Any]:
        inputs.began(PLACE)
        if self._position >= self._count:
            raise StopIteration
        stop = min(self._position + self._batch, self._count)
        if self._interval_s:
            stop = min(stop, int((time.time() - self._began_s) / self._interval_s) + 1)
        start, self._position = self._position, max(stop, self._position)
        return self._read(start, self._position)

    def next_awake(self) -> datetime | None:
        if not self._interval_s:
            return None
        due_s = self._began_s + self._position * self._interval_s
        return datetime.fromtimestamp(max(due_s, time.time() + 0.002), timezone.utc)  # noqa: UP017

    def snapshot(self) -> int:
        return self._position


class Source(FixedPartitionedSource[Any, int]):
    """Two partitions."""

    def __init__(self, open_one: Any) -> None:
        self._open = open_one

    def list_parts(self) -> list[str]:
        return [str(partition) for partition in range(inputs.PARTITIONS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Reader:
        return self._open(int(for_part), resume_state or 0)


class Tallied(StatelessSinkPartition[Any]):
    """Tallies what it is given."""

    def __init__(self, tally: inputs.Tally) -> None:
        self._tally = tally

    def write_batch(self, items: list[Any]) -> None:
        self._tally.add(items)

    def close(self) -> None:
        self._tally.write()


class Sink(DynamicSink[Any]):
    """One partition per worker."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Any:
        return self._make()
