"""State continues only where it means what it meant: other windows, another aggregate, another source are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import pytest

from causal.errors import PipelineError
from causal.records.batch import watermark
from operators import Operator, Pipeline, Stream
from operators.engine.plan import Plan, plan
from operators.kinds.windows.aggregates import Aggregate, Count, Max, Mean, Min, Sum
from operators.kinds.windows.assigners import CountWindow, Global, Session, Sliding, Tumbling
from operators.sources import FilesSource, GeneratedSource, SequenceSource
from tests.unit.operators.scene import NoSink, Services, config, parts_of, records_chunk, records_in, source
from tests.unit.operators.test_rescaling import GROUPS, rescaled, saved
from tests.unit.operators.versions import Version

Build = Callable[[Any], Any]
S = 1_000_000_000


def time_of(record: Any) -> Any:
    return record[1]


def built(build: Build, read: Any = None) -> Plan:
    pipeline = Pipeline("test")
    stream: Stream[Any] = pipeline.source("in", read or source())
    timed = stream.watermarks("times", time_of).key_by(lambda record: record[0])
    build(timed).sink("out", NoSink())
    return plan(pipeline, config(key_groups=GROUPS))


def windowed(assigner: Any, contents: Any) -> Build:
    return lambda stream: stream.window("w", assigner, contents)


def continued(before: Plan, after: Plan) -> Any:
    return rescaled(before, saved(before, {}), after).chains()


def add(total: int, record: Any) -> int:
    return total + 1


class Mine(Aggregate[Any, int]):
    def __init__(self) -> None:
        super().__init__(int, add, merge=add)


WINDOWS = {
    "tumbling": Tumbling(30),
    "longer": Tumbling(40),
    "shifted": Tumbling(30, offset_s=5),
    "by the wall clock": Tumbling(30, clock="processing"),
    "sliding": Sliding(30, 10),
    "sliding by the wall clock": Sliding(30, 10, clock="processing"),
    "more of it": Sliding(60, 10),
    "session": Session(30),
    "longer session": Session(60),
    "records": CountWindow(30),
    "more records": CountWindow(40),
    "records again and again": CountWindow(30, every=10),
    "global": Global(),
}
CONTENTS: dict[str, Any] = {
    "Count": Count(),
    "Sum": Sum(time_of),
    "Mean": Mean(time_of),
    "Min": Min(time_of),
    "Max": Max(time_of),
    "Aggregate": Mine(),
    "records": lambda key, records, window: records,
}


@pytest.mark.parametrize("before, after", [*permutations(WINDOWS, 2)])
def test_windows_are_not_taken_for_others(before: str, after: str) -> None:
    plans = [built(windowed(WINDOWS[name], Count())) for name in (before, after)]
    meant = r"\w+\(.*\) of Count( in slices)?"
    with pytest.raises(PipelineError, match=rf"window 'w' was {meant} when .* is {meant} now"):
        continued(*plans)


@pytest.mark.parametrize("before, after", [*permutations(CONTENTS, 2)])
@pytest.mark.parametrize("assigner", [Tumbling(30), Global(), CountWindow(9)], ids=["time", "global", "count"])
def test_an_accumulator_is_not_taken_for_another(before: str, after: str, assigner: Any) -> None:
    plans = [built(windowed(assigner, CONTENTS[name])) for name in (before, after)]
    with pytest.raises(PipelineError, match=f"'w' was .* of {before} when .* is .* of {after} now; .* a new name"):
        continued(*plans)


def test_the_rows_of_a_table_are_of_one_aggregate() -> None:
    tables: list[Build] = [
        lambda stream: stream.aggregate_table("t", Count()).to_stream("s"),
        lambda stream: stream.aggregate_table("t", Mean(time_of)).to_stream("s"),
    ]
    with pytest.raises(PipelineError, match="aggregate_table 't' was Count when .* is Mean now"):
        continued(*map(built, tables))


FOLDS: dict[str, Callable[[Any], Any]] = {
    "count": lambda stream: stream.count("n"),
    "sum": lambda stream: stream.sum("n", "v"),
    "min": lambda stream: stream.min("n", "v"),
    "max": lambda stream: stream.max("n", "v"),
    "another column": lambda stream: stream.sum("n", "w"),
}


@pytest.mark.parametrize("before, after", [*permutations(FOLDS, 2)])
def test_a_fold_of_vectors_is_not_taken_for_another(before: str, after: str) -> None:
    def folded(name: str) -> Version:
        return Version(lambda stream: {"out": FOLDS[name](stream.to_vectors("v", schema).key_by("k"))})

    schema = {"k": "int64", "v": "int64", "w": "int64"}
    version = folded(before).give({"k": 1, "v": 2, "w": 3})
    with pytest.raises(PipelineError, match="operator 'n' was a '|sum 'n' was one of column '.' when .* is one of"):
        version.becomes(folded(after))


JOINS: dict[str, Build] = {
    "how='inner'": lambda stream: stream.join("j", stream, within=(-2, 2)),
    "how='left'": lambda stream: stream.join("j", stream, within=(-2, 2), how="left"),
    "how='inner' and Tumbling": lambda stream: stream.window_join("j", stream, Tumbling(3)),
    "how='inner' and Sliding": lambda stream: stream.window_join("j", stream, Sliding(3, 1)),
    "how='outer' and Tumbling": lambda stream: stream.window_join("j", stream, Tumbling(3), how="outer"),
}


@pytest.mark.parametrize("before, after", [*permutations(JOINS, 2)])
def test_a_join_keeps_what_its_windows_and_its_rows_without_a_partner_need(before: str, after: str) -> None:
    with pytest.raises(PipelineError, match=f"'j' was (a '|one with {before}).* (is a '|one with {after})"):
        continued(built(JOINS[before]), built(JOINS[after]))


def test_a_join_with_a_table_is_as_of_a_time_or_not() -> None:
    def joined(as_of: bool, stream: Any) -> Any:
        return stream.join_table("j", stream.table("rows"), as_of=as_of, fn=lambda record, row: record)

    with pytest.raises(PipelineError, match="join_table 'j' was one with how='inner' when .* and as_of=True now"):
        continued(built(partial(joined, False)), built(partial(joined, True)))


def test_tables_are_joined_in_one_way() -> None:
    def joined(how: str, stream: Any) -> Any:
        return (
            stream.table("left").join("j", stream.table("right"), how=how, fn=lambda left, right: left).to_stream("s")
        )

    with pytest.raises(PipelineError, match="table_join 'j' was one with how='inner' when .* is one with how='outer'"):
        continued(built(partial(joined, "inner")), built(partial(joined, "outer")))


def test_other_functions_and_parameters_of_the_same_continue() -> None:
    for one, other in [
        (Sum(time_of), Sum(lambda record: record[1] + 1)),
        (Mine(), Aggregate(int, add, merge=add)),
        (CONTENTS["records"], lambda key, records, window: []),
    ]:
        plans = [built(windowed(Tumbling(30), contents)) for contents in (one, other)]
        assert continued(*plans)


class Own(SequenceSource[Any]):
    """A source of a user, by the numbers of its elements."""


def test_positions_are_not_taken_for_those_of_another_source(tmp_path: Any) -> None:
    (tmp_path / "a.jsonl").write_text("[1, 2]\n")

    def count(stream: Any) -> Any:
        return stream.count("n")

    generated = built(count, GeneratedSource(lambda partition, i: (0, i), count=9))
    assert continued(generated, built(count, GeneratedSource(lambda partition, i: (1, i), count=99)))
    assert continued(
        built(count),
        built(count, Own(lambda partition, first, count: [(0, i) for i in range(first, first + count)], 9, 1)),
    )
    with pytest.raises(
        PipelineError, match="source 'in' was GeneratedSource when .* is FilesSource now; its positions"
    ):
        continued(generated, built(count, FilesSource(str(tmp_path / "*.jsonl"))))


def test_what_was_written_before_meanings_were_continues() -> None:
    before = built(lambda stream: stream.window("w", Tumbling(30), Count()))
    parts: dict[str, list[list[bytes]]] = {}
    for task in before.topology.tasks:
        chain = before.chain(task.index)
        for stage in getattr(chain, "stages", ()):
            stage.meaning = ""
        parts[task.name] = [parts_of(chain, True)]
    after = built(lambda stream: stream.window("w", Tumbling(40), Count()))
    assert rescaled(before, saved(before, parts), after).chains()


class Last(Operator):
    """Each record with the one before it."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield record[1], ctx.state.get("last")
        ctx.state["last"] = record[1]


def delivered(delivery: str, stream: Any) -> Any:
    return stream.process("o", Last(), delivery=delivery)


def test_an_operator_gets_its_records_in_order_from_an_upgrade_on() -> None:
    before, after = (built(partial(delivered, delivery)) for delivery in ("arrival", "ordered"))
    task = before.topology.named("o/0")
    assert task is not None
    chain = before.chain(task.index)
    chain.deliver(0, [records_chunk([("k", 3.0), ("k", 2.0)]), watermark(2 * S)], 0, Services())
    parts = {"o/0": [parts_of(chain, True)]}
    now = after.topology.named("o/0")
    assert now is not None
    continuing = after.chain(now.index)
    continuing.restore(rescaled(before, saved(before, parts), after).chains()["o/0"])
    out = continuing.deliver(0, [records_chunk([("k", 5.0), ("k", 4.0)]), watermark(9 * S)], 2, Services())
    assert records_in(out) == [(4.0, 2.0), (5.0, 4.0)]
