"""The awkward fold of `benchmarks/jobs/strained_fold.py`, whose source does not end before the file `gate` is there."""

from __future__ import annotations

from benchmarks.jobs.strained_fold import Fold, SlowSink, number, source
from operators import Pipeline
from tests.faults.pipelines.held_source import hold_end

pipeline = Pipeline("held-fold")
settings = pipeline.settings
(
    pipeline.source("numbers", hold_end(source, settings.get("gate")))
    .key_by(lambda record: record[0])
    .process(
        "fold",
        Fold(int(number("emit", 1)), int(number("rounds", 0)), number("sleep_s", 0)),
        parallelism=int(number("width", 2)),
    )
    .sink("out", SlowSink(settings["out"]))
)
