"""Nexmark: events per second of each query without and with causal logging, and how soon a killed query is back.

Throughput: the three guarantees one after the other, `--rounds` times; `overhead` and `cpu_overhead` compare runs of
one round, the latter by CPU time per event, which hardly depends on what else the machine does.  Events are made
beforehand, rows are counted, not kept.  Recovery: the task with the query's state is killed at a fixed rate of
events, and every row is compared with the model.  Figures that Clonos published (25 parallel tasks on a cluster, in
another language: the ratios compare, the rates do not) stand beside ours.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import nexmark_query, runs
from benchmarks.measured import distribution, figure, result
from examples.nexmark import check, queries
from examples.nexmark.events import Events
from examples.nexmark.terms import QUERIES, Terms

PIPELINE = Path(nexmark_query.__file__)
GUARANTEES: Mapping[str, Sequence[str]] = {
    "none": ("--guarantee=none",),
    "causal_f1": ("--guarantee=causal", "--sharing-depth=1"),
    "causal_full": ("--guarantee=causal", "--sharing-depth=full"),
}
CLONOS_OVERHEAD: Mapping[int, tuple[float, float]] = {
    1: (0.085, 0.057), 2: (-0.040, -0.042), 3: (0.042, 0.038), 4: (0.002, 0.027), 5: (0.161, 0.221),
    6: (-0.014, 0.038), 7: (0.155, 0.263), 8: (0.077, 0.074), 9: (0.009, 0.019), 11: (0.008, -0.013),
    12: (0.047, 0.061), 13: (0.092, 0.044), 14: (0.006, 0.031),
}  # fmt: skip
"""By query: the share of throughput that Clonos loses with sharing depth 1 and full, recomputed from its raw data."""
CLONOS_RECOVERY_S: Mapping[int, tuple[str, str]] = {3: ("10", "at least 87"), 8: ("3", "more than 72")}
"""By query: Clonos and Flink 1.7, from the failure until latency is within 10 % of what it was; 50,000 events/s."""
PHASES = ("detected_ms", "promoted_ms", "collected_ms", "first_output_ms", "live_ms")
SHAPE = {"events_per_s": "200", "out_of_order": "20", "window_s": "4", "every_s": "2", "gap_s": "1", "clock_s": "0.5"}
SETTLE_S = 2.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    known = sorted(queries.BUILT)
    parser.add_argument("--queries", type=_numbers, default=known, help="such as 1,3,8 (default: all)")
    parser.add_argument("--events", type=int, default=150_000, help="per run of throughput (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--kills", type=int, default=3, help="per query of recovery, 0 for none (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=2000, help="events/s of recovery (default: %(default)s)")
    parser.add_argument("--every", type=float, default=2.537, help="seconds between kills (default: %(default)s)")


def _numbers(told: str) -> list[int]:
    found = [int(each) for each in told.split(",")]
    unknown = [each for each in found if each not in queries.BUILT]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no query {unknown[0]}; there are {', '.join(map(str, sorted(queries.BUILT)))}"
        )
    return found


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run it; returns the common form, `beside` being what Clonos published.

    Raises:
        RunFailed: a run failed, gave another number of rows than the one before, or a wrong row.
    """
    figures: dict[str, Any] = {}
    recoveries: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="causal-nexmark-") as made:
        nexmark_query.write(_shape(), options.events, Path(made))
        for query in options.queries:
            figures |= _throughput(query, options, made, tell)
    for query in [each for each in CLONOS_RECOVERY_S if each in options.queries and options.kills]:
        found = _recovery(query, options)
        recoveries[f"q{query}"] = found
        for phase in PHASES:
            figures[f"q{query}_{phase}"] = distribution([recovery[phase] for recovery in found["recoveries"]])
        tell(f"q{query}: {options.kills} kills of q{query}/0, {found['checked']['rows']} rows, none lost, none false")
    settings = {
        "events": options.events, "rounds": options.rounds, "kills": options.kills, "records_per_s": options.rate,
        "parallelism": 2, "partitions": nexmark_query.PARTITIONS, "standbys": "per-task", **SHAPE,
    }  # fmt: skip
    beside = {"overhead": CLONOS_OVERHEAD, "recovery_s": CLONOS_RECOVERY_S}
    summary = _summary(figures, options.queries)
    return result("nexmark", command, settings, figures, beside=beside, recoveries=recoveries, summary=summary)


