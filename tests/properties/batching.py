"""Results by event time do not depend on how records were batched (D13).

A seed draws a pipeline, its input, and circumstances: batch sizes, whose turn it is, checkpoints, crashes, state on
disk.  In all of them the rows must be the same: as they come (`rows`), or, where several tasks or inputs meet, as a
multiset.  Where the meaning is arrival, a crash must show nowhere (`unbroken`).

    python -m tests.properties.batching --examples N [--first SEED] [--only NAME] [--soak]
"""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections import Counter as Multiset
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from operators import (
    Count,
    CountWindow,
    Global,
    ListState,
    MapState,
    Operator,
    Pipeline,
    ReducingState,
    Session,
    Sliding,
    Stream,
    Sum,
    Tumbling,
    ValueState,
    at_end,
    every,
    every_s,
)
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import TrialResult, run

BATCHES = (1, 2, 3, 7, 50, 1000)
PROGRESS = 100

Record = dict[str, Any]
Inputs = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One pipeline and its input.

    Attributes:
        build: makes a new pipeline for each run.
        tasks: that may die.
        rows: what must be equal, of what a run gave.
    """

    build: Callable[[], Pipeline]
    inputs: Inputs
    tasks: list[str]
    rows: Callable[[TrialResult], Any]


Draw = Callable[[Random], Case]


def examine(name: str, seed: int) -> None:
    """Draw an example and run it under several circumstances.

    Raises:
        AssertionError: the rows of two runs differ.
    """
    chance = Random(f"{name} {seed}")
    case = DRAWS[name](chance)
    first: Any = None
    for number in range(4):
        batch = chance.choice(BATCHES[2:] if number % 2 else BATCHES[:2])
        options: dict[str, Any] = {"seed": chance.randint(0, 10_000), "batch": batch}
        if number:
            options["crash"] = _crashes(chance, case, options)
            options["checkpoint_every"] = chance.choice([0, 3, 20, None])
        if chance.random() < 0.2:
            options["state"] = "disk"
        rows = case.rows(run(case.build(), case.inputs, **options))
        if number == 0:
            first = rows
        elif rows != first:
            raise AssertionError(f"with {options} the rows are others: {_difference(first, rows)}")


def _crashes(chance: Random, case: Case, options: dict[str, Any]) -> dict[str, int]:
    """Draw at most one death, after this many records of its task: a run without crashes shows how many it has."""
    if chance.random() < 0.3:
        return {}
    elements = run(case.build(), case.inputs, **options).elements
    task = chance.choice(case.tasks)
    return {task: chance.randint(1, elements[task])} if elements.get(task) else {}


def _difference(first: Any, rows: Any) -> str:
    if isinstance(first, Multiset) and isinstance(rows, Multiset):
        return f"missing {list((first - rows).elements())[:5]}, extra {list((rows - first).elements())[:5]}"
    return f"{first!r:.1500} and {rows!r:.1500}"


# What is compared.


def in_order(result: TrialResult) -> Any:
    """Return the rows of all sinks in the order of arrival."""
    return {sink: list(result[sink]) for sink in sorted(result.rows)}


def as_multiset(result: TrialResult) -> Any:
    """Return the rows of all sinks without an order."""
    return Multiset((sink, repr(row)) for sink in sorted(result.rows) for row in result[sink])


def folded(result: TrialResult) -> Any:
    """Return the rows that revisions of the sink `out` add up to; each must say what was there."""
    rows: dict[str, Any] = {}
    for key, old, new in result["out"]:
        standing = rows.pop(repr(key), None)
        if standing != old:
            raise AssertionError(f"a revision of {key!r} says that {old!r} was there, not {standing!r}")
        if new is not None:
            rows[repr(key)] = new
    return rows


# Input.


def at_of(record: Record) -> float:
    """Return the event time."""
    return float(record["at"])


def key_of(record: Record) -> Any:
    """Return the key."""
    return record["k"]


def _records(chance: Random, disorder_s: float, size: int = 60, shift: float = 0.0, ties: bool = True) -> list[Record]:
    """Draw records; without `ties` no two have the same time."""
    keys: list[Any] = chance.choice([[0], [0, 1], ["a", "b", (1, "c")]])
    now_s = chance.choice([-50.0, 0.0, 1.7e9])
    records: list[Record] = []
    for number in range(chance.randint(1, size)):
        now_s += chance.choice([0, 1, 2] if ties else [0.01, 0.2, 1, 1, 2, 5, 9, 60])
        at_s = now_s if ties else round(now_s + shift + number / 8192, 6)
        records.append({"at": at_s, "k": chance.choice(keys), "n": number})
    return sorted(records, key=lambda record: record["at"] + chance.random() * disorder_s)


def _bound_s(chance: Random, disorder_s: float, late: bool) -> float:
    """A bound on disorder that is kept, or, where records may be late, perhaps not."""
    return disorder_s * chance.choice([0.2, 0.5, 1]) if late else disorder_s


def _disorder_s(chance: Random) -> float:
    return chance.choice([0.0, 0.0, 3.0, 10.0, 40.0])


def _source(pipeline: Pipeline, name: str, bound_s: float, partitions: int = 1, tasks: int = 1) -> Any:
    generated = GeneratedSource(lambda p, i: 0, count=0, partitions=partitions)
    stream: Stream[Any] = pipeline.source(name, generated, parallelism=tasks)
    return stream.watermarks(f"{name}-time", at_of, out_of_order_s=bound_s)


def _one(
    chance: Random,
    add: Callable[[Any], Any],
    rows: Callable[[TrialResult], Any] = in_order,
    late: bool = True,
    aside: bool = False,
) -> Case:
    """An operator `op` behind one partition of one stream, whose records may be late."""
    disorder_s = _disorder_s(chance)
    bound_s = _bound_s(chance, disorder_s, late)

    def build() -> Pipeline:
        pipeline = Pipeline("one")
        stream = add(_source(pipeline, "in", bound_s))
        stream.sink("out", SqliteSink("out.db"))
        if aside:
            stream.side("late").sink("late", SqliteSink("late.db"))
        return pipeline

    return Case(build, {"in": _records(chance, disorder_s, ties=chance.random() < 0.5)}, ["op/0"], rows)


def _two(chance: Random, add: Callable[[Any, Any], Any], rows: Callable[[TrialResult], Any] = as_multiset) -> Case:
    """An operator `op` in two tasks behind two streams of two partitions each; no record is late.

    A task that reads both partitions of a stream gives them in an order that is chance: then there are no ties.
    """
    disorders = [_disorder_s(chance) for _ in "ab"]
    tasks, inputs = chance.choice([1, 2]), dict[str, Any]()
    for name, disorder_s, shift in zip("ab", disorders, (0.0, 1 / 16384), strict=True):
        records = _records(chance, disorder_s, 40, shift, ties=tasks == 2)
        inputs[name] = [records[0::2], records[1::2]]

    def build() -> Pipeline:
        pipeline = Pipeline("two")
        streams = [_source(pipeline, name, bound_s, 2, tasks) for name, bound_s in zip("ab", disorders, strict=True)]
        add(*streams).sink("out", SqliteSink("out.db"))
        return pipeline

    return Case(build, inputs, ["op/0", "op/1", "a/0"], rows)


# Windows.


def _assigner(chance: Random) -> Any:
    size_s = chance.choice([0.5, 3, 10, 60])
    return chance.choice(
        [
            Tumbling(size_s),
            Tumbling(size_s, offset_s=1),
            Sliding(size_s, size_s / 2),
            Session(chance.choice([1, 4, 20])),
        ]
    )


def _listed(key: Any, records: list[Record], window: Any) -> list[Any]:
    return [(key, window.start, window.end, [record["n"] for record in records])]


def windows(chance: Random) -> Case:
    """Windows of event time, with late records, by function and by aggregate."""
    assigner, lateness_s = _assigner(chance), chance.choice([0, 0, 2, 30])
    contents = chance.choice([_listed, Count(), Sum(lambda record: record["n"])])
    return _one(chance, lambda s: s.key_by(key_of).window("op", assigner, contents, lateness_s=lateness_s), aside=True)


def triggered_windows(chance: Random) -> Case:
    """Windows that emit before their end; by number of records, or by event time in order."""
    trigger = chance.choice([every(3), every(2, purge=True), at_end()])
    assigner = Global() if trigger.__class__.__name__ == "Every" and chance.random() < 0.5 else _assigner(chance)
    if isinstance(assigner, Session):
        assigner = Tumbling(5)
    return _one(chance, lambda s: s.key_by(key_of).window("op", assigner, _listed, trigger=trigger), as_multiset)


def windows_in_order(chance: Random) -> Case:
    """Windows over two streams by event time."""
    assigner = _assigner(chance)
    trigger = chance.choice([None, every_s(2, clock="event")]) if not isinstance(assigner, Session) else None

    def add(a: Any, b: Any) -> Any:
        keyed = a.union(b).timed(at_of).key_by(key_of)
        return keyed.window("op", assigner, _listed, trigger=trigger, delivery="ordered", parallelism=2)

    return _two(chance, add)


def count_windows(chance: Random) -> Case:
    """Windows of so many records of a key."""
    size = chance.randint(1, 5)
    return _one(chance, lambda s: s.key_by(key_of).window("op", CountWindow(size), _listed))


# Joins.


def _ids(left: Any, right: Any) -> Any:
    return [None if side is None else side["n"] for side in (left, right)]


def interval_joins(chance: Random) -> Case:
    """Pairs that are near one another."""
    before_s = chance.choice([-30, -2, 0, 1])
    within, how = (before_s, before_s + chance.choice([0, 3, 60])), chance.choice(["inner", "left", "right", "outer"])
    return _two(
        chance, lambda a, b: a.key_by(key_of).join("op", b.key_by(key_of), within, how=how, fn=_ids, parallelism=2)
    )


def window_joins(chance: Random) -> Case:
    """Pairs of one window."""
    assigner = chance.choice([Tumbling(5), Sliding(10, 5), Tumbling(60)])
    how = chance.choice(["inner", "left", "right", "outer"])
    return _two(
        chance,
        lambda a, b: a.key_by(key_of).window_join("op", b.key_by(key_of), assigner, how=how, fn=_ids, parallelism=2),
    )


def as_of_joins(chance: Random) -> Case:
    """Records with the rows of their own times."""
    how, option = chance.choice(["inner", "left"]), chance.choice(["as_of", "wait"])

    def add(a: Any, b: Any) -> Any:
        table = b.key_by(key_of).table("table").filter("there", lambda key, row: row["n"] % 4)
        return a.key_by(key_of).join_table("op", table, how=how, fn=_ids, parallelism=2, **{option: True})

    return _two(chance, add)


# State, timers, order.


class Aging(Operator):
    """Deduplication by state of every kind."""

    value = ValueState[int](ttl_s=8)
    items = ListState[int](ttl_s=5)
    named = MapState[int, int](ttl_s=3)
    total = ReducingState[int](lambda a, b: a + b, ttl_s=60)

    def process(self, record: Record, ctx: Any) -> Iterator[Any]:
        """Read all states, then changes some."""
        n = record["n"]
        yield [n, self.value.value, list(self.items), dict(self.named), len(self.named), self.total.value]
        if self.value.value is None:
            self.value.value = n
        if n % 3 == 0:
            self.items.append(n)
        self.named[n % 4] = n
        if n % 2:
            self.total.add(n)


class Timed(Aging):
    """The same with event-time timers, which see state too, set others and clear one another."""

    def process(self, record: Record, ctx: Any) -> Iterator[Any]:
        """Set timers before, at and after the record's time."""
        yield from super().process(record, ctx)
        n = record["n"]
        ctx.set_timer(record["at"] + (n % 7 - 2), str(n % 5), clock="event")
        if n % 4 == 0:
            ctx.clear_timer("3", clock="event")
        yield ("at", n, ctx.event_time(), ctx.watermark())

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        """Emit all state that it sees."""
        yield ("timer", name, ctx.key, ctx.event_time(), ctx.watermark(), list(self.items), dict(self.named))
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if ctx.state["n"] % 3:
            ctx.set_timer(ctx.event_time() + 1.25, name + "'" if len(name) < 3 else "0", clock="event")

    def finish(self, ctx: Any) -> Iterator[Any]:
        """Emit all state that is left."""
        yield ("end", ctx.key, self.value.value, list(self.items), dict(self.named), self.total.value)


