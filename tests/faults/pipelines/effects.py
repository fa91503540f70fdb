"""Two sources, and an operator that acts outside of the job for each record: a line in a file, a message, a print.

Settings: effects (the file), rate (records per second and source), count (records per source), delivery, every (each
so many-th record has a row), gate (a file without which the sources do not end).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

NAMES = ("left", "right")

pipeline = Pipeline("effects")
settings = pipeline.settings


class Effects(Operator):
    """Says of each record, in three ways, that it was processed."""

    def __init__(self, path: str, every: int) -> None:
        self._path = path
        self._every = every
        self._file = -1

    def open(self, ctx: Any) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = n = ctx.state.get("n", 0) + 1
        name = f"{record['from']}-{record['i']}"
        if not ctx.replaying:
            os.write(self._file, f"{name}\n".encode())
        ctx.log.info("once %s", name)
        print("each", name)
        if n % self._every == 0:
            yield {**record, "n": n}


def records_of(name: str, place: int) -> Callable[[int, int], dict[str, Any]]:
    return lambda partition, i: {"from": name, "i": i, "at": i * 0.01 + place * 0.001}


_sources = [
    pipeline.source(
        name,
        hold_end(
            GeneratedSource(records_of(name, place), count=int(settings["count"]), rate=float(settings["rate"])),
            settings.get("gate"),
        ),
    ).watermarks(f"{name}-time", lambda record: record["at"])
    for place, name in enumerate(NAMES)
]
(
    _sources[0]
    .union(_sources[1])
    .process(
        "effects", Effects(settings["effects"], int(settings.get("every", "1"))), parallelism=1,
        delivery=settings.get("delivery", "arrival"),
    )
    .sink("out", JsonLinesSink(settings["out"]))
)  # fmt: skip
