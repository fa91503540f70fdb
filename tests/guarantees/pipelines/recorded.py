"""The pipeline whose runs are recorded: the three operators of `tests.guarantees.specs`, all into one sink.

Two channels, each a source task.  A row says the operator, the task that made it, the key, the element and the content.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from tests.faults.pipelines.held_source import HeldSource
from tests.guarantees.history import Element
from tests.guarantees.specs import SPECS, fold_keys, folded, merged

pipeline = Pipeline("recorded")
settings = pipeline.settings
count, rate, gate = int(settings["count"]), float(settings["rate"]), Path(settings["gate"])


def row(spec: str, stage: str, key: Any, element: Any, content: Any) -> dict[str, Any]:
    """Return a row as the recorder reads it."""
    return {"spec": spec, "stage": stage, "key": key, "element": element, "content": content}


class Fold(Operator):
    """One key of a channel."""

    def process(self, record: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        _, channel, place = record
        content = ctx.state["row"] = folded(ctx.state.get("row"), place)
        yield row("folded", ctx.task, ctx.key, [channel, place], content)


class Merge(Operator):
    """One key of all channels."""

    def process(self, record: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        channel, place = record
        content = merged(ctx.state.get("row"), Element(channel, place), ctx.random.random())
        ctx.state["row"] = content
        yield row("merged", ctx.task, ctx.key, [channel, place], content)


def source(channel: str) -> Any:
    """Return elements (channel, place)."""
    return pipeline.source(channel, HeldSource(lambda partition, i: [channel, i], count, rate, gate))


def passed(element: Any) -> dict[str, Any]:
    """Return the row of the operator without state; its task is the one that reads the channel."""
    return row("passed", element[0], element[0], element, None)


def pair(element: Any) -> list[Any]:
    """(key, channel, place) for each key that the element goes through."""
    return [(key, *element) for key in fold_keys(*element)]


def shared(element: Any) -> Any:
    """Return the key that both channels have."""
    [key] = SPECS["merged"].keys(Element(*element))
    return key


left, right = source("left"), source("right")
both = left.union(right)
fold = both.flat_map("pair", pair).key_by(lambda paired: paired[0]).process("fold", Fold(), parallelism=2)
merge = both.key_by(shared).process("merge", Merge(), parallelism=2)
both.map("pass", passed).union(fold, merge).sink("out", SqliteSink(settings["out"]))
