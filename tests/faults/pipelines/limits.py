"""Elements that become records, answers, keys and state of the sizes that a test names, one kind after the other."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from tests.faults.pipelines.held_source import HeldSource

ANSWER_AROUND_BYTES = 7
"""Bytes of an encoded answer in addition to its own: the list with True before it, and the head of its bytes."""
PLAIN_EVERY = 7


def nested(levels: int) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = [inner]
    return inner


class Asks(Operator):
    """Gets an answer of the size that the element names; what cannot be packed smaller."""

    def process(self, record: Any, ctx: Any) -> Any:
        if record["kind"] == "answer":
            size = record["size"] - ANSWER_AROUND_BYTES
            answer = ctx.call(random.Random(record["i"]).randbytes, size)
            yield {"i": record["i"], "bytes": len(answer)}
        else:
            yield record


def grown(record: Any) -> Any:
    """Return the record itself of the size that the element names."""
    if record.get("kind") == "bytes":
        return "x" * (record["size"] - 5)
    if record.get("kind") == "levels":
        return nested(record["size"])
    return record


class Keeps(Operator):
    """Keeps what is large as state, too, and says how large it was."""

    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.state["last"] = record if type(record) is str else n
        yield {**shown(record), "n": n, "key": len(ctx.key)}


def shown(record: Any) -> dict[str, int]:
    """Return the record, or how large it is."""
    if type(record) is str:
        return {"bytes": len(record)}
    return record if type(record) is dict else {"levels": depth(record)}


def depth(record: Any) -> int:
    levels = 0
    while type(record) is list:
        levels, record = levels + 1, record[0]
    return levels


pipeline = Pipeline("limits")
settings = pipeline.settings
cases = [(kind, int(size)) for kind, _, size in (case.partition(":") for case in settings["cases"].split(","))]
count = int(settings["count"])


def element(partition: int, i: int) -> dict[str, Any]:
    number, rest = divmod(i, PLAIN_EVERY)
    if rest or number >= len(cases):
        return {"kind": "plain", "i": i}
    kind, size = cases[number]
    return {"kind": kind, "size": size, "i": i}


elements = pipeline.source("elements", HeldSource(element, count, float(settings["rate"]), Path(settings["gate"])))
asked = elements.key_by(lambda record: record["i"]).process("asks", Asks())
large = asked.map("grown", grown)
kept = large.key_by(lambda record: record if type(record) is str else "-").process("keeps", Keeps())
kept.sink("out", JsonLinesSink("rows"))
