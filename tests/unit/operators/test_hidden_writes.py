"""Writes of an operator outside of its state are named before the job starts, with their line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from operators import Operator, ValueState
from operators.builder.advice import advice
from tests.unit.operators.scene import planned

seen = 0
COUNTS: dict[Any, int] = {}
TALLY = Counter[Any]()


def writes(subject: Any) -> list[str]:
    """Return the names that the warnings say are written."""
    lines = []

    def build(stream: Any) -> Any:
        out = stream.process("op", subject) if isinstance(subject, Operator) else stream.map("op", subject)
        lines.extend(advice(out._pipeline.nodes if hasattr(out, "_pipeline") else out.pipeline.nodes))
        return out

    planned(build)
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
