"""Recordings: what a recorder costs, and how fast a recording is replayed, stopped in and compared with other code.

The parts are independent (`--part`): *recorder* (`recorder_costs`), *speed* (`speeds`), *stop*, *lineage* and *diff*
(`commands`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.harness.declared import CAUSAL, Benchmark, Measurement, Option, some_of
from benchmarks.replay import commands, recorder_costs, speeds

PARTS: Mapping[str, Callable[[Measurement], None]] = {
    "recorder": recorder_costs.measure,
    "speed": speeds.measure,
    "stop": commands.stop,
    "lineage": commands.lineage,
    "diff": commands.diff,
}
OPTIONS = (
    Option("part", ",".join(PARTS), "which ones", some_of(PARTS), setting="parts"),
    Option("rounds", 5),
    Option("workload", ",".join(recorder_costs.WORKLOADS), "of recorder and speed", some_of(recorder_costs.WORKLOADS)),
    Option("records", 600_000, "of orders; the others have ten and eight times as many"),
    Option("rates", "1000,5000", "records/s of speed", lambda text: [int(rate) for rate in text.split(",") if rate]),
    Option("seconds", 8.0, "of each of these rates"),
    Option("keys", 100_000, "of stop and lineage"),
    Option("diff_seconds", 60.0, "of orders at 1,000 records/s that are compared"),
    Option("recorded", Path(), "a job of recorded_orders.py that is compared instead", Path, setting=None),
    Option("limit", 300.0, "seconds after which a run is given up", setting=None),
)


def _measure(run: Measurement) -> None:
    for name in run.options.part:
        PARTS[name](run)


SETTINGS = {**CAUSAL, "checkpoint_interval_s": 1.0}
BENCHMARK = Benchmark("replay", OPTIONS, _measure, digits_of={"_rps": 0, ".rps": 0, "_ms": 2}, settings=SETTINGS)
