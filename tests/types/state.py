"""Declared state has the types that it is declared with.  A line with `type: ignore` must be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_type

from operators import Context, ListState, MapState, Operator, ReducingState, ValueState


@dataclass
class Totals:
    n: int = 0


class Profile(Operator):
    """Every kind of state."""

    pages = ListState[str]()
    clicks = ListState(Totals, ttl_s=60)
    total = ValueState(Totals)
    last = ValueState[float | None]()
    flag = ValueState(default=False)
    by_day = MapState[str, int](clock="processing")
    best = ReducingState[int](max)

    def process(self, record: Any, ctx: Context) -> Iterator[int]:
        self.pages.append("x")
        self.pages.append(1)  # type: ignore[arg-type]
        assert_type(self.pages[0], str)
        assert_type(self.pages[1:], list[str])
        assert_type(self.clicks[0], Totals)
        self.total.value.n += 1
        self.total.value.m += 1  # type: ignore[attr-defined]
        self.total.value = 3  # type: ignore[assignment]
        assert_type(self.last.value, float | None)
        assert_type(self.flag.value, bool)
        self.by_day["mon"] = self.by_day.get("mon", 0) + 1
        self.by_day[1] = 1  # type: ignore[index]
        assert_type(self.best.value, int | None)
        self.best.add("x")  # type: ignore[arg-type]
        yield len(self.pages)


ValueState(ttl_s="long")  # type: ignore[arg-type]
MapState[str, int](clock="wall")  # type: ignore[arg-type]
ListState[int, str]()  # type: ignore[misc]
