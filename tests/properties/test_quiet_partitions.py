"""A partition that is ahead in event time and gives nothing more holds back no result after a change of parallelism.

Before the savepoint one task may read several partitions, and passes on their least watermark.  Another task that reads
only the partition that is ahead afterwards must say how far it is, although no record comes.  What comes out, before
the input ends and in the end, is what comes out without a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from causal.records.values import encode
from operators import Count, Operator, Pipeline, Session, Tumbling, ValueState
from operators.sources import GeneratedSource
from tests.oracles.frame import AnySink
from tests.properties.upgrades.driving import Event, Outcome, Scene, performed
from tests.properties.upgrades.graphs import Numbered, Timed, at_of, key_of, pair

PARTITIONS = 3


class Remembering(Operator):
    """Shows the time of the last record of a key, unless it has expired."""

    last = ValueState[int](ttl_s=5)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        """Emit both times."""
        yield [ctx.key, record["at"], self.last.value]
        self.last.value = record["at"]


Stream = Callable[[str, int], Any]
"""Returns the keyed stream of a source with so many partitions."""
KINDS: Mapping[str, Callable[[Stream, int], Any]] = {
    "timers": lambda of, tasks: of("a", PARTITIONS).process("core", Timed(1), tasks),
    "window": lambda of, tasks: of("a", PARTITIONS).window("core", Tumbling(6), Count(), parallelism=tasks),
    "session": lambda of, tasks: of("a", PARTITIONS).window("core", Session(3), Count(), parallelism=tasks),
    "ttl": lambda of, tasks: of("a", PARTITIONS).process("core", Remembering(), tasks),
    "ordered": lambda of, tasks: of("a", PARTITIONS).process("core", Numbered(1), tasks, delivery="ordered"),
    "ordered ttl": lambda of, tasks: of("a", PARTITIONS).process("core", Remembering(), tasks, delivery="ordered"),
    "join": lambda of, tasks: of("a", PARTITIONS).join(
        "core", of("b", 1), within=(-2, 2), fn=pair, how="outer", parallelism=tasks
    ),
    "window join": lambda of, tasks: of("a", PARTITIONS).window_join(
        "core", of("b", 1), Tumbling(6), fn=pair, how="outer", parallelism=tasks
    ),
}


def built(kind: str, readers: int, tasks: int) -> Pipeline:
    """Build a version: `readers` tasks read the partitions, and so many perform the operator."""
    pipeline = Pipeline("p")

    def stream(name: str, partitions: int) -> Any:
        source = GeneratedSource(lambda partition, number: number, count=0, partitions=partitions)
        read: Any = pipeline.source(name, source, parallelism=min(readers, partitions))
        return read.watermarks(f"{name}-time", at_of, out_of_order_s=2).key_by(key_of)

    KINDS[kind](stream, tasks).sink("out", AnySink())
    return pipeline


def record_of(source: str, partition: int, key: str, at: int) -> Event:
    """A record; no two have the same time, so that event time orders all of them."""
    return Event((source, partition), {"k": key, "at": at, "v": at})


BEFORE = [
    record_of("b", 0, "y", 5), record_of("b", 0, "x", 60), record_of("a", 1, "x", 27), record_of("a", 2, "z", 38),
    record_of("a", 0, "x", 3), record_of("a", 0, "y", 4),
]  # fmt: skip
AFTER = [
    record_of("a", 0, "y", 12), record_of("a", 0, "y", 13), record_of("a", 0, "z", 14), record_of("a", 0, "y", 3),
    record_of("a", 0, "x", 20), record_of("a", 0, "y", 21), record_of("a", 0, "x", 15),
]  # fmt: skip
"""Two records of the last ones are late."""

ENDS = [Event(("a", 0), ends=True), Event(("b", 0), ends=True), Event(("a", 2), ends=True), Event(("a", 1), ends=True)]

Widths = tuple[int, int]
"""The number of tasks that read the partitions of `a`, and of those that perform the operator."""


CHANGES: Sequence[tuple[Widths, Widths]] = [
    ((1, 3), (3, 2)), ((1, 2), (2, 3)), ((2, 2), (3, 2)), ((3, 3), (1, 2)), ((2, 2), (2, 2)),
]  # fmt: skip


def outcome(kind: str, widths: Sequence[Widths], events: Sequence[Event], to_the_end: bool) -> Outcome:
    """Return the rows of both versions."""
    before, after = (partial(built, kind, *each) for each in widths)
    return performed(Scene(before, after, events, len(BEFORE)), Random(1), to_the_end=to_the_end)


def counted(rows: Mapping[str, Sequence[Any]]) -> Counter[bytes]:
    """Return how often each row came."""
    return Counter(map(encode, rows.get("out", ())))


@pytest.mark.parametrize("to_the_end", [False, True], ids=["open", "ended"])
@pytest.mark.parametrize("widths", CHANGES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_quiet_partition_that_is_ahead_holds_nothing_back(
    kind: str, widths: Sequence[Widths], to_the_end: bool
) -> None:
    events = [*BEFORE, *AFTER, *(ENDS if to_the_end else [])]
    wanted = outcome(kind, ((1, 1), (1, 1)), events, to_the_end)
    got = outcome(kind, widths, events, to_the_end)
    assert counted(wanted.after)
    for rows, expected in zip(got.both(), wanted.both(), strict=True):
        assert counted(rows) == counted(expected)


FORMS = ("new", "fused", "united")
"""The operator is new, or it follows another new one in the task of its source, or it reads one more stream."""


def changed(kind: str, form: str, readers: int, tasks: int, after: bool) -> Pipeline:
    """Build a version before or after the operator reads the partitions; others always do."""
    pipeline = Pipeline("p")

    def stream(name: str, partitions: int) -> Any:
        source = GeneratedSource(lambda partition, number: number, count=0, partitions=partitions)
        read: Any = pipeline.source(name, source, parallelism=min(readers, partitions))
        timed = read.watermarks(f"{name}-time", at_of, out_of_order_s=2)
        timed.key_by(key_of).process(f"{name}-known", Numbered(1)).sink(f"{name}-out", AnySink())
        return timed

    streams = {"a": stream("a", PARTITIONS), "b": stream("b", 1)}

    def keyed(name: str, _: int) -> Any:
        if form == "united" and name == "a":
            name = "c"
            streams[name] = streams["a"].union(streams["b"]) if after else streams["b"]
        read = streams[name].filter(f"{name}-more", bool) if form == "fused" else streams[name]
        return read.key_by(key_of)

    if after or form == "united":
        KINDS[kind](keyed, tasks).sink("out", AnySink())
    return pipeline


@pytest.mark.parametrize("to_the_end", [False, True], ids=["open", "ended"])
@pytest.mark.parametrize("widths", [(2, 1), (3, 1), (3, 2)], ids=str)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_learns_how_far_new_inputs_are(kind: str, form: str, widths: Widths, to_the_end: bool) -> None:
    events = [*BEFORE, *AFTER, *(ENDS if to_the_end else [])]

    def rows(readers: int, tasks: int) -> Counter[bytes]:
        before, after = (partial(changed, kind, form, readers, tasks, version) for version in (False, True))
        return counted(performed(Scene(before, after, events, len(BEFORE)), Random(1), to_the_end=to_the_end).after)

    assert rows(*widths) == rows(1, 1)
