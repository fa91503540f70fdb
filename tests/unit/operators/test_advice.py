"""Warnings name state that no key divides and positions that no checkpoint keeps, and nothing that is well."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operators import Count, CountWindow, Operator, Pipeline, Session, Tumbling, ValueState
from operators.builder.advice import advice
from operators.builder.pipeline import Stream
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

NUMBERS = itertools.count()
NAMES = ["a", "b"]


def numbered(record: Any) -> Any:
    return {"n": next(NUMBERS), **record}


def named(record: Any) -> Any:
    return {"name": NAMES[0], **record}


class Counts(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield record


class Declares(Operator):
    total = ValueState(int, default=0)

    def process(self, record: Any, ctx: Any) -> Any:
        self.total.value = 1


class Plain(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        yield record


class Holds(Plain):
    def __init__(self, lines: Any) -> None:
        self.lines = lines


def warnings(build: Callable[[Stream[Any]], Stream[Any]]) -> list[str]:
    pipeline = Pipeline("p")
    build(pipeline.source("in", GeneratedSource(lambda p, i: {"v": i}, count=1))).sink("out", JsonLinesSink("out"))
    return advice(pipeline.nodes)


@pytest.mark.parametrize("operator", [Counts(), Declares()])
def test_state_without_a_key_in_several_tasks_is_named(operator: Operator) -> None:
    [line] = warnings(lambda s: s.process("count", operator, parallelism=2))
    assert "operator 'count' keeps state but follows no key_by, so each of its 2 tasks" in line
    assert line.startswith(f"{__file__}:")
    assert not warnings(lambda s: s.process("count", operator, parallelism=1))
    assert not warnings(lambda s: s.key_by(lambda r: r["v"]).process("count", operator, parallelism=2))


def test_windows_without_a_key_in_several_tasks_are_named() -> None:
    [line] = warnings(lambda s: s.window("w", 1, lambda key, records, window: records, parallelism=2))
    assert "operator 'w' gathers windows but follows no key_by" in line


def test_an_operator_without_state_may_have_several_tasks() -> None:
    assert not warnings(lambda s: s.process("x", Plain(), parallelism=4).map("m", named))


def test_an_open_file_is_named_however_it_is_reached(tmp_path: Path) -> None:
    with open(tmp_path / "lines.txt", "w+") as file:

        def write(record: Any) -> Any:
            file.write(str(record))
            return record

        for build in (
            lambda s: s.map("w", write),
            lambda s: s.map("w", lambda r: write(r)),
            lambda s: s.filter("w", lambda r, to=file: to.write("x")),
            lambda s: s.process("w", Holds(file)),
            lambda s: s.key_by(write).process("w", Counts()),
        ):
            [line] = warnings(build)
            assert f"operator 'w' uses the open file '{tmp_path / 'lines.txt'}', whose position is no state" in line


def test_an_iterator_is_named() -> None:
    [line] = warnings(lambda s: s.map("n", numbered))
    assert "operator 'n' uses the count 'NUMBERS', whose position is no state" in line
    [line] = warnings(lambda s: s.process("n", Holds(x for x in [1])))
    assert "operator 'n' uses the generator 'lines'" in line


def test_a_number_for_a_window_is_named_where_records_have_event_time() -> None:
    def windowed(by: Any, dated: bool = True) -> list[str]:
        def build(stream: Stream[Any]) -> Stream[Any]:
            timed = stream.watermarks("time", lambda r: r["v"]) if dated else stream
            return timed.key_by(lambda r: r["v"]).window("w", by, Count())

        return warnings(build)

    [line] = windowed(10)
    assert line.startswith(f"{__file__}:")
    assert line.endswith(
        "window 'w' of 10 s is by the wall clock, though its records have event time; give Tumbling(10) for event "
        'time, or Tumbling(10, clock="processing") if the wall clock is meant'
    )
    for size_s, size in ((0.5, "0.5"), (86_400_000, "86400000")):
        assert f"give Tumbling({size}) for event" in windowed(size_s)[0]
    assert not windowed(10, dated=False)
    for stated in (Tumbling(10), Tumbling(10, clock="processing"), Session(10, clock="processing"), CountWindow(2)):
        assert not windowed(stated)
