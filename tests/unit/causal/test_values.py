"""MessagePack returns exactly what was encoded, or refuses it; hostile bytes are refused in one way."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import uuid
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given

from causal.records.values import NotCarried, decode, encode, encode_loosely, place_of_refused
from tests.unit.causal.strategies import spelled, values


@given(values)
def test_a_value_comes_back_as_it_went_in(value: Any) -> None:
    assert spelled(decode(encode(value))) == spelled(value)


@given(values)
def test_a_value_has_one_encoding(value: Any) -> None:
    again = decode(encode(value))
    assert encode(again) == encode(value) == encode_loosely(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [((1,), [1]), (1, 1.0), (1, True), ("a", b"a"), ({1: 0}, {"1": 0}), (0.0, -0.0), (Decimal("1.0"), Decimal("1"))],
)
def test_values_that_differ_have_different_bytes(one: Any, other: Any) -> None:
    assert encode(one) != encode(other)


class _Text(str):
    pass


_Pair = collections.namedtuple("_Pair", "a b")


class _Zone(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, at: datetime | None) -> str:
        return "X"

    def dst(self, at: datetime | None) -> timedelta:
        return timedelta(0)

    def __repr__(self) -> str:
        return "_Zone()"


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _circle_of_tuples() -> Any:
    inner: list[Any] = []
    inner.append((inner,))
    return inner


def _times_of_every_kind() -> list[datetime]:
    """Return extremes of dates and offsets to the last microsecond, with both folds, and a sample of what is
    between.
    """
    chance, day = Random(11), 86_400_000_000
    near = [0, 1, 5, 999_999, 1_000_000, 1_000_001, 59_999_999, 60_000_000, 3_600_000_000, day - 1]
    offsets = [*near, *(-each for each in near), *(chance.randrange(1 - day, day) for _ in range(200))]
    dates = [datetime.min, datetime.max, datetime(2000, 2, 29, 23, 59, 59, 999_999), datetime(1, 1, 1, 0, 0, 0, 1)]
    zones = [None, *(timezone(timedelta(microseconds=each)) for each in offsets)]
    return [each.replace(tzinfo=zone, fold=fold) for each in dates for zone in zones for fold in (0, 1)]


def test_every_time_comes_back_to_the_last_microsecond_of_its_offset() -> None:
    for value in _times_of_every_kind():
        back = decode(encode([value, {"at": (value,)}]))
        assert spelled(back) == spelled([value, {"at": (value,)}])
        assert (back[0].utcoffset(), back[0].fold, back[0].tzname()) == (value.utcoffset(), value.fold, value.tzname())


@pytest.mark.parametrize(
    "zone",
    [
        *map(ZoneInfo, ("UTC", "Europe/Berlin", "Etc/GMT+1")),
        timezone(timedelta(0), "Z"),
        timezone(timedelta(microseconds=5), ""),
        _Zone(),
    ],
    ids=repr,
)
def test_a_time_with_more_than_an_offset_is_refused_wherever_it_is(zone: tzinfo) -> None:
    value = datetime(2026, 10, 25, 2, 30, tzinfo=zone)
    for whole in (value, [value], {"a": value}, (value,), {value: 1}, [{"a": (1, {"b": value})}] * 20):
        with pytest.raises(NotCarried, match="is not a fixed offset; use"):
            encode(whole)


@pytest.mark.parametrize("value", [{1}, frozenset({1})], ids=["set", "frozenset"])
def test_the_refusal_of_a_set_names_an_alternative(value: Any) -> None:
    with pytest.raises(NotCarried, match=r"^a (frozen)?set does not keep its order when it is restored; use a dict"):
        encode(value)


NOT_A_NUMBER = [float("nan"), -float("nan"), Decimal("nan"), (1, float("nan")), ((Decimal("-nan123"),), "a")]


@pytest.mark.parametrize("key", NOT_A_NUMBER, ids=repr)
@pytest.mark.parametrize(
    "wrapped",
    [lambda d: d, lambda d: [{"a": 1}, d], lambda d: {"k": 1, "v": d}, lambda d: ({1: (d,)},), lambda d: {"a": 0, **d}],
    ids=["bare", "list", "dict", "deep", "behind a text"],
)
def test_nan_as_a_key_is_refused_and_elsewhere_comes_back(key: Any, wrapped: Any) -> None:
    with pytest.raises(NotCarried, match=r"^a key is NaN, which is not equal to itself; use None or a string"):
        encode(wrapped({key: 1}))
    with pytest.raises(NotCarried, match=r"^a key is NaN, which is not equal to itself; use None or a string"):
        encode_loosely(wrapped({key: 1}))
    for value in (wrapped({"": key}), wrapped({1: key, float("inf"): 2, (1.5, Decimal(1)): 3})):
        assert spelled(decode(encode(value))) == spelled(value)


@dataclasses.dataclass
class _Point:
    x: int = 0


@pytest.mark.parametrize(
    "value, instead",
    [
        (np.int64(1), "value.item()"),
        (np.float64(1), "value.item()"),
        (np.array([1]), "value.tolist()"),
        (_Point(), "dataclasses.asdict(value)"),
        (uuid.UUID(int=1), "str(value)"),
        (enum.Enum("Color", "RED").RED, "value.value"),  # type: ignore[attr-defined]
        (collections.defaultdict(int), "dict(value)"),
        (collections.Counter("a"), "dict(value)"),
        (collections.OrderedDict(), "dict(value)"),
        (collections.deque(), "list(value)"),
        (date(2026, 1, 1), "value.isoformat()"),
        (timedelta(1), "value // timedelta(microseconds=1)"),
        (_Pair(1, 2), "tuple(value) or value._asdict()"),
        (_Text("a"), "str(value)"),
        (bytearray(b"a"), "bytes(value)"),
        (Path("a"), "str(value)"),
        (object(), "dict, list, tuple, str, bytes, int, float, bool, None, datetime or Decimal"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refusal_names_what_to_use_instead_and_the_place(value: Any, instead: str) -> None:
    whole = {"a": 1, "b": [(0, "x"), ({"c": value},)]}
    with pytest.raises(NotCarried) as caught:
        encode(whole)
    assert str(caught.value).endswith(f"{type(value).__qualname__} cannot be encoded; use {instead}")
    assert place_of_refused(whole, caught.value) == "['b'][1][0]['c']"


@pytest.mark.parametrize(
    "value, place",
    [(_circle(), ""), (_circle_of_tuples(), ""), ({1: {math.nan: 2}}, "[1]"), ({(1, 2): [0, {1}]}, "[(1, 2)][1]")],
    ids=["circle", "circle of tuples", "a key", "deep"],
)
def test_the_place_is_that_of_a_part_that_alone_is_to_blame(value: Any, place: str) -> None:
    with pytest.raises(NotCarried) as caught:
        encode(value)
    assert place_of_refused(value, caught.value) == place


def test_deep_but_legal_nesting_survives() -> None:
    value: Any = 0
    for level in range(150):
        value = {level: [value]} if level % 5 else (value,)
    assert spelled(decode(encode(value))) == spelled(value)
