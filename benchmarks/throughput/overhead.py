"""Measures what causal logging costs on a deep graph: one job under each guarantee, at full speed and at half of it.

Each causal setting is divided by `none`.  A round runs `none`, then each causal setting and `none` again, and divides
by the mean of the two runs around it.
CPU is taken of two jobs at the same time, which share both cores and whatever else the machine does: in turn, the same
job takes up to half as much again within a minute.
Latency is taken at half the speed that `none` reached in the same round; all get the same rate.  Rows of the first
seconds do not count there: they wait a quarter of a second for processes to start, which is more than a hundredth of
ten seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option

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
        before_rps = _rps(options, NONE)
        for name, guarantee in CAUSAL.items():
            causal_rps, after_rps = _rps(options, guarantee), _rps(options, NONE)
            none_rps = (before_rps + after_rps) / 2
            rate = int(none_rps / 2)
            ratios = {
                "over_none": causal_rps / none_rps,
                "cpu_over_none": _cpu_ratio(options, guarantee),
                "p99_over_none": _p99_ms(options, guarantee, rate) / _p99_ms(options, NONE, rate),
            }
            run.add("none_rps", none_rps)
            run.add_all(f"{name}_", ratios)
            shown = ", ".join(f"{name}_{key} {value:.3f}" for key, value in ratios.items())
            run.report(f"round {number}: none {none_rps:,.0f} records/s; {shown}")
            before_rps = after_rps


def _rps(options: argparse.Namespace, guarantee: Sequence[str]) -> float:
    return float(_run(options, guarantee, options.records)["throughput_rps"])


def _cpu_ratio(options: argparse.Namespace, guarantee: Sequence[str]) -> float:
    with ProcessPoolExecutor(2) as pool:  # processes, as a run's CPU is that of all children of its own
        reports = [pool.submit(_run, options, each, options.records) for each in (guarantee, NONE)]
        causal, none = (report.result()["cpu_s"] for report in reports)
    return float(causal / none)


def _p99_ms(options: argparse.Namespace, guarantee: Sequence[str], rate: int) -> float:
    """Return the 99th percentile of latency at a rate."""
    count = int(rate * (UNMEASURED_S + options.seconds))
    return float(_run(options, guarantee, count, rate)["latency_ms"]["p99"])


def _run(options: argparse.Namespace, guarantee: Sequence[str], count: int, rate: int | None = None) -> dict[str, Any]:
    settings: dict[str, Any] = {"count": count, "partitions": 1, "parallelism": 1, "depth": options.depth}
    if rate is not None:
        settings |= {"rate": rate, "unmeasured": int(rate * UNMEASURED_S)}
    return runs.tallied_job(runs.KEYED_COUNT, settings, count, (*guarantee, "--checkpoint-interval=1"))


BENCHMARK = Benchmark("overhead", OPTIONS, _measure, digits_of={"_rps": 0}, settings={"standbys": "per-task"})
