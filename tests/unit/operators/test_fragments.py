"""Fragments return what was packed, of earlier versions too; states are compared by content, not by how they grew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CorruptData
from causal.records.values import NESTING_MAX, NotCarried, decode, encode
from operators.state.canonical_parts import entries_of, ordered_part, whole
from operators.state.fragments import Entry, packed, unpacked
from operators.state.keyed_tables import KeyedTable
from operators.state.snapshot_parts import ChainSnapshot

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


# Two states are compared by what is in them, not by how they grew.


class OneTable:
    """The part of a chain that a snapshot needs."""

    def __init__(self, values: dict[str, int]) -> None:
        self._table = KeyedTable("t", "t", 128, values)

    def snapshot(self, full: bool, behind: str = "") -> ChainSnapshot:
        return ChainSnapshot(full, {}, [self._table.snapshot(full)])


def ordered_snapshot(values: dict[str, int]) -> list[object]:
    return [ordered_part(part) for part in whole(OneTable(values))]  # type: ignore[arg-type]


def test_the_order_in_which_keys_came_does_not_show() -> None:
    keys = [f"key{i}" for i in range(3000)]
    forwards, backwards = dict.fromkeys(keys, 1), dict.fromkeys(reversed(keys), 1)
    assert whole(OneTable(forwards)) != whole(OneTable(backwards)), "else this test shows nothing"  # type: ignore[arg-type]
    assert ordered_snapshot(forwards) == ordered_snapshot(backwards)


def test_another_value_shows() -> None:
    keys = [f"key{i}" for i in range(3000)]
    assert ordered_snapshot(dict.fromkeys(keys, 1)) != ordered_snapshot({**dict.fromkeys(keys, 1), "key7": 2})
    assert ordered_snapshot({"a": 1}) != ordered_snapshot({"a": 1, "b": 1})


def test_the_order_in_which_tuples_were_encoded_makes_no_difference() -> None:
    keys, values = [("a", (1, 2)), ("b", (3, 4)), ("c", (5, 6))], [(1,), (2,), (3,)]
    one = packed((keys, values, [("d", (7, 8))]))
    several = [packed((keys[2:], values[2:], [])), packed((keys[1::-1], values[1::-1], [("d", (7, 8))]))]
    assert len(decode(one)) == 4, "in columns"
    assert sorted(entries_of([one])) == sorted(entries_of(several))
