"""Rows are the tuples that they stand for: in their items, in their bytes, and in what comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import InvariantViolation
from causal.records.batch import decode_records, decode_rows, encode_records
from causal.records.rows import Rows, listed

VALUES = st.one_of(st.none(), st.integers(), st.text(), st.tuples(st.integers(), st.text()), st.lists(st.integers()))


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), min_size=1)))
def test_rows_have_the_bytes_of_their_tuples(records: list[tuple[object, ...]]) -> None:
    rows = Rows([list(column) for column in zip(*records, strict=True)])
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
