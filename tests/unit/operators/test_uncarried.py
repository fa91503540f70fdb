"""A value that no record can hold makes one dead letter and has had no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from operators import Aggregate, Operator, Pipeline, Sum
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import run

ROWS = [{"k": 1, "id": 0}, {"k": 1, "id": 1, "bad": 1}, {"k": 1, "id": 2}]
UNCARRIED = {1}


def key_of(record: Any) -> Any:
    return record["k"]


def started() -> tuple[Pipeline, Any]:
    pipeline = Pipeline("p")
    return pipeline, pipeline.source("in", GeneratedSource(lambda partition, index: index, count=0))


def outcome(pipeline: Pipeline, records: Any = ROWS, **settings: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the rows, and the letters."""
    result = run(pipeline, {"in": records}, on_error="dead-letter", **settings)
    return result["out"], result.rows.get("dead-letters", [])


class Spoils(Operator):
    """Numbers the records of a key, and adds a set to the output of a bad one."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield [record["id"], ctx.state["n"]]
        if "bad" in record:
            yield UNCARRIED


@pytest.mark.parametrize("batch", [1, 3])
def test_watermarks_pass_on_what_leaves_the_task(batch: int) -> None:
    pipeline, stream = started()
    spoilt = stream.key_by(key_of).process("w", Spoils()).watermarks("t", lambda r: 0)
    spoilt.sink("out", JsonLinesSink("."))
    rows, [letter] = outcome(pipeline, batch=batch)
    assert rows == [[0, 1], [2, 2]]
    assert (letter["operator"], letter["position"], letter["key"], letter["record"]) == ("w", 1, 1, ROWS[1])


def test_watermarks_with_a_record_that_cannot_be_carried_name_its_position() -> None:
    pipeline, stream = started()
    spoilt = stream.map("w", lambda r: UNCARRIED if "bad" in r else r["id"]).watermarks("t", lambda r: 0)
    spoilt.sink("out", JsonLinesSink("."))
    rows, [letter] = outcome(pipeline, batch=1)
    assert (rows, letter["position"]) == ([0, 2], 1)


def spoilt_rows(stream: Any) -> Any:
    rows = stream.key_by(key_of).table("t")
    return rows.map_values("w", lambda key, row: [row["id"], UNCARRIED] if "bad" in row else [row["id"]])


def test_a_row_of_a_table_that_leaves_through_revisions_is_as_if_its_function_had_raised() -> None:
    pipeline, stream = started()
    spoilt_rows(stream).revisions("rev").sink("out", JsonLinesSink("."))
    rows, [letter] = outcome(pipeline)
    assert rows == [(1, None, [0]), (1, [0], None), (1, None, [2])]
    assert letter["operator"] == "w"


def test_a_row_of_a_table_that_leaves_for_a_group_is_never_taken_back() -> None:
    pipeline, stream = started()
    groups = spoilt_rows(stream).group_by("g", lambda key, row: 0)
    groups.aggregate("a", Sum(lambda row: row[0] + 1)).to_stream("ts", lambda key, row: row).sink(
        "out", JsonLinesSink(".")
    )
    rows, [letter] = outcome(pipeline)
    assert rows[-1] == 3 and letter["operator"] == "w"


def test_what_stays_in_its_task_need_not_be_carried() -> None:
    pipeline, stream = started()
    sets: Aggregate[Any, Any] = Aggregate(list, lambda total, r: [*total, r["id"]], result=set)
    rows = stream.key_by(key_of).aggregate_table("t", sets)
    rows.map_values("m", lambda key, row: sorted(row)).to_stream("ts", lambda key, row: row).sink(
        "out", JsonLinesSink(".")
    )
    assert outcome(pipeline) == ([[0], [0, 1], [0, 1, 2]], [])


def test_a_total_may_be_larger_than_a_record_where_it_stays_in_its_task() -> None:
    pipeline, stream = started()
    totals = stream.key_by(lambda r: 1).reduce("t", lambda total, r: {"s": total["s"] + r["s"]})
    totals.map("m", lambda pair: len(pair[1]["s"])).sink("out", JsonLinesSink("."))
    rows, letters = outcome(pipeline, [{"s": "x" * 600}] * 3, record_bytes_max=1000)
    assert (rows, letters) == ([600, 1200, 1800], [])


def test_a_text_that_is_too_large_to_leave_has_had_no_effect() -> None:
    pipeline, stream = started()
    stream.key_by(lambda r: 1).reduce("t", lambda total, text: total + text, initial="").sink("out", JsonLinesSink("."))
    rows, letters = outcome(pipeline, ["x" * 600, "y" * 600, "z"], record_bytes_max=1000)
    assert rows == [(1, "x" * 600), (1, "x" * 600 + "z")] and len(letters) == 1


def test_speculative_output_that_is_too_large_has_had_no_effect() -> None:
    class Large(Spoils):
        def process(self, record: Any, ctx: Any) -> Iterator[Any]:
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            yield [record["id"], ctx.state["n"], "x" * (2000 if "bad" in record else 1)]

    pipeline, stream = started()
    keyed = stream.watermarks("t", lambda r: r["id"]).key_by(key_of)
    keyed.process("w", Large(), delivery="speculative").revisions("r").sink("out", JsonLinesSink("."))
    rows, [letter] = outcome(pipeline, record_bytes_max=1000)
    assert "[2, 2, 'x']" in str(rows) and letter["operator"] == "w"


def test_a_key_that_fails_after_a_record_was_refused_names_its_own_record() -> None:
    pipeline, stream = started()
    mapped = stream.map("w", lambda r: {**r, "v": UNCARRIED} if r["id"] == 1 else r)
    mapped.sink("out", JsonLinesSink("."))
    keyed = mapped.key_by(lambda r: 1 // (r["id"] - 3) or 1)
    keyed.reduce("n", lambda total, r: total + 1, initial=0).sink("second", JsonLinesSink("."))
    _, letters = outcome(pipeline, [{"id": number} for number in range(6)], batch=10)
    assert [(each["operator"], each["position"]) for each in letters] == [("w", 1), ("key_by before n", 3)]
    assert letters[1]["record"] == {"id": 3}
