"""Fragments return what was packed, in columns or not, and those of an earlier version are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CorruptData
from causal.records.values import NESTING_MAX, NotCarried, decode, encode
from operators.state.fragments import Entry, packed, unpacked

SCALARS = st.one_of(st.integers(), st.text(max_size=3), st.booleans(), st.none(), st.binary(max_size=3))
KEYS = st.one_of(
    st.text(max_size=3),
    st.tuples(st.text(max_size=3), st.integers()),
    st.tuples(st.text(max_size=3), st.tuples(st.integers(), st.integers())),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple))


@given(
    keys=st.one_of(st.lists(KEYS), st.lists(st.tuples(st.text(max_size=3), st.tuples(st.integers(), st.integers())))),
    values=st.one_of(st.lists(VALUES), st.lists(st.tuples(st.integers(), st.floats(allow_nan=False)))),
    gone=st.lists(KEYS),
)
def test_what_is_packed_is_unpacked(keys: list[Any], values: list[Any], gone: list[Any]) -> None:
    entries: list[Entry] = [(keys, values, gone), ([], [], []), ([()], [(), ()], [])]
    for entry in entries:
        assert repr(unpacked(packed(entry))) == repr(entry)
        assert unpacked(encode(list(entry))) == entry


def test_windows_and_joins_are_packed_without_an_extension() -> None:
    entry = ([("a", (1, 2)), ("b", (3, 4))], [(1, 2.5), (3, 4.5)], [("c", (5, 6))])
    assert decode(packed(entry)) == [
        [2, [0, ["a", "b"]], [2, [0, [1, 3]], [0, [2, 4]]]],
        [2, [0, [1, 3]], [0, [2.5, 4.5]]],
        [2, [0, ["c"]], [2, [0, [5]], [0, [6]]]],
        1,
    ]


def nested(depth: int) -> list[Any]:
    value: list[Any] = [0]
    for _ in range(depth - 1):
        value = [value]
    return value


def test_what_is_as_deep_as_can_be_is_carried_as_it_was() -> None:
    for depth in range(NESTING_MAX - 6, NESTING_MAX + 1):
        entry: Any = (["a"], [(nested(depth), 1)], [])
        try:
            plain = encode(list(entry))
        except NotCarried:
            with pytest.raises(NotCarried):
                packed(entry)
            continue
        assert encode(list(unpacked(packed(entry)))) == plain


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(CorruptData, match="resume with the version that wrote it"):
        unpacked(encode([[], [], [], 2]))
