"""Texts of PostgreSQL as values of records; what no record can hold stays the text."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.records.values import decode, encode
from operators.sources.postgres.column_values import _ARRAYS, _SCALARS, array_of, conversion_of

DEEP = "[" * 100_000 + "]" * 100_000
"""JSON that no decoder may follow to its end."""

CASES: list[tuple[int, str, Any]] = [
    (16, "t", True), (16, "f", False), (17, "\\x00ff", b"\x00\xff"), (20, "-9223372036854775808", -(2**63)),
    (701, "NaN", float("nan")), (701, "-Infinity", float("-inf")), (701, "0.1", 0.1), (700, "1e-07", 1e-7),
    (1700, "1.10", Decimal("1.10")), (1700, "NaN", Decimal("NaN")), (1700, "Infinity", Decimal("Infinity")),
    (1082, "2024-02-29", datetime(2024, 2, 29)), (1082, "infinity", "infinity"), (1082, "10000-01-01", "10000-01-01"),
    (1082, "0044-03-15 BC", "0044-03-15 BC"), (1114, "2024-01-02 03:04:05.6", datetime(2024, 1, 2, 3, 4, 5, 600_000)),
    (1184, "2024-01-02 03:04:05.000006+00", datetime(2024, 1, 2, 3, 4, 5, 6, UTC)), (1184, "-infinity", "-infinity"),
    (3802, '{"a": [1, null, 1.5]}', {"a": [1, None, 1.5]}), (114, "1e400", "1e400"), (114, '"\\ud800"', '"\\ud800"'),
    (2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), (1083, "12:00", "12:00"),
    (1007, "{1,NULL,3}", [1, None, 3]), (1007, "{{1,2},{3,4}}", [[1, 2], [3, 4]]), (1007, "{}", []),
    (1007, "[0:1]={7,8}", [7, 8]), (1000, "{t,f}", [True, False]), (1009, '{"NULL",NULL,"a\\"b\\\\","{,}"}',
    ["NULL", None, 'a"b\\', "{,}"]), (1182, '{2024-02-29,infinity}', [datetime(2024, 2, 29), "infinity"]),
    (1115, '{"2024-01-02 03:04:05"}', [datetime(2024, 1, 2, 3, 4, 5)]), (3807, '{"{\\"a\\": 1}"}', [{"a": 1}]),
    (114, DEEP, DEEP),
]  # fmt: skip


@pytest.mark.parametrize(("type_oid", "text", "value"), CASES, ids=range(len(CASES)))
def test_values(type_oid: int, text: str, value: Any) -> None:
    convert = conversion_of(type_oid)
    converted = text if convert is None else convert(text)
    assert repr(converted) == repr(value) and type(converted) is type(value)
    assert repr(decode(encode(converted))) == repr(converted)


elements = st.recursive(
    st.text(max_size=6) | st.none(), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=8
)


def written(value: Any) -> str:
    """Return an element as the server writes it, quoted."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + ",".join(map(written, value)) + "}"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def depth(value: Any) -> int:
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(st.lists(elements, max_size=4))
def test_arrays_are_what_was_written(value: list[Any]) -> None:
    if depth(value) <= 6:
        assert array_of(written(value), None) == value
    else:
        with pytest.raises(ValueError, match="too many dimensions"):
            array_of(written(value), None)


@given(
    st.sampled_from(sorted({*_SCALARS, *_ARRAYS})),
    st.text('{}",\\=[]: 0123456789.-+eNULaxtf', max_size=20) | st.text(max_size=9),
)
def test_any_text_becomes_a_value_that_records_hold(type_oid: int, text: str) -> None:
    convert = conversion_of(type_oid)
    if convert is not None:
        encode(convert(text))
