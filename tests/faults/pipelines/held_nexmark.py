"""The job of `examples/nexmark`, whose events do not end before the file `gate` is there."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any
from unittest.mock import patch

from examples.nexmark.events import Events
from operators import Pipeline
from operators.source import Source
from tests.faults.pipelines.held_source import hold_end

JOB = Path(__file__).resolve().parents[3] / "examples" / "nexmark" / "job.py"

original_source = Events.source
gate = Pipeline("settings").settings.get("gate")


def source(events: Events, count: int | None, partitions: int = 1, rate: float | None = None) -> Source[Any]:
    """Return the source of the events, with its end held back."""
    return hold_end(original_source(events, count, partitions, rate), gate)


with patch.object(Events, "source", source):
    pipeline = runpy.run_path(str(JOB))["pipeline"]
