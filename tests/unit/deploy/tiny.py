"""The text of a small pipeline file, from numbers to a sink, with what a test wants in between."""

from __future__ import annotations

ROWS = 'JsonLinesSink("rows")'
ANYWHERE = 'JsonLinesSink(pipeline.settings["out"])'
"""A sink at the URL that a setting names."""


def text(steps: str = "", sink: str = ROWS, count: str = "100") -> str:
    """Return the file of a pipeline with these calls after its source."""
    return f"""
from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

pipeline = Pipeline("tiny")
count = int({count})
pipeline.source("numbers", GeneratedSource(lambda p, i: {{"v": i}}, count=count)){steps}.sink("out", {sink})
"""


KEYED = '.key_by(lambda r: r["v"]).count("count")'