def _throughput(query: int, options: argparse.Namespace, made: str, tell: Callable[[str], None]) -> dict[str, Any]:
    rps: dict[str, list[float]] = {name: [] for name in GUARANTEES}
    cpu_us: dict[str, list[float]] = {name: [] for name in GUARANTEES}
    count = options.events // nexmark_query.PARTITIONS * nexmark_query.PARTITIONS
    for _ in range(options.rounds):
        for name, arguments in GUARANTEES.items():
            report = _job(query, count, {"tally": 1, "made": made}, arguments)
            rps[name].append(report["throughput_rps"])
            cpu_us[name].append(report["cpu_s"] / count * 1e6)
    tell(f"q{query}: " + ", ".join(f"{name} {values[-1]:,.0f}/s" for name, values in rps.items()))
    figures = {f"q{query}_{name}_rps": figure(values, 0) for name, values in rps.items()}
    figures |= {f"q{query}_{name}_cpu_us": figure(values, 1) for name, values in cpu_us.items()}
    for name in ("causal_f1", "causal_full"):
        lost = [1 - causal / none for causal, none in zip(rps[name], rps["none"], strict=True)]
        more = [causal / none - 1 for causal, none in zip(cpu_us[name], cpu_us["none"], strict=True)]
        figures[f"q{query}_{name}_overhead"] = figure(lost)
        figures[f"q{query}_{name}_cpu_overhead"] = figure(more)
    return figures


def _recovery(query: int, options: argparse.Namespace) -> dict[str, Any]:
    length_s = (options.kills + 1) * options.every + SETTLE_S
    count = int(options.rate * length_s) // nexmark_query.PARTITIONS * nexmark_query.PARTITIONS
    events, terms = _shape().listed(count), Terms.told(SHAPE)

    def right(out: Path, report: Mapping[str, Any]) -> dict[str, int]:
        return check.compare(query, check.rows_of(out), events, terms)

    kills = [f"--kill=q{query}/0@{(number + 1) * options.every:.3f}" for number in range(options.kills)]
    with tempfile.TemporaryDirectory(prefix="causal-nexmark-") as made:
        nexmark_query.write(_shape(), count, Path(made))
        report = _job(query, count, {"rate": options.rate, "made": made}, kills, right)
    if len(report["recoveries"]) != options.kills:
        raise runs.RunFailed(f"q{query}: {len(report['recoveries'])} recoveries of {options.kills} kills")
    if report["checked"]["lost"] or report["checked"]["false"] or not report["checked"]["rows"]:
        raise runs.RunFailed(f"q{query}: the rows are not those of the model: {report['checked']}")
    return {"recoveries": report["recoveries"], "checked": report["checked"], "latency_ms": report["latency_ms"]}


def _shape() -> Events:
    return check.events_told(SHAPE)


def _job(
    query: int, count: int, settings: Mapping[str, Any], options: Sequence[str], right: runs.Check | None = None
) -> dict[str, Any]:
    told = {**SHAPE, "query": query, "count": count, **settings}
    return runs.job(PIPELINE, told, options, check=right)


def _summary(figures: Mapping[str, Any], chosen: Sequence[int]) -> str:
    """Ours beside Clonos', a line per query."""
    lines = [
        "at sharing depth 1 / full: throughput lost, CPU time added, throughput that Clonos lost; "
        "recovery of Clonos until latency is back:"
    ]
    for query in chosen:
        ours = [
            figures[f"q{query}_{name}_{what}"]["median"]
            for what in ("overhead", "cpu_overhead")
            for name in ("causal_f1", "causal_full")
        ]
        theirs = CLONOS_OVERHEAD.get(query)
        beside = "not published" if theirs is None else f"{theirs[0]:+.1%} / {theirs[1]:+.1%}"
        told = f"{ours[0]:+.1%} / {ours[1]:+.1%}   {ours[2]:+.1%} / {ours[3]:+.1%}   {beside:<16}"
        line = f"  q{query:<3} {told} {QUERIES[query]}"
        if f"q{query}_live_ms" in figures:
            live = figures[f"q{query}_live_ms"]["median"]
            line += f"; live after {live:.0f} ms, Clonos {CLONOS_RECOVERY_S[query][0]} s"
        lines.append(line)
    return "\n".join(lines)
