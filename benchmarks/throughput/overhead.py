"""Measures what causal logging costs on a deep graph: one job under each guarantee, at full speed and at half of it.

Each causal setting is divided by two bases: by `none` (`over_none`, the price of everything), and by at-least-once with
the same checkpoints (`over_at_least_once`, the price of causal logging alone).  A round runs both bases, then each
causal setting and both bases again, and divides by the mean of the two runs of a base around it.
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

PIPELINE = runs.JOBS / "deep_count.py"
BASES = {"none": runs.GUARANTEES["none"], "at_least_once": runs.AT_LEAST_ONCE}
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
        before = _base_speeds(options)
        for name, guarantee in CAUSAL.items():
            causal = _run(options, guarantee, options.records)["throughput_rps"]
            after = _base_speeds(options)
            speeds = {base: (before[base] + after[base]) / 2 for base in BASES}
            ratios = {f"over_{base}": causal / speed for base, speed in speeds.items()}
            ratios |= {f"cpu_over_{base}": _cpu_ratio(options, guarantee, BASES[base]) for base in BASES}
            p99_ms = _p99_ms(options, guarantee, int(speeds["none"] / 2))
            ratios |= {f"p99_over_{base}": p99_ms["causal"] / p99_ms[base] for base in BASES}
            run.add("none_rps", speeds["none"])
            run.add_all(f"{name}_", ratios)
            shown = ", ".join(f"{name}_{key} {value:.3f}" for key, value in ratios.items())
            run.report(f"round {number}: none {speeds['none']:,.0f} records/s; {shown}")
            before = after


def _base_speeds(options: argparse.Namespace) -> dict[str, float]:
    """Record/s of each base."""
    return {base: _run(options, guarantee, options.records)["throughput_rps"] for base, guarantee in BASES.items()}


def _cpu_ratio(options: argparse.Namespace, guarantee: Sequence[str], base: Sequence[str]) -> float:
    with ProcessPoolExecutor(2) as pool:  # processes, as a run's CPU is that of all children of its own
        reports = [pool.submit(_run, options, each, options.records) for each in (guarantee, base)]
        causal, bare = (report.result()["cpu_s"] for report in reports)
    return float(causal / bare)


def _p99_ms(options: argparse.Namespace, guarantee: Sequence[str], rate: int) -> dict[str, float]:
    """Return the 99th percentile of latency at a rate, of a causal setting and of each base."""
    count = int(rate * (UNMEASURED_S + options.seconds))
    runs_of = {**BASES, "causal": guarantee}
    return {name: float(_run(options, each, count, rate)["latency_ms"]["p99"]) for name, each in runs_of.items()}


def _run(options: argparse.Namespace, guarantee: Sequence[str], count: int, rate: int | None = None) -> dict[str, Any]:
    settings: dict[str, Any] = {"count": count, "depth": options.depth}
    if rate is not None:
        settings |= {"rate": rate, "unmeasured": int(rate * UNMEASURED_S)}
    return runs.tallied_job(PIPELINE, settings, count, (*guarantee, "--checkpoint-interval=1"))


BENCHMARK = Benchmark("overhead", OPTIONS, _measure, digits_of={"_rps": 0}, settings={"standbys": "per-task"})
