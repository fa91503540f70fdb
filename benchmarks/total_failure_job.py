"""The pipeline of `total_failure`: merges, timers, dice, calls and windows of `torture_mix`, into two kinds of sinks.

Its sources come at a pace until a file says at which element they end; with `paced=no` they have `count` elements, and
come as fast as they are taken.  Its stores note what each bundle carries; with `carried=no` they are not
given the determinants, to measure what these cost and to see that they are needed.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `causal run` puts only this file's directory there

from benchmarks.torture_mix import LOAD_BYTES, SOURCES, Join, Merge, make, pane
from operators import Pipeline
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sinks.base import Bundle, Held, Sink, SinkStore
from operators.sources import GeneratedSource
from operators.sources.base import PartitionReader, Read, Source, SourceContext

LOOK_S = 0.02
_WEIGHT = struct.Struct("<qqq")


@dataclass(frozen=True, slots=True)
class Weight:
    """What the bundles of a sink came to."""

    rows: int
    row_bytes: int
    determinant_bytes: int


class Weighed(Sink):
    """Another sink, whose stores note the weight of each bundle in a file beside the output.

    Args:
        carried: whether the determinants are given to the store.
    """

    def __init__(self, inner: Sink, weights: Path, carried: bool) -> None:
        self._inner, self._weights, self._carried = inner, weights, carried

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """The other sink's."""
        return _WeighedStore(self._inner.open_store(task, job_directory), self._weights, self._carried)

    def check(self) -> None:
        """The other sink's."""
        self._inner.check()


class _WeighedStore:
    def __init__(self, inner: SinkStore, weights: Path, carried: bool) -> None:
        self._inner, self._weights, self._carried = inner, weights, carried

    def open(self, task: str, run: str, incarnation: int) -> Held:
        """See `SinkStore.open`."""
        return self._inner.open(task, run, incarnation)

    def last_bundle(self) -> Held:
        """See `SinkStore.last_bundle`."""
        return self._inner.last_bundle()

    def write(self, bundle: Bundle) -> None:
        """See `SinkStore.write`."""
        self._inner.write(bundle if self._carried else replace(bundle, logs=()))
        told = _WEIGHT.pack(bundle.count, len(bundle.rows), sum(len(delta.bytes) for delta in bundle.logs))
        file = os.open(self._weights, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, told)
        finally:
            os.close(file)

    def truncate(self, epoch: int) -> None:
        """See `SinkStore.truncate`."""
        self._inner.truncate(epoch)

    def close(self) -> None:
        """See `SinkStore.close`."""
        self._inner.close()


def weight(weights: Path) -> Weight:
    """The sums over all bundles."""
    told = list(_WEIGHT.iter_unpack(weights.read_bytes())) if weights.exists() else []
    return Weight(*(sum(each[place] for each in told) for place in range(3)))


def element(name: str) -> Callable[[int, int], dict[str, Any]]:
    """The element function of a source, with loads of the size that is set."""
    whole = make(name)

    def cut(partition: int, i: int) -> dict[str, Any]:
        record: dict[str, Any] = whole(partition, i)
        return {**record, "load": record["load"][:load_bytes]}

    return cut


class Until(Source[dict[str, Any]]):
    """Elements at a pace; each partition ends before the element whose number is in the file, once it is there.

    The number must be higher than that of any element that is due when it is written.
    """

    def __init__(self, name: str, rate: float, gate: Path) -> None:
        self.partitions = SOURCES[name]
        self._gate = gate
        self._paced = GeneratedSource(element(name), None, self.partitions, rate * self.partitions)

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """See `Source.open`."""
        return _Until(self._paced.open(partition, context), self._gate)


class _Until:
    def __init__(self, paced: PartitionReader, gate: Path) -> None:
        self._paced, self._gate = paced, gate

    def read(self, position: int, count_max: int) -> Read | None:
        """See `PartitionReader.read`."""
        if not self._gate.exists():
            return self._paced.read(position, count_max)
        left = int(self._gate.read_text()) - position
        if left <= 0:
            return Read([], 0, ended=True)
        return self._paced.read(position, min(count_max, left))

    def ready_in_s(self, position: int) -> float:
        """See `PartitionReader.ready_in_s`; the file may come at any time."""
        return min(LOOK_S, self._paced.ready_in_s(position)) or LOOK_S

    def completed(self, position: int) -> None:
        """Nothing is held, so nothing is let go."""

    def close(self) -> None:
        """Nothing is open."""


pipeline = Pipeline("total-failure")
settings = pipeline.settings
rate = float(settings.get("rate", "100"))
out = Path(settings.get("out", "out.db"))
load_bytes = int(settings.get("load_bytes", str(LOAD_BYTES)))
carried = settings.get("carried", "yes") == "yes"


def source(name: str) -> Any:
    """As many tasks as partitions."""
    read: Source[Any] = Until(name, rate, Path(settings.get("gate", "gate")))
    if settings.get("paced", "yes") == "no":
        read = GeneratedSource(element(name), int(settings["count"]), SOURCES[name])
    return pipeline.source(name, read, parallelism=SOURCES[name])


def weighed(name: str, sink: Sink) -> Weighed:
    """The sink with its notes."""
    return Weighed(sink, out.with_name(f"{name}.weights"), carried)


merged = source("orders").union(source("ticks")).key_by(lambda r: r["key"]).process("merge", Merge(), parallelism=2)
panes = merged.key_by(lambda r: r["key"]).window("panes", 0.25, pane, parallelism=1)
joined = merged.union(panes).key_by(lambda r: r["key"]).process("join", Join(), parallelism=2)
joined.sink("out", weighed("out", SqliteSink(out)))
joined.sink("lines", weighed("lines", JsonLinesSink(out.with_name("lines"))))