def times_to_live(chance: Random) -> Case:
    """State that grows old, as records arrive, some of them late."""
    return _one(chance, lambda s: s.key_by(key_of).process("op", Aging()))


def timers_in_order(chance: Random) -> Case:
    """Timers, state that grows old and the end of the input, over two streams by event time."""

    def add(a: Any, b: Any) -> Any:
        keyed = a.union(b).timed(at_of).key_by(key_of)
        return keyed.process("op", Timed(), delivery="ordered", parallelism=2)

    return _two(chance, add)


class Recent(Operator):
    """Pairs a record with the record of its key before it."""

    def process(self, record: Record, ctx: Any) -> Iterator[Any]:
        """Emit pairs."""
        before, ctx.state["n"] = ctx.state.get("n"), record["n"]
        yield [ctx.key, before, record["n"]]


def speculation(chance: Random) -> Case:
    """Two streams, corrected; the sum of the corrections is the result in order."""

    def rows(result: TrialResult) -> Any:
        standing = Multiset(repr(row) for row in folded(result).values())
        if standing != Multiset(map(repr, result["ordered"])):
            raise AssertionError("what stands in the end is not what the operator gives in order")
        return standing

    disorders = [_disorder_s(chance) for _ in "ab"]
    shifts = (0.0, 1 / 16384)
    inputs = {
        name: _records(chance, disorder_s, 30, shift)
        for name, disorder_s, shift in zip("ab", disorders, shifts, strict=True)
    }

    def build() -> Pipeline:
        pipeline = Pipeline("speculation")
        a, b = [_source(pipeline, name, bound_s) for name, bound_s in zip("ab", disorders, strict=True)]
        keyed = a.union(b).timed(at_of).key_by(key_of)
        table = keyed.process("op", Recent(), delivery="speculative", parallelism=2)
        table.revisions("revisions").sink("out", SqliteSink("out.db"))
        keyed = a.union(b).timed(at_of).key_by(key_of)
        keyed.process("in-order", Recent(), delivery="ordered").sink("ordered", SqliteSink("ordered.db"))
        return pipeline

    return Case(build, inputs, ["in-order/0", "a/0"], rows)


