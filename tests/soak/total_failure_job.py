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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `causal run` puts only this file's directory there

from benchmarks.jobs.gated import Gated
from operators import Pipeline
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sinks.contract import Bundle, Sink, SinkStore, StoreState
from operators.sources import GeneratedSource
from tests.soak.mix import LOAD_BYTES, SOURCES, Join, Merge, make, pane

_WEIGHT = struct.Struct("<qqq")


@dataclass(frozen=True, slots=True)
class Weight:
    """The sums over the bundles of a sink."""

    rows: int
    row_bytes: int
    determinant_bytes: int


class Weighed(Sink):
    """Another sink, whose stores note the weight of each bundle in a file next to the output.

    Args:
        carried: whether the determinants are given to the store.
    """

    def __init__(self, inner: Sink, weights: Path, carried: bool) -> None:
        self._inner, self._weights, self._carried = inner, weights, carried

    def open_store(self, task: str, job_directory: Path) -> SinkStore:
        """Open a store of the other sink."""
        return _WeighedStore(self._inner.open_store(task, job_directory), self._weights, self._carried)

    def check(self) -> None:
        """Check the other sink."""
        self._inner.check()


class _WeighedStore:
    def __init__(self, inner: SinkStore, weights: Path, carried: bool) -> None:
        self._inner, self._weights, self._carried = inner, weights, carried

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `SinkStore.open`."""
        return self._inner.open(task, run, incarnation)

    def last_bundle(self) -> StoreState:
        """See `SinkStore.last_bundle`."""
        return self._inner.last_bundle()

    def write(self, bundle: Bundle) -> None:
        """See `SinkStore.write`."""
        self._inner.write(bundle if self._carried else replace(bundle, logs=()))
        entry = _WEIGHT.pack(bundle.count, len(bundle.rows), sum(len(delta.bytes) for delta in bundle.logs))
        file = os.open(self._weights, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, entry)
        finally:
            os.close(file)

    def truncate(self, epoch: int) -> None:
        """See `SinkStore.truncate`."""
        self._inner.truncate(epoch)

    def close(self) -> None:
        """See `SinkStore.close`."""
        self._inner.close()


def weight(weights: Path) -> Weight:
    """Return the sums over all bundles."""
    entries = list(_WEIGHT.iter_unpack(weights.read_bytes())) if weights.exists() else []
    return Weight(*(sum(each[place] for each in entries) for place in range(3)))


def element(name: str) -> Callable[[int, int], dict[str, Any]]:
    """Return the element function of a source, with loads of the size that is set."""
    whole = make(name)

    def cut(partition: int, i: int) -> dict[str, Any]:
        record: dict[str, Any] = whole(partition, i)
        return {**record, "load": record["load"][:load_bytes]}

    return cut


pipeline = Pipeline("total-failure")
settings = pipeline.settings
rate = float(settings.get("rate", "100"))
out = Path(settings.get("out", "out.db"))
load_bytes = int(settings.get("load_bytes", str(LOAD_BYTES)))
carried = settings.get("carried", "yes") == "yes"


def source(name: str) -> Any:
    """Return a source with as many tasks as partitions."""
    count = int(settings["count"]) if settings.get("paced", "yes") == "no" else None
    pace = None if count is not None else rate * SOURCES[name]
    generated = GeneratedSource(element(name), count, SOURCES[name], pace)
    read = Gated(generated, Path(settings.get("gate", "gate"))) if count is None else generated
    return pipeline.source(name, read, parallelism=SOURCES[name])


def weighed(name: str, sink: Sink) -> Weighed:
    """Return the sink with its notes."""
    return Weighed(sink, out.with_name(f"{name}.weights"), carried)


merged = source("orders").union(source("ticks")).key_by(lambda r: r["key"]).process("merge", Merge(), parallelism=2)
panes = merged.key_by(lambda r: r["key"]).window("panes", 0.25, pane, parallelism=1)
joined = merged.union(panes).key_by(lambda r: r["key"]).process("join", Join(), parallelism=2)
joined.sink("out", weighed("out", SqliteSink(out)))
joined.sink("lines", weighed("lines", JsonLinesSink(out.with_name("lines"))))
