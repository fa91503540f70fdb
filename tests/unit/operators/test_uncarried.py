"""A value that no record can hold makes one dead letter and has had no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from operators import Aggregate, Operator, Sum
from operators.tracebacks import shown
from tests.unit.operators.scene import NoSink, ran

ROWS = [{"k": 1, "id": 0}, {"k": 1, "id": 1, "bad": 1}, {"k": 1, "id": 2}]
UNCARRIED = {1}
LARGE: dict[str, Any] = {"record_bytes_max": 1000}


def key_of(record: Any) -> Any:
    return record["k"]


class Spoils(Operator):
    """Numbers the records of a key; a bad one gives what cannot leave as well."""

    def __init__(self, spoilt: Any = UNCARRIED) -> None:
        self._spoilt = spoilt

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield [record["id"], ctx.state["n"]]
        if "bad" in record:
            yield self._spoilt


def spoilt_rows(stream: Any) -> Any:
    rows = stream.key_by(key_of).table("t")
    return rows.map_values("w", lambda key, row: [row["id"], UNCARRIED] if "bad" in row else [row["id"]])


def spoilt_group(stream: Any) -> Any:
    groups = spoilt_rows(stream).group_by("g", lambda key, row: 0)
    return groups.aggregate("a", Sum(lambda row: row[0] + 1)).to_stream("ts", lambda key, row: row)


def sets(stream: Any) -> Any:
    ids: Aggregate[Any, Any] = Aggregate(list, lambda total, r: [*total, r["id"]], result=set)
    rows = stream.key_by(key_of).aggregate_table("t", ids)
    return rows.map_values("m", lambda key, row: sorted(row)).to_stream("ts", lambda key, row: row)


def totals(stream: Any) -> Any:
    total = stream.key_by(key_of).reduce("t", lambda total, r: {"text": total["text"] + r["text"]})
    return total.map("m", lambda pair: len(pair[1]["text"]))


def speculative(stream: Any) -> Any:
    keyed = stream.watermarks("t", lambda r: r["id"]).key_by(key_of)
    return keyed.process("w", Spoils("x" * 2000), delivery="speculative").revisions("r")


def two_readers(stream: Any) -> Any:
    mapped = stream.map("w", lambda r: {**r, "v": UNCARRIED} if "bad" in r else r)
    keyed = mapped.key_by(lambda r: 1 // (r["id"] - 2) or 1)
    keyed.reduce("n", lambda total, r: total + 1, initial=0).sink("second", NoSink())
    return mapped


X, Y = "x" * 600, "y" * 600
CASES: dict[str, tuple[Any, list[Any], dict[str, Any], list[Any], list[Any]]] = {
    "watermarks pass on what leaves the task": (
        lambda s: s.key_by(key_of).process("w", Spoils()).watermarks("t", lambda r: 0), ROWS, {},
        [[0, 1], [2, 2]], [("w", 1, ROWS[1])],
    ),
    "the same one by one": (
        lambda s: s.key_by(key_of).process("w", Spoils()).watermarks("t", lambda r: 0), ROWS, {"batch": 1},
        [[0, 1], [2, 2]], [("w", 1, ROWS[1])],
    ),
    "watermarks behind a map": (
        lambda s: s.map("w", lambda r: UNCARRIED if "bad" in r else r["id"]).watermarks("t", lambda r: 0), ROWS,
        {"batch": 1}, [0, 2], [("t", 1, "{1}")],
    ),
    "a row of a table that leaves through revisions is as if its function had raised": (
        lambda s: spoilt_rows(s).revisions("rev"), ROWS, {},
        [(1, None, [0]), (1, [0], None), (1, None, [2])], [("w", 1, ROWS[1])],
    ),
    "a row of a table that leaves for a group is never taken back": (
        spoilt_group, ROWS, {}, [1, None, 3], [("w", 1, ROWS[1])],
    ),
    "what stays in its task need not be carried": (sets, ROWS, {}, [[0], [0, 1], [0, 1, 2]], []),
    "a total may be larger than a record where it stays in its task": (
        totals, [{"k": 1, "text": X}] * 3, LARGE, [600, 1200, 1800], [],
    ),
    "a text that is too large to leave has had no effect": (
        lambda s: s.key_by(lambda r: 1).reduce("w", lambda total, text: total + text, initial=""), [X, Y, "z"], LARGE,
        [(1, X), (1, X + "z")], [("w", 1, shown(Y))],
    ),
    "speculative output that is too large has had no effect": (
        speculative, ROWS, LARGE, [((0.0, 0, 0, 0, 0), None, [0, 1]), ((2.0, 0, 0, 4, 0), None, [2, 2])],
        [("w", None, ROWS[1])],
    ),
    "a key that fails after a record was refused names its own record": (
        two_readers, [*ROWS, {"k": 1, "id": 3}], {"batch": 10}, [ROWS[0], ROWS[2], {"k": 1, "id": 3}],
        [("w", 1, str({**ROWS[1], "v": UNCARRIED})), ("key_by before n", 2, ROWS[2])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_value_that_cannot_be_carried_is_one_letter_and_has_no_effect(case: str) -> None:
    build, records, settings, rows, letters = CASES[case]
    result = ran(build, records, on_error="dead-letter", **settings)
    assert result["out"] == rows
    actual = [(each["operator"], each["position"], each["record"]) for each in result.rows.get("dead-letters", [])]
    assert actual == letters