# Tables.


def window_tables(chance: Random) -> Case:
    """Sum of the revisions of windows, suppressed or not; late records are put aside."""
    assigner = chance.choice([Tumbling(5), Sliding(10, 5)])
    grace_s, how = chance.choice([0, 3, 40]), chance.choice([None, {"until": "closed"}, {"after_s": 4}])

    def add(stream: Any) -> Any:
        table = stream.key_by(key_of).window_table("op", assigner, Sum(lambda r: r["n"]), grace_s=grace_s)
        table.side("late").map("late-ids", lambda r: r["n"]).sink("late", SqliteSink("late.db"))
        if how is not None:
            table = table.suppress("suppressed", **how)
        return table.revisions("revisions")

    return _one(chance, add, lambda result: (folded(result), list(result["late"])))


def tables(chance: Random) -> Case:
    """Sum of the revisions of a table and of groups of its rows."""
    after_s = chance.choice([0.5, 10])

    def add(stream: Any) -> Any:
        rows = stream.key_by(lambda r: r["n"] % 7).table("op")
        groups = rows.group_by("groups", lambda key, row: row["k"]).aggregate("sums", Sum(lambda r: r["n"]))
        return groups.suppress("suppressed", after_s=after_s).revisions("revisions")

    return _one(chance, add, folded)


