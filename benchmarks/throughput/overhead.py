"""Measures what causal logging costs on a deep graph: one job under each guarantee, at full speed and at half of it.

A round runs `none`, then each causal setting between two runs of `none`, and divides by the mean of the two around it.
CPU is taken of two jobs at the same time, which share both cores and whatever else the machine does: in turn, the same
job takes up to half as much again within a minute.
Latency is taken at half the speed that `none` reached in the same round; both guarantees get the same rate.  Rows of
the first seconds do not count there: they wait a quarter of a second for processes to start, which is more than a
hundredth of ten seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option

PIPELINE = runs.JOBS / "deep_count.py"
NONE = runs.GUARANTEES["none"]
UNMEASURED_S = 3.0
CAUSAL = {name: arguments for name, arguments in runs.GUARANTEES.items() if name != "none"}
OPTIONS = (
    Option("records", 6_000_000, "per run at full speed"),
    Option("rounds", 5),
    Option("depth", 5, "tasks in a row before the sink"),
    Option("seconds", 10.0, "measured at half speed"),
)


def _measure(run: Measurement) -> None:
    options = run.options
    for number in run.rounds():
        before = _run(options, NONE, options.records)
        for name, guarantee in CAUSAL.items():
            causal = _run(options, guarantee, options.records)
            after = _run(options, NONE, options.records)
            speed = (before["throughput_rps"] + after["throughput_rps"]) / 2
            ratios = {
                "over_none": causal["throughput_rps"] / speed,
                "cpu_over_none": _cpu_ratio(options, guarantee),
                "p99_over_none": _latency_ratio(options, guarantee, int(speed / 2)),
            }
            run.add("none_rps", speed)
            run.add_all(f"{name}_", ratios)
            shown = ", ".join(f"{name}_{key} {value:.3f}" for key, value in ratios.items())
            run.report(f"round {number}: none {speed:,.0f} records/s; {shown}")
            before = after


def _cpu_ratio(options: argparse.Namespace, guarantee: Sequence[str]) -> float:
    with ProcessPoolExecutor(2) as pool:  # processes, as a run's CPU is that of all children of its own
        reports = [pool.submit(_run, options, each, options.records) for each in (guarantee, NONE)]
        causal, bare = (report.result()["cpu_s"] for report in reports)
    return float(causal / bare)


def _latency_ratio(options: argparse.Namespace, guarantee: Sequence[str], rate: int) -> float:
    count = int(rate * (UNMEASURED_S + options.seconds))
    bare = _run(options, NONE, count, rate)["latency_ms"]["p99"]
    causal = _run(options, guarantee, count, rate)["latency_ms"]["p99"]
    return float(causal / bare)


def _run(options: argparse.Namespace, guarantee: Sequence[str], count: int, rate: int | None = None) -> dict[str, Any]:
    settings: dict[str, Any] = {"count": count, "depth": options.depth}
    if rate is not None:
        settings |= {"rate": rate, "unmeasured": int(rate * UNMEASURED_S)}
    return runs.tallied_job(PIPELINE, settings, count, (*guarantee, "--checkpoint-interval=1"))


BENCHMARK = Benchmark("overhead", OPTIONS, _measure, digits_of={"_rps": 0}, settings={"standbys": "per-task"})
