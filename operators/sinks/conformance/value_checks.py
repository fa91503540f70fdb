"""Checks of every kind of value that a record can contain: a user reads the value unchanged, or the row is refused.

A store may refuse a value for which it has no type, but it must not round, truncate, convert or omit the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from causal.errors import RowRefused
from causal.ports import Bundle
from causal.records.values import NotCarried
from operators.sinks.conformance.subject import Subject, expect, record_at

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 16777217, 1577836800, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, 1 << 80,
    0.0, -0.0, 0.1, 1.0, 16777217.0, 1e22, 1e300, 5e-324, math.nan, math.inf, -math.inf,
    Decimal("1.25"), Decimal("1.239"), Decimal("5"), Decimal("NaN"), "", "ab ", "5", "NaN", "zwölf", "a\nb\t\"\\", "\0",
    "\ud800", "\U0001f600", b"", b"ab", b"\xff\x00", datetime(2020, 1, 1), datetime(2020, 1, 1, 5, 0, 0, 1),
    datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 5, tzinfo=timezone(timedelta(hours=2))),
    [], [1, [None, "a"]], (1, 2), {}, {"a": {"b": [0.1]}}, {1: "a", 2.5: "b"}, {True: 1}, {None: 1}, {math.inf: 1},
    {(1, 2): "a"}, {b"k": 1}, {"a": math.nan, "b": [(math.inf,)]},
)  # fmt: skip
"""Values of every kind that a record can contain, including those that stores treat differently."""


def as_json(value: Any) -> Any:
    """Return the JSON value that a user reads for a written value; it follows the rules of `encode_json`."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, (list, tuple)):
        return list(map(as_json, value))
    if isinstance(value, dict):
        return {_key(key): as_json(inner) for key, inner in value.items()}
    return value


def _key(key: Any) -> str:
    if key is None or isinstance(key, bool):
        return "null" if key is None else str(key).lower()
    return str(as_json(key))


def keeps_every_value_or_refuses_it(subject: Subject) -> None:
    """Check each value inside a record: either it is read back unchanged, or its row is refused and does not appear."""
    store, state = subject.opened()
    spelled = as_json if subject.reads is None else subject.reads
    position, digest = state.next, state.digest
    taken: list[Any] = []
    for value in VALUES:
        record = {**record_at("out/0", position), "text": value}
        try:
            rows = subject.encoded(record)
        except NotCarried:
            continue
        digest += 1
        bundle = Bundle(position, 1, rows, digest, 0, 1, ())
        try:
            store.write(bundle)
        except RowRefused as refused:
            store.write(replace(bundle, refused=refused.rows))
        else:
            taken.append(spelled(record))
        position += 1
        read, wanted = subject.read("out/0"), subject.seen(taken)
        expect(same(read, wanted), "a value is kept or refused", f"{value!r} is read as {_last(read)}")
    store.close()


def _last(read: Any) -> str:
    return repr(read[-1] if isinstance(read, list) and read else read)[:300]


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; NaN equals itself, but True does not equal 1."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, float) != isinstance(other, float) and isinstance(one, (int, float)):
        return isinstance(other, (int, float)) and float(one) == float(other)
    return bool(one == other)


CHECKS: tuple[Callable[[Subject], None], ...] = (keeps_every_value_or_refuses_it,)
"""The checks of this module; each takes a fresh subject."""
