"""Two states are compared by what is in them, not by how they grew."""

from __future__ import annotations

from operators.parts import ChainSnapshot
from operators.rehearsals import _ordered, _whole
from operators.state import Table


class OneTable:
    """As much of a chain as a snapshot takes."""

    def __init__(self, values: dict[str, int]) -> None:
        self._table = Table("t", "t", 128, values, False)

    def snapshot(self, full: bool) -> ChainSnapshot:
        return ChainSnapshot(full, {}, [self._table.snapshot(full)])


def told(values: dict[str, int]) -> list[object]:
    return [_ordered(part) for part in _whole(OneTable(values))]  # type: ignore[arg-type]


def test_the_order_in_which_keys_came_does_not_show() -> None:
    keys = [f"key{i}" for i in range(3000)]
    forwards, backwards = dict.fromkeys(keys, 1), dict.fromkeys(reversed(keys), 1)
    assert _whole(OneTable(forwards)) != _whole(OneTable(backwards)), "else this test shows nothing"  # type: ignore[arg-type]
    assert told(forwards) == told(backwards)


def test_another_value_shows() -> None:
    keys = [f"key{i}" for i in range(3000)]
    assert told(dict.fromkeys(keys, 1)) != told({**dict.fromkeys(keys, 1), "key7": 2})
    assert told({"a": 1}) != told({"a": 1, "b": 1})
