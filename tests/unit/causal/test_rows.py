"""Rows are the tuples that they stand for: in their items, in their bytes, and in what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import InvariantViolation
from causal.records.batch import decode_records, decode_rows, encode_records
from causal.records.rows import Counted, Rows, copied, joined, listed, passing

VALUES = st.one_of(st.none(), st.integers(), st.text(), st.tuples(st.integers(), st.text()), st.lists(st.integers()))


def as_rows(records: Sequence[tuple[Any, ...]]) -> Rows:
    return Rows([list(column) for column in zip(*records, strict=True)])


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), min_size=1)))
def test_rows_have_the_bytes_of_their_tuples(records: list[tuple[object, ...]]) -> None:
    rows = as_rows(records)
    assert len(rows) == len(records)
    assert list(rows) == rows.listed() == list(rows) == records
    assert encode_records(rows) == encode_records(records)
    assert encode_records(decode_rows(encode_records(records))) == encode_records(records)
    assert decode_records(encode_records(rows)) == records


def test_the_tuples_are_made_once() -> None:
    rows = Rows([[1, 2], ["a", "b"]])
    assert rows.listed()[0] is rows.listed()[0] is next(iter(rows))
    assert listed(rows) is rows.listed()
    plain = [3]
    assert listed(plain) is plain


def test_no_rows_are_the_empty_list() -> None:
    assert encode_records(Rows([[], []])) == encode_records([])
    assert not Rows([[]])
    with pytest.raises(InvariantViolation):
        Rows([])


@pytest.mark.parametrize("records", [[(1, 2), (3,)], [(1,), [1]], [[1], (1,)], [(), ()], [(1, 2), "ab"], [(1,), ()]])
def test_what_is_not_rows_comes_back_as_it_was(records: list[object]) -> None:
    body = encode_records(records)
    assert decode_rows(body) == decode_records(body) == records
    assert [type(record) for record in decode_records(body)] == [type(record) for record in records]


@given(st.lists(st.lists(st.tuples(VALUES, VALUES) | st.tuples(VALUES), min_size=1), min_size=1), st.data())
def test_joined_pieces_are_the_records_in_order_in_any_form(pieces: list[list[Any]], data: st.DataObject) -> None:
    alike = [piece for piece in pieces if len(set(map(len, piece))) == 1]
    forms = [
        Rows([list(column) for column in zip(*piece, strict=True)])
        if piece in alike and data.draw(st.booleans())
        else piece
        for piece in pieces
    ]
    records = [record for piece in pieces for record in piece]
    assert list(listed(joined(forms))) == records
    assert encode_records(joined(forms)) == encode_records(records)


def test_the_pieces_of_a_list_are_not_changed_by_what_is_joined() -> None:
    pieces = [["a"], ["b"]]
    joined(pieces).append("c")
    assert pieces == [["a"], ["b"]]
    one, two = Rows([[1]]), Rows([[2]])
    assert (joined([one, two]).columns, one.columns) == ([[1, 2]], [[1]])


def test_a_list_is_copied_and_a_batch_is_not() -> None:
    plain, rows = [[1]], Rows([[1]])
    assert copied(plain) == plain and copied(plain) is not plain and copied(plain)[0] is plain[0]
    assert copied(plain, list)[0] is not plain[0]
    assert copied(rows, list) is rows


@pytest.mark.parametrize("form", [list, as_rows])
def test_records_that_pass_are_located_in_the_output(form: Callable[[Any], Any]) -> None:
    batch = form([("a", 1), ("b", 2), ("c", 3)])
    output = [("x", 0), *listed(batch)]
    asked: list[Any] = []

    def passes(record: Any, places: Iterator[tuple[int, Any]]) -> bool:
        asked.append(next(place for place, each in places if each is record))
        return bool(record[1] != 2)

    assert passing(batch, passes, output) == [("a", 1), ("c", 3)]
    assert asked == [1, 2, 3]


def test_keys_that_pass_keep_their_counts_and_are_not_located() -> None:
    counted = Counted(["a", "b"], [3, 4])
    kept = passing(counted, lambda key, places: key == "b" and not list(places), ["b"])
    assert (kept.keys, kept.counts) == (["b"], [4])
