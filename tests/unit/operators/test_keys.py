"""Equal keys fall into one group, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.records.keys import Unroutable, canonical, key_group, key_groups_of, task_of_group

ROOT = Path(__file__).parents[3]
scalars = (
    st.integers() | st.floats(allow_nan=False) | st.booleans() | st.text() | st.binary() | st.none()
    | st.decimals(allow_nan=False) | st.datetimes(timezones=st.none() | st.just(UTC))
)  # fmt: skip
keys = st.recursive(scalars, lambda inner: st.tuples(inner, inner), max_leaves=4)


@given(keys, keys)
def test_equal_keys_have_equal_bytes(one: Any, other: Any) -> None:
    if one == other:
        assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    "equals",
    [
        (1, True, 1.0, Decimal(1)),
        (0, False, 0.0, -0.0, Decimal("0.00")),
        (0.5, Decimal("0.5")),
        (2**80, float(2**80), Decimal(2**80)),
        (float("inf"), Decimal("Infinity")),
        ((1, ("a", 2.0)), (True, ("a", 2))),
        (
            datetime(2024, 1, 1, 12, tzinfo=UTC),
            datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        ),
    ],
)
def test_keys_that_one_dict_entry_holds_are_one_key(equals: tuple[Any, ...]) -> None:
    assert len(set(equals)) == 1
    assert len({key_group(key, 128) for key in equals}) == 1


@given(st.lists(st.integers()) | st.lists(st.text()) | st.lists(keys))
def test_many_keys_at_once_fall_into_the_groups_of_each(drawn: list[Any]) -> None:
    assert key_groups_of(drawn, 128) == [key_group(key, 128) for key in drawn]


@pytest.mark.parametrize("key", [float("nan"), Decimal("NaN"), (1, float("nan")), frozenset((1,)), object()])
def test_what_cannot_be_a_key_is_refused(key: Any) -> None:
    with pytest.raises(Unroutable, match="give key_by"):
        key_group(key, 128)


def test_a_group_does_not_depend_on_the_process() -> None:
    program = (
        "from operators.records.keys import key_group;"
        "print([key_group(k, 128) for k in ('a', 'é', b'a', 7, (1, 'x'), None)])"
    )
    environments = [{**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)} for seed in ("1", "2")]
    answers = [
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
        for env in environments
    ]
    assert answers[0] == answers[1] == f"{[key_group(k, 128) for k in ('a', 'é', b'a', 7, (1, 'x'), None)]}\n"


@given(st.integers(1, 300), st.integers(1, 64))
def test_every_task_owns_neighbouring_groups(groups: int, parallelism: int) -> None:
    owners = [task_of_group(group, parallelism, groups) for group in range(groups)]
    assert owners == sorted(owners)
    assert set(owners) <= set(range(parallelism))
    if parallelism <= groups:
        assert set(owners) == set(range(parallelism))
