"""Two states are compared by what is in them, not by how they grew."""

from __future__ import annotations

from causal.records.values import decode
from operators.state.canonical_parts import entries_of, ordered_part, whole
from operators.state.fragments import packed
from operators.state.keyed_tables import KeyedTable
from operators.state.snapshot_parts import ChainSnapshot


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
