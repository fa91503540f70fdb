"""Differing rows side by side: which rows form a pair, which fields differ, and what is counted."""

from __future__ import annotations

import json
from collections import Counter
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators import Pipeline
from operators.replay import comparison
from operators.replay.comparison import Comparison
from operators.replay.pairing import (
    FIELD,
    FIRST,
    ORDER,
    WHOLE,
    Pair,
    RowKey,
    Side,
    differing,
    field_of,
    paired,
    row_key,
)
from operators.replay.performance import Rows, Step
from operators.sources import GeneratedSource
from tests.members import examples
from tests.unit.operators.scene import NoSink

BY_KEY = RowKey(FIELD, ("key",))


def step(number: int) -> Step:
    return Step(number, "in", 0, number, number + 1)


def sides(*rows: tuple[int, Any]) -> list[Side]:
    return [Side(json.dumps(row), "out/0", step(number)) for number, row in rows]


def shown(pair: Pair) -> tuple[Any, Any]:
    before, after = (None if side is None else json.loads(side.row) for side in (pair.before, pair.after))
    return before, after


def test_rows_of_one_step_and_key_are_paired_before_others() -> None:
    before = sides((1, {"key": "a", "n": 1}), (2, {"key": "a", "n": 2}))
    after = sides((2, {"key": "a", "n": 20}), (3, {"key": "b", "n": 3}))
    pairs = list(paired(before, after, BY_KEY))
    assert [shown(pair) for pair in pairs] == [
        ({"key": "a", "n": 2}, {"key": "a", "n": 20}),
        ({"key": "a", "n": 1}, None),
        (None, {"key": "b", "n": 3}),
    ]
    assert pairs[0].fields == ("n",)


def test_rows_of_other_steps_are_paired_in_their_order() -> None:
    before = sides((1, {"key": "a", "n": 1}), (2, {"key": "a", "n": 2}))
    after = sides((7, {"key": "a", "n": 3}), (8, {"key": "a", "n": 4}), (9, {"key": "a", "n": 5}))
    pairs = [shown(pair) for pair in paired(before, after, BY_KEY)]
    assert [(b and b["n"], a and a["n"]) for b, a in pairs] == [(1, 3), (2, 4), (None, 5)]


def test_rows_without_a_key_are_paired_only_within_a_step_of_equally_many() -> None:
    before, after = sides((1, 5), (2, 6), (2, 7)), sides((1, 50), (2, 60))
    pairs = [shown(pair) for pair in paired(before, after, RowKey())]
    assert pairs == [(5, 50), (6, None), (7, None), (None, 60)]


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ["b"]),
        ({"a": 1}, {"a": 1, "b": None}, ["b"]),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ["a.b[1].c"]),
        ({"a": 1}, {"a": 1.0}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": 0.0}, {"a": -0.0}, ["a"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, [ORDER]),
        ([1, 2], [1, 3], ["[1]"]),
        ([1, 2], [1], [WHOLE]),
        (1, "1", [WHOLE]),
        ({"a": 1}, {"a": 1}, []),
    ],
)
def test_fields_that_differ(before: Any, after: Any, fields: list[str]) -> None:
    assert differing(before, after) == fields


def test_a_key_is_the_field_by_which_the_stream_was_keyed_last() -> None:
    pipeline = Pipeline("keyed")
    stream = pipeline.source("in", GeneratedSource(lambda p, i: {"user": i}, count=1))
    stream.key_by(lambda row: row["user"]).count("n").sink("out", NoSink())
    sink = pipeline.nodes[-1]
    assert row_key(sink, {"user": 1, "key": 2}) == RowKey(FIELD, ("user",))
    assert row_key(sink, {"key": 2}) == BY_KEY
    assert row_key(sink, {"other": 2}) == RowKey()
    assert row_key(sink, [1, 2]) == RowKey(FIRST)


def test_fields_of_key_functions() -> None:
    assert field_of(lambda row: row["user"]) == "user"
    assert field_of(itemgetter("user")) == "user"
    assert field_of(lambda row: row["user"].lower()) == ""
    assert field_of(lambda row: row[1]) == ""
    assert field_of(None) == ""


rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12)


@examples(60)
@given(st.lists(st.tuples(rows, rows), max_size=5), st.booleans())
def test_counts_are_those_of_multisets(content: list[tuple[Any, Any]], small: bool) -> None:
    compared = Comparison(lambda sink, row: BY_KEY)
    totals: list[Counter[bytes]] = [Counter(), Counter()]
    before_max = comparison.DIFFERING_BYTES_MAX
    try:
        comparison.DIFFERING_BYTES_MAX = 2_000 if small else before_max
        for number, both in enumerate(content):
            encoded = [[json.dumps({"key": key, "n": n}).encode() for key, n in own] for own in both]
            for total, own in zip(totals, encoded, strict=True):
                total.update(own)
            before, after = ({"out/0": own} if own else {} for own in encoded)
            compared.add(step(number), before, after, number)
        compared.finish()
    finally:
        comparison.DIFFERING_BYTES_MAX = before_max
    sink = compared.sinks.get("out")
    if sink is None:
        assert not any(totals)
        return
    assert sink.same + sink.pairs.changed + sink.only_before == sink.rows[0] == totals[0].total()
    assert sink.same + sink.pairs.changed + sink.only_after == sink.rows[1] == totals[1].total()
    if not compared.paired_early:
        assert sink.same == (totals[0] & totals[1]).total()
        assert compared.differs == (totals[0] != totals[1])
    keys = [sum(counts[place] for counts in sink.pairs.keys.values()) for place in range(3)]
    assert keys == [sink.pairs.changed, sink.pairs.only_before, sink.pairs.only_after]


def test_the_first_differing_step_is_known() -> None:
    compared = Comparison(lambda sink, row: BY_KEY)
    for number in range(6):
        before: Rows = {"out/0": [b'{"key": 1, "n": %d}' % number]}
        after: Rows = {"out/0": [b'{"key": 1, "n": %d}' % (number + 10 if number >= 4 else number)]}
        compared.add(step(number), before, after, number)
    compared.finish()
    assert compared.first == 4
