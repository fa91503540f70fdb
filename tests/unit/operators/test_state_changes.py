"""Declared state whose time to live or type changes at an upgrade: read as documented, or refused with one line."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from causal.errors import PipelineError
from operators import ListState, MapState, Operator, ReducingState, ValueState
from tests.unit.operators.versions import Build, Version

LIVES: dict[str, dict[str, Any]] = {
    "forever": {},
    "short": {"ttl_s": 5.0},
    "long": {"ttl_s": 50.0},
    "by the clock": {"ttl_s": 50.0, "clock": "processing"},
}


class Values(Operator):
    def __init__(self, **options: Any) -> None:
        self.kept = ValueState(int, **options)

    def process(self, record: Any, ctx: Any) -> Any:
        yield [] if self.kept.value is None else [self.kept.value]
        self.kept.value = record["t"]


class Lists(Operator):
    def __init__(self, **options: Any) -> None:
        self.kept = ListState(int, **options)

    def process(self, record: Any, ctx: Any) -> Any:
        yield list(self.kept)[-1:]
        self.kept.append(record["t"])


class Maps(Operator):
    def __init__(self, **options: Any) -> None:
        self.kept = MapState[str, int](int, **options)

    def process(self, record: Any, ctx: Any) -> Any:
        yield list(self.kept.values())
        self.kept["last"] = record["t"]


class Folds(Operator):
    def __init__(self, **options: Any) -> None:
        self.kept = ReducingState(max, int, **options)

    def process(self, record: Any, ctx: Any) -> Any:
        yield [] if self.kept.value is None else [self.kept.value]
        self.kept.add(record["t"])


def processed(operator: Operator) -> Build:
    return lambda stream: {
        "out": stream.watermarks("times", lambda r: r["t"]).key_by(lambda r: r["k"]).process("o", operator)
    }


@pytest.mark.parametrize("kind", [Values, Lists, Maps, Folds])
@pytest.mark.parametrize("before, after", [*product(LIVES, LIVES)])
def test_a_time_to_live_counts_from_the_upgrade_on(kind: Any, before: str, after: str) -> None:
    version = Version(processed(kind(**LIVES[before]))).give({"k": 1, "t": 0}, {"k": 1, "t": 3})
    version = version.becomes(Version(processed(kind(**LIVES[after]))))
    for time in (7, 30, 90):
        version.give({"k": 1, "t": time})
    expected = {"short": [[3], [], []], "long": [[3], [7], []]}.get(after, [[3], [7], [30]])
    assert version.out["out"] == expected


@dataclass
class Count:
    n: int = 0


@dataclass
class More:
    n: int = 0
    name: str = "unknown"


@dataclass
class Without:
    name: str = "unknown"


@dataclass
class Needing:
    n: int
    name: str


@dataclass
class Text:
    n: str = ""


class Typed(Operator):
    def __init__(self, kind: Any, value: Any) -> None:
        self.value, self.items, self.entries = ValueState(kind), ListState[Any](kind), MapState[str, Any](kind)
        self._first = value

    def process(self, record: Any, ctx: Any) -> Any:
        if record["k"] == 1 and "first" in record:
            self.value.value = self._first
            self.items.append(self._first)
            self.entries["a"] = self._first
        else:
            yield [repr(self.value.value), repr(list(self.items)), repr(dict(self.entries))]


TYPES: dict[Any, Any] = {
    int: 1, str: "a", Count: Count(2), More: More(2, "known"), Without: Without("a"), Needing: Needing(1, "b"),
    Text: Text("c"),
}  # fmt: skip
READ: dict[tuple[Any, Any], Any] = {
    (Count, More): More(2), (More, Count): Count(2), (Count, Without): Without(), (More, Without): Without("known"),
    (Without, Count): Count(), (Without, More): More(0, "a"), (Needing, Count): Count(1), (Needing, More): More(1, "b"),
    (Needing, Without): Without("b"), (More, Needing): Needing(2, "known"), (Text, Without): Without(),
    (Without, Text): Text(),
}  # fmt: skip
"""(type before, type after) -> the value that is read; what is missing is refused."""


@pytest.mark.parametrize("before, after", [*product(TYPES, TYPES)])
def test_a_type_is_read_as_another_or_refused(before: Any, after: Any) -> None:
    version = Version(processed(Typed(before, TYPES[before]))).give({"k": 1, "t": 0, "first": True})
    value = TYPES[before] if before is after else READ.get((before, after))
    changed = Version(processed(Typed(after, TYPES[after])))
    if value is None:
        with pytest.raises(
            PipelineError, match="state 'value' of operator 'o'.*(is new and has no default| and is now )"
        ):
            version.becomes(changed)
        return
    version = version.becomes(changed).becomes(Version(processed(Typed(after, TYPES[after]))))
    version.give({"k": 1, "t": 1})
    assert version.out["out"] == [[repr(value), repr([value]), repr({"a": value})]]
