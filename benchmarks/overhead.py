"""What causal logging costs on a deep graph: one job under each guarantee, in turn, at full speed and at half of it.

A round runs `none`, then each causal setting between two runs of `none`, and divides by the mean of the two around it.
CPU is taken of two jobs at the same time, which share both cores and whatever else the machine does: in turn, the same
job takes up to half as much again within a minute.
Latency is taken at half the speed that `none` reached in the same round; both guarantees get the same rate.  Rows of
the first seconds do not count there: they wait a quarter of a second for processes to start, which is more than a
hundredth of ten seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import deep_count, runs
from benchmarks.measured import figure, result
from benchmarks.throughput import GUARANTEES, tallied

PIPELINE = Path(deep_count.__file__)
NONE = GUARANTEES["none"]
UNMEASURED_S = 3.0
CAUSAL = {name: arguments for name, arguments in GUARANTEES.items() if name != "none"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--records", type=int, default=6_000_000, help="per run at full speed (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--depth", type=int, default=5, help="tasks in a row before the sink (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="measured at half speed (default: %(default)s)")


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all rounds; returns the common form.

    Raises:
        RunFailed: a run failed, or the sink has other rows than were given.
    """
    names = [f"{name}_{what}" for name in CAUSAL for what in ("over_none", "cpu_over_none", "p99_over_none")]
    ratios: dict[str, list[float]] = {name: [] for name in names}
    speeds: list[float] = []
    for number in range(options.rounds):
        before = _run(options, NONE, options.records)
        for name, guarantee in CAUSAL.items():
            causal = _run(options, guarantee, options.records)
            after = _run(options, NONE, options.records)
            speed = (before["throughput_rps"] + after["throughput_rps"]) / 2
            ratios[f"{name}_over_none"].append(causal["throughput_rps"] / speed)
            ratios[f"{name}_cpu_over_none"].append(_cpu_ratio(options, guarantee))
            ratios[f"{name}_p99_over_none"].append(_latency_ratio(options, guarantee, int(speed / 2)))
            speeds.append(speed)
            before = after
            told = ", ".join(f"{key} {held[-1]:.3f}" for key, held in ratios.items() if key.startswith(name))
            tell(f"round {number + 1}: none {speed:,.0f} records/s; {told}")
    figures = {"none_rps": figure(speeds, 0)} | {name: figure(held) for name, held in ratios.items()}
    settings = {"records": options.records, "rounds": options.rounds, "depth": options.depth, "standbys": "per-task"}
    return result("overhead", command, settings, figures)


def _cpu_ratio(options: argparse.Namespace, guarantee: Sequence[str]) -> float:
    with ProcessPoolExecutor(2) as beside:  # processes, as a run's CPU is that of all children of its own
        runs_of = [beside.submit(_run, options, each, options.records) for each in (guarantee, NONE)]
        causal, bare = (run.result()["cpu_s"] for run in runs_of)
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
    report = runs.job(PIPELINE, settings, (*guarantee, "--checkpoint-interval=1"), None, tallied)
    if report["checked"] != count:
        raise runs.RunFailed(f"the sink holds {report['checked']} rows of {count}")
    return report