# One after another.


def chains(chance: Random) -> Case:
    """Deduplication, then windows of the rest, then an interval join of the windows with the stream."""
    assigner = chance.choice([Tumbling(5), Tumbling(20), Sliding(10, 5)])

    class FirstOnly(Operator):
        seen = ValueState[bool](ttl_s=4)

        def process(self, record: Record, ctx: Any) -> Iterator[Any]:
            if not self.seen.value:
                self.seen.value = True
                yield record

    def add(stream: Any) -> Any:
        first = stream.key_by(key_of).process("first", FirstOnly()).timed(at_of)
        counted = first.key_by(key_of).window("op", assigner, Count())
        ends = counted.map("ends", lambda row: {"k": row[0], "at": row[3] - 1e-6, "n": row[1]}).timed(at_of)
        return first.key_by(key_of).join("joined", ends.key_by(key_of), (0, 20), how="left", fn=_ids)

    return _one(chance, add, as_multiset, late=False)


def arrival(chance: Random) -> Case:
    """Two streams as they arrive: which order that is is chance, but no row contradicts one that was seen."""

    def rows(result: TrialResult) -> Any:
        last: dict[str, Any] = {}
        for key, before, after in result["out"]:
            if last.get(repr(key)) != before:
                raise AssertionError(f"key {key!r}: {before!r} stands before {after!r}, not {last.get(repr(key))!r}")
            last[repr(key)] = after
        return len(result["out"])

    disorders = (3.0, 3.0)
    inputs = {name: _records(chance, 3.0, 40) for name in "ab"}

    def build() -> Pipeline:
        pipeline = Pipeline("arrival")
        a, b = [_source(pipeline, name, bound_s) for name, bound_s in zip("ab", disorders, strict=True)]
        a.union(b).timed(at_of).key_by(key_of).process("op", Recent(), parallelism=1).sink("out", SqliteSink("o.db"))
        return pipeline

    return Case(build, inputs, ["op/0", "a/0"], rows)


