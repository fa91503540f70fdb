"""Warnings: state that no key divides, positions that no checkpoint keeps, writes outside of state; nothing else."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operators import Count, CountWindow, Operator, Pipeline, Session, Tumbling, ValueState
from operators.builder.advice import advice
from operators.builder.pipeline import Stream
from tests.unit.operators.scene import NoSink, source

NUMBERS = itertools.count()
NAMES = ["a", "b"]


def numbered(record: Any) -> Any:
    return {"n": next(NUMBERS), **record}


def named(record: Any) -> Any:
    return {"name": NAMES[0], **record}


class Numbers(Operator):
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
    build(pipeline.source("in", source())).sink("out", NoSink())
    return advice(pipeline.nodes)


@pytest.mark.parametrize("operator", [Numbers(), Declares()])
def test_state_without_a_key_in_several_tasks_is_named(operator: Operator) -> None:
    [line] = warnings(lambda s: s.process("count", operator, parallelism=2))
    assert "operator 'count' keeps state but follows no key_by, so each of its 2 tasks" in line
    assert line.startswith(f"{__file__}:")
    assert not warnings(lambda s: s.process("count", operator, parallelism=1))
    assert not warnings(lambda s: s.key_by(lambda r: r["v"]).process("count", operator, parallelism=2))


def test_windows_without_a_key_in_several_tasks_are_named_and_an_operator_without_state_is_not() -> None:
    [line] = warnings(lambda s: s.window("w", 1, lambda key, records, window: records, parallelism=2))
    assert "operator 'w' gathers windows but follows no key_by" in line
    assert not warnings(lambda s: s.process("x", Plain(), parallelism=4).map("m", named))


def test_an_open_file_and_an_iterator_are_named_however_they_are_reached(tmp_path: Path) -> None:
    with open(tmp_path / "lines.txt", "w+") as file:

        def write(record: Any) -> Any:
            file.write(str(record))
            return record

        of_file = f"the open file '{tmp_path / 'lines.txt'}'"
        builds: list[tuple[Callable[[Any], Any], str]] = [
            (lambda s: s.map("w", write), of_file),
            (lambda s: s.map("w", lambda r: write(r)), of_file),
            (lambda s: s.filter("w", lambda r, to=file: to.write("x")), of_file),
            (lambda s: s.process("w", Holds(file)), of_file),
            (lambda s: s.key_by(write).process("w", Numbers()), of_file),
            (lambda s: s.map("w", numbered), "the count 'NUMBERS'"),
            (lambda s: s.process("w", Holds(x for x in [1])), "the generator 'lines'"),
        ]
        for build, what in builds:
            [line] = warnings(build)
            assert f"operator 'w' uses {what}, whose position is not state" in line


def test_a_number_for_a_window_is_named_where_records_have_event_time() -> None:
    def windowed(by: Any, dated: bool = True) -> list[str]:
        def build(stream: Stream[Any]) -> Stream[Any]:
            timed = stream.watermarks("time", lambda r: r["v"]) if dated else stream
            return timed.key_by(lambda r: r["v"]).window("w", by, Count())

        return warnings(build)

    [line] = windowed(10)
    assert line.startswith(f"{__file__}:")
    assert line.endswith(
        "window 'w' of 10 s uses the wall clock although its records have event time; use Tumbling(10) for event "
        'time, or Tumbling(10, clock="processing") if you mean the wall clock'
    )
    for size_s, size in ((0.5, "0.5"), (86_400_000, "86400000")):
        assert f"use Tumbling({size}) for event" in windowed(size_s)[0]
    assert not windowed(10, dated=False)
    for stated in (Tumbling(10), Tumbling(10, clock="processing"), Session(10, clock="processing"), CountWindow(2)):
        assert not windowed(stated)


# Writes outside of state.

seen = 0
COUNTS: dict[Any, int] = {}
TALLY = Counter[Any]()


def writes(subject: Any) -> list[str]:
    """Return the names that the warnings say are written."""
    lines = warnings(lambda s: s.process("op", subject) if isinstance(subject, Operator) else s.map("op", subject))
    assert all(line.startswith(f"{__file__}:") for line in lines)
    return [line.partition(" writes ")[2].partition(",")[0] for line in lines if " writes " in line]


def adds(record: Any) -> Any:
    global seen
    seen += 1
    return record


def counts(record: Any) -> Any:
    COUNTS[record] = COUNTS.get(record, 0) + 1
    return record


def tallies(record: Any) -> Any:
    TALLY.update([record])
    return record


def through(record: Any) -> Any:
    return counts(record)


class Asks(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        yield ctx.call(counts, record)


def within() -> Callable[[Any], Any]:
    total, known = 0, []

    def fn(record: Any) -> Any:
        nonlocal total
        total += record
        known.append(record)
        return total

    return fn


def harmless(record: Any) -> Any:
    total, known = 0, {}
    for each in (1, 2):
        total += each
        known[each] = total
    record["x"] = total
    return COUNTS.get(record)


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (adds, ["the global 'seen'"]),
        (counts, ["the global 'COUNTS'"]),
        (through, ["the global 'COUNTS'"]),
        (tallies, ["the global 'TALLY'"]),
        (within(), ["the variable 'total' of the function around it", "the closure variable 'known'"]),
        (lambda record: COUNTS.setdefault(record, 1), ["the global 'COUNTS'"]),
        (harmless, []),
    ],
)
def test_a_function_that_writes_what_outlives_its_call(fn: Callable[[Any], Any], names: list[str]) -> None:
    assert writes(fn) == names


class Forgets(Operator):
    kept = ValueState(default=0)

    def __init__(self) -> None:
        self.n, self.known, self.limit = 0, [], 3  # type: ignore[var-annotated]

    def open(self, ctx: Any) -> None:
        self.table = {1: 2}

    def process(self, record: Any, ctx: Any) -> Any:
        self.kept.value += 1
        ctx.state["n"] = self.limit
        self.n += 1
        self.note(record)
        yield self.table[1]

    def note(self, record: Any) -> None:
        self.known.append(record)
        self.last, other = record, 1
        self.table[other] = 1


class Keeps(Operator):
    kept = ValueState(default=0)

    def open(self, ctx: Any) -> None:
        self.table = {1: 2}

    def process(self, record: Any, ctx: Any) -> Any:
        self.kept.value += self.table[1]
        ctx.state["n"] = [*ctx.state.get("n", ()), record]
        yield record


def test_an_operator_that_writes_attributes_of_its_own() -> None:
    assert writes(Forgets()) == [f"the attribute self.{name}" for name in ("n", "known", "last", "table")]
    assert writes(Keeps()) == []
    assert writes(Asks()) == [], "the outside world may be changed"
