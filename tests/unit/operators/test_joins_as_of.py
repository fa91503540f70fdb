"""`join_table(as_of=True)`: the row that was valid at the record's own time, whatever came when and how batched."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import pytest

from causal.errors import PipelineError
from operators import Count, Pipeline, Stream, Table
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import At, run

DAY_S = 86_400
How = Literal["inner", "left"]


def unread(partition: int, i: int) -> Any:
    """Return a record of a source whose records the test supplies instead."""
    return 0


def at_of(record: Any) -> float:
    return float(record["at"])


def key_of(record: Any) -> Any:
    return record["k"]


def built(
    how: How = "inner",
    bounds: tuple[float, float] = (0, 0),
    idle_s: float | None = None,
    partitions: int = 1,
    parallelism: int = 1,
    deleting: bool = False,
    **options: Any,
) -> Pipeline:
    pipeline = Pipeline("as-of")
    left: Stream[Any] = pipeline.source("records", GeneratedSource(lambda p, i: 0, count=0, partitions=partitions))
    right: Stream[Any] = pipeline.source("rows", GeneratedSource(lambda p, i: 0, count=0, partitions=partitions))
    records = left.watermarks("left", at_of, out_of_order_s=bounds[0])
    rows = right.watermarks("right", at_of, out_of_order_s=bounds[1], idle_after_s=idle_s)
    table: Table[Any, Any] = rows.key_by(key_of).table("table")
    if deleting:
        table = table.filter("there", lambda key, row: row["v"] % 3).map_values("value", lambda key, row: row["v"])
    else:
        table = table.map_values("value", lambda key, row: row["v"])
    options = options or {"as_of": True}
    joined = records.key_by(key_of).join_table(
        "joined", table, how=how, fn=lambda record, v: (record["id"], v), parallelism=parallelism, **options
    )
    joined.sink("out", SqliteSink("out.db"))
    joined.side("late").sink("late", SqliteSink("late.db"))
    return pipeline


def record(number: int, at: float, key: Any = "a") -> dict[str, Any]:
    return {"id": number, "at": at, "k": key}


def row(value: int, at: float, key: Any = "a") -> dict[str, Any]:
    return {"v": value, "at": at, "k": key}


def test_late_records_are_put_aside_and_late_rows_are_valid_from_the_watermark_on() -> None:
    inputs = {
        "records": [record(0, 10), record(1, 100), record(2, 20), record(3, 105), record(4, 200)],
        "rows": [row(1, 0), row(2, 90), row(3, 50), row(4, 60, "b"), row(5, 150)],
    }
    results = {
        (tuple(result["out"]), tuple(each["id"] for each in result["late"]), result.counts["joined"]["late_rows"])
        for result in (
            run(built("left"), inputs, seed=seed, batch=batch) for seed, batch in product(range(6), (1, 2, 100))
        )
    }
    assert results == {(((0, 1), (1, 2), (3, 2), (4, 5)), (2,), 2)}


def test_a_late_row_does_not_come_before_a_later_deletion() -> None:
    rows = [row(1, 0), row(3, 80), row(2, 200, "b"), row(4, 50)]  # a multiple of three is no row
    inputs = {"records": [record(0, 10), record(1, 90), record(2, 300)], "rows": [*rows, row(7, 400, "b")]}
    for seed, batch in product(range(6), (1, 2, 100)):
        result = run(built("left", deleting=True), inputs, seed=seed, batch=batch)
        assert result["out"] == [(0, 1), (1, None), (2, None)]


def test_what_is_kept_is_bounded_by_the_watermark() -> None:
    from causal.records.batch import watermark
    from operators.engine.plan import plan
    from tests.unit.operators.scene import NoSink, Services, chain_of, config, listed, source

    pipeline = Pipeline("kept")
    records = pipeline.source("records", source()).watermarks("left", at_of).key_by(key_of)
    table = pipeline.source("rows", source()).watermarks("right", at_of).key_by(key_of).table("table")
    records.join_table("joined", table.filter("there", lambda key, value: value["v"]), as_of=True).sink("out", NoSink())
    chain: Any = chain_of(plan(pipeline, config()), "joined/0")

    def entry_counts() -> dict[str, int]:
        return {table.name.partition(":")[2]: table.snapshot(True).step(1000) for table in chain._root.stage.tables()}

    def mark(at_s: float) -> None:
        for input in (0, 1):
            chain.deliver(input, [watermark(int(at_s * 1e9))], 0, Services())

    for n in range(100):
        chain.deliver(1, listed([row(n % 10, n, n % 3)]), n, Services())
        chain.deliver(0, listed([record(n, n, n % 3)]), n, Services())
    assert entry_counts() == {"rows": 0, "held": 100, "versions": 100, "deleted": 0}
    mark(50)
    assert entry_counts() == {"rows": 3, "held": 50, "versions": 49, "deleted": 6}
    mark(99)
    assert entry_counts() == {"rows": 3, "held": 1, "versions": 0, "deleted": 10}
    mark(100 + DAY_S)
    assert entry_counts() == {"rows": 3, "held": 0, "versions": 0, "deleted": 0}
    chain.deliver(1, listed([row(0, 101 + DAY_S, key) for key in range(3)]), 200, Services())
    mark(102 + DAY_S)
    assert entry_counts() == {"rows": 3, "held": 0, "versions": 0, "deleted": 3}
    mark(101 + 2 * DAY_S)
    assert entry_counts() == {"rows": 0, "held": 0, "versions": 0, "deleted": 0}


def test_an_idle_table_is_not_waited_for() -> None:
    inputs = {
        "records": [record(0, 10), At(60, record(1, 20)), At(120, record(2, 30)), At(180, record(3, 40))],
        "rows": [row(1, 0), At(90, row(2, 5)), At(3600, row(3, 100))],
    }
    result = run(built(idle_s=10), inputs)
    assert result["out"] == [(0, 1), (1, 2), (2, 2), (3, 2)]


def test_the_table_may_end_first_or_have_other_readers() -> None:
    pipeline = Pipeline("both")
    records = pipeline.source("records", GeneratedSource(unread, count=0)).watermarks("left", at_of)
    rows = pipeline.source("rows", GeneratedSource(unread, count=0)).watermarks("right", at_of)
    table = rows.key_by(key_of).table("table")
    table.to_stream("changes", lambda key, value: value and value["v"]).sink("rows-out", SqliteSink("a.db"))
    joined = records.key_by(key_of).join_table("joined", table, as_of=True)
    joined.sink("out", SqliteSink("b.db"))
    inputs: dict[str, list[Any]] = {
        "records": [At(50, record(n, n * 10)) for n in range(4)],
        "rows": [row(n, n * 15) for n in range(3)],
    }
    result = run(pipeline, inputs)
    assert result["rows-out"] == [0, 1, 2]
    assert [(one["id"], valid["v"]) for one, valid in result["out"]] == [(0, 0), (1, 0), (2, 1), (3, 2)]


def test_a_function_that_raises_makes_no_row_and_one_letter() -> None:
    pipeline = Pipeline("raising")
    records = pipeline.source("records", GeneratedSource(unread, count=0)).watermarks("left", at_of)
    rows = pipeline.source("rows", GeneratedSource(unread, count=0)).watermarks("right", at_of)
    table = rows.key_by(key_of).table("table").map_values("inverse", lambda key, value: 10 // value["v"])
    joined = records.key_by(key_of).join_table("joined", table, as_of=True, how="left", fn=lambda r, v: (r["id"], v))
    joined.sink("out", SqliteSink("b.db"))
    inputs = {"records": [record(n, 1 + n) for n in range(3)], "rows": [row(5, 0), row(0, 2), row(2, 3)]}
    result = run(pipeline, inputs, on_error="dead-letter")
    assert result["out"] == [(0, 2), (1, None), (2, 5)]
    assert [letter["operator"] for letter in result["dead-letters"]] == ["inverse"]


def stream_and_table(pipeline: Pipeline, watermarked: bool = True) -> tuple[Any, Any]:
    records = pipeline.source("records", GeneratedSource(lambda p, i: 0, count=0)).watermarks("left", at_of)
    rows: Any = pipeline.source("rows", GeneratedSource(lambda p, i: 0, count=0))
    return records.key_by(key_of), (rows.watermarks("right", at_of) if watermarked else rows).key_by(key_of)


def test_what_has_no_versions_is_refused() -> None:
    pipeline = Pipeline("refused")
    records, rows = stream_and_table(pipeline)
    with pytest.raises(PipelineError, match="'counts' does not say when its rows became valid; use stream.key_by"):
        records.join_table("joined", rows.aggregate_table("counts", Count()), as_of=True)
    with pytest.raises(PipelineError, match="has as_of 1; use True or False"):
        records.join_table("joined", rows.table("table"), as_of=1)
    pipeline = Pipeline("no-time")
    records, rows = stream_and_table(pipeline, watermarked=False)
    records.join_table("joined", rows.table("table"), as_of=True).sink("out", SqliteSink("o.db"))
    with pytest.raises(PipelineError, match="as of the time of each record, but 'rows' has no event time; put"):
        pipeline.check()
