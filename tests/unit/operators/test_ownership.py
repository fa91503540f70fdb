"""A record of one's own shows nothing of what happens to its source later."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from operators.ownership import own

values = st.recursive(
    st.integers() | st.text() | st.none(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def mutables(value: Any) -> list[int]:
    inner = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, (list, tuple)) else []
    here = [id(value)] if isinstance(value, (dict, list)) else []
    return here + [found for each in inner for found in mutables(each)]


@given(values)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(value: Any) -> None:
    copied = own(value)
    assert copied == value
    assert type(copied) is type(value)
    assert not set(mutables(copied)) & set(mutables(value))


def test_objects_that_cannot_be_carried_are_passed_on() -> None:
    thing = object()
    assert own([thing])[0] is thing
