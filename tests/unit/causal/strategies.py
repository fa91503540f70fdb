"""Values that a pipeline may carry, and equality that misses nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

_DAY = 86_400_000_000
offsets = (
    st.integers(-1439, 1439).map(lambda minutes: minutes * 60_000_000)
    | st.integers(-1_000_001, 1_000_001)
    | st.integers(1 - _DAY, _DAY - 1)
).map(lambda microseconds: timezone(timedelta(microseconds=microseconds)))
"""Offsets of all sizes, to the microsecond: of a second and less, too."""
datetimes = st.builds(
    lambda value, fold: value.replace(fold=fold),
    st.datetimes(timezones=st.none() | offsets),
    st.sampled_from((0, 1)),
)
texts = st.text(st.characters(), max_size=12) | st.text(st.characters(categories=["Cs", "Lu"]), max_size=4)
hashable: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=12)
    | datetimes
    | st.decimals(allow_nan=False)
)
scalars = hashable | st.floats() | st.decimals(allow_nan=True)
keys = st.recursive(hashable, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


_PLAIN = {type(None), bool, int, float, str, bytes}
"""The types whose values Python itself spells as no value of another type."""


def _all_plain(values: Any) -> bool:
    inner = values.values() if type(values) is dict else ()
    return _PLAIN.issuperset(map(type, values)) and _PLAIN.issuperset(map(type, inner))


def spelled(value: Any) -> str:
    """Differs when types, order of keys, sign of zero, zone or fold differ; equal for equal NaNs."""
    if type(value) in (list, tuple, dict) and _all_plain(value):
        return f"{type(value).__name__} {value!r}"
    if type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(map(spelled, value))})"
    if type(value) is dict:
        return "{" + ", ".join(f"{spelled(key)}: {spelled(item)}" for key, item in value.items()) + "}"
    if type(value) is datetime:
        return f"{value!r} {value.fold} {value.tzname()}"
    return f"{type(value).__name__} {value!r}"
