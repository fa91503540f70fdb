"""Measures how long checkpoints take while a task is busy and all of its state changes, as a share of their interval.

A job counts over many keys at a fixed rate.  `took_per_interval` is the time from a checkpoint's trigger to its durable
manifest, divided by the interval; at most 2 is wanted as long as a fifth of a core is left (`spare_cores`).
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import distribution

PIPELINE = runs.JOBS / "paced_state.py"
LIMIT_S = 600.0
OPTIONS = (
    Option("keys", 300_000),
    Option("rate", 150_000, "records per second"),
    Option("seconds", 20, "of each run"),
    Option("interval", 2.0, "of checkpoints, seconds", setting="interval_s"),
    Option("rounds", 3),
)


def _measure(run: Measurement) -> None:
    options = run.options
    settings = {"keys": options.keys, "rate": options.rate, "seconds": options.seconds}
    took: list[float] = []
    for number in run.rounds():
        idle_s = _idle_s()
        report = runs.job(PIPELINE, settings, (f"--checkpoint-interval={options.interval}",), limit_s=LIMIT_S)
        if not report["checkpoint_ms"]:
            raise runs.RunFailed("no checkpoint was complete; give more --seconds")
        took += report["checkpoint_ms"]
        run.add("checkpoints", report["checkpoints"])
        run.add("records_per_s", report["throughput_rps"])
        run.add("spare_cores", (_idle_s() - idle_s) / report["wall_s"])
        run.report(f"round {number}: {report['checkpoints']} checkpoints, the longest {max(took):,.0f} ms so far")
    run.figures["took_per_interval"] = distribution([each / 1000 / options.interval for each in took], 3)
    run.figures["checkpoint_ms"] = distribution(took)


def _idle_s() -> float:
    """Seconds that the cores of this machine have had nothing to do, all together."""
    idle, waiting = Path("/proc/stat").read_text().split("\n", 1)[0].split()[4:6]
    return (int(idle) + int(waiting)) / os.sysconf("SC_CLK_TCK")


BENCHMARK = Benchmark("checkpoint_pace", OPTIONS, _measure, digits=0, digits_of={"spare_cores": 2})
