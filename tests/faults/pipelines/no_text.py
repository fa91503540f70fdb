"""Numbered records of two partitions, of which every tenth has a key that JSON cannot say."""

from __future__ import annotations

from typing import Any

from operators import Pipeline
from operators.sinks import JsonLinesSink
from tests.faults.pipelines.held_source import held_generated

COUNT = 3000


def numbered(partition: int, position: int) -> dict[str, Any]:
    i = 2 * position + partition
    return {"i": i, "odd": {(i, i): 1} if i % 10 == 7 else {}}


pipeline = Pipeline("no-text")
source = held_generated(pipeline.settings["gate"], numbered, count=COUNT // 2, partitions=2, rate=200.0)
pipeline.source("numbers", source).sink("out", JsonLinesSink(pipeline.settings.get("out", "out")))