DRAWS: dict[str, Draw] = {
    draw.__name__.replace("_", "-"): draw
    for draw in (
        windows, triggered_windows, windows_in_order, count_windows, interval_joins, window_joins, as_of_joins,
        times_to_live, timers_in_order, speculation, window_tables, tables, chains, arrival,
    )
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 if every example passed, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.batching", description=__doc__)
    parser.add_argument("--examples", type=int, default=300, metavar="N", help="how many examples to run (300)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed of each kind (0)")
    parser.add_argument("--only", metavar="NAME", choices=list(DRAWS), help=f"one kind: {', '.join(DRAWS)}")
    parser.add_argument("--soak", action="store_true", help="run until stopped with Ctrl-C")
    options = parser.parse_args(argv)
    for stop in (signal.SIGINT, signal.SIGTERM):  # a shell starts what runs in the background deaf to Ctrl-C
        signal.signal(stop, signal.default_int_handler)
    names = [options.only] if options.only else list(DRAWS)
    passed = failed = 0
    try:
        for number in count() if options.soak else range(options.examples):
            name, seed = names[number % len(names)], options.first + number // len(names)
            try:
                examine(name, seed)
                passed += 1
            except Exception as problem:
                failed += 1
                print(f"{name}, seed {seed}: {type(problem).__name__}: {problem}")
                print("".join(traceback.format_tb(problem.__traceback__)[-1:]), end="")
                print(
                    f"repeat: python -m tests.properties.batching --only {name} --first {seed} --examples 1", flush=True
                )
            if (passed + failed) % PROGRESS == 0:
                print(f"… {passed} passed, {failed} failed", flush=True)
    except KeyboardInterrupt:
        pass
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
