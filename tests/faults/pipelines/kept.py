"""Numbers by key, kept in state of every kind, so that all kinds hold the same elements; ends when a file is there.

`form` chooses the class of a value, so that a resumed job can have another.
The row of an element says how many its key has had, so nothing can go missing or come twice unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operators import ListState, MapState, Operator, Pipeline, ReducingState, ValueState
from operators.sinks import JsonLinesSink
from tests.faults.pipelines.held_source import HeldSource

KEYS = 5

pipeline = Pipeline("kept")
settings = pipeline.settings


@dataclass
class Totals:
    n: int = 0
    sum: int = 0


@dataclass
class Later:
    """The totals with a field more, in another order."""

    added: int = 7
    sum: int = 0
    n: int = 0


@dataclass
class Wrong:
    """The totals with a field of another type."""

    n: str = ""
    sum: int = 0


FORM: Any = {"first": Totals, "later": Later, "wrong": Wrong}[settings.get("form", "first")]


class Keep(Operator):
    """Everything twice and thrice; and what came lately, which rows show, so that a replay must forget alike."""

    numbers = ListState[int]()
    recent = ListState[int](ttl_s=3600, clock="processing")
    total = ValueState[Any](FORM)
    lately = MapState[int, int](ttl_s=0.2, clock="processing")
    by_digit = MapState[int, int]()
    most = ReducingState[int](max)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        number = record["i"]
        self.numbers.append(number)
        self.recent.append(number)
        self.total.value.n += 1
        self.total.value.sum += number
        self.by_digit[number % 10] = self.by_digit.get(number % 10, 0) + 1
        self.most.add(number)
        self.lately[number] = number
        ctx.state["last"] = number
        yield {"k": ctx.key, "i": number, "n": len(self.numbers), "lately": len(self.lately)}


def number(partition: int, i: int) -> Any:
    return {"i": i}


source = HeldSource(number, int(settings["count"]), float(settings["rate"]), Path(settings["gate"]))
(
    pipeline.source("numbers", source)
    .key_by(lambda record: f"k{record['i'] % KEYS}")
    .process("keep", Keep(), parallelism=int(settings.get("tasks", "2")))
    .sink("out", JsonLinesSink(settings["out"]))
)
