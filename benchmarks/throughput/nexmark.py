"""Nexmark: events per second of each query without and with causal logging, and how soon a killed query is back.

Throughput: the three guarantees one after the other, `--rounds` times; `overhead` and `cpu_overhead` compare runs of
one round, the latter by CPU time per event, which hardly depends on what else the machine does.  Events are made
beforehand, rows are counted, not kept.  Recovery: the task with the query's state is killed at a fixed rate of
events, and every row is compared with the model.  Figures that Clonos published (25 parallel tasks on a cluster, in
another language: the ratios compare, the rates do not) stand next to ours.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import PHASES, distribution
from benchmarks.jobs import nexmark_query
from examples.nexmark import check, queries
from examples.nexmark.events import Events
from examples.nexmark.terms import QUERIES, Terms

PIPELINE = Path(nexmark_query.__file__)
CLONOS_OVERHEAD: Mapping[int, tuple[float, float]] = {
    1: (0.085, 0.057), 2: (-0.040, -0.042), 3: (0.042, 0.038), 4: (0.002, 0.027), 5: (0.161, 0.221),
    6: (-0.014, 0.038), 7: (0.155, 0.263), 8: (0.077, 0.074), 9: (0.009, 0.019), 11: (0.008, -0.013),
    12: (0.047, 0.061), 13: (0.092, 0.044), 14: (0.006, 0.031),
}  # fmt: skip
"""The share of throughput that Clonos loses in a query with sharing depth 1 and full, recomputed from its raw data."""
CLONOS_RECOVERY_S: Mapping[int, tuple[str, str]] = {3: ("10", "at least 87"), 8: ("3", "more than 72")}
"""Clonos and Flink 1.7, from the failure until latency is within 10 % of what it was; 50,000 events/s."""
SHAPE = {"events_per_s": "200", "out_of_order": "20", "window_s": "4", "every_s": "2", "gap_s": "1", "clock_s": "0.5"}
SETTLE_S = 2.0


def _numbers(text: str) -> list[int]:
    numbers = [int(each) for each in text.split(",")]
    unknown = [each for each in numbers if each not in queries.BUILT]
    if unknown:
        known = ", ".join(map(str, sorted(queries.BUILT)))
        raise argparse.ArgumentTypeError(f"no query {unknown[0]}; there are {known}")
    return numbers


OPTIONS = (
    Option("queries", sorted(queries.BUILT), "such as 1,3,8", _numbers),
    Option("events", 150_000, "per run of throughput"),
    Option("rounds", 1),
    Option("kills", 3, "per query of recovery, 0 for none"),
    Option("rate", 2000, "events/s of recovery", setting="records_per_s"),
    Option("every", 2.537, "seconds between kills", setting="every_s"),
)


def _measure(run: Measurement) -> None:
    options = run.options
    recoveries: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="causal-nexmark-") as directory:
        nexmark_query.write(_shape(), options.events, Path(directory))
        for query in options.queries:
            _throughput(query, run, directory)
    for query in [each for each in CLONOS_RECOVERY_S if each in options.queries and options.kills]:
        of_query = recoveries[f"q{query}"] = _recovery(query, options)
        for phase in PHASES:
            run.figures[f"q{query}_{phase}"] = distribution([each[phase] for each in of_query["recoveries"]])
        rows = of_query["checked"]["rows"]
        run.report(f"q{query}: {options.kills} kills of q{query}/0, {rows} rows, none lost, none false")
    run.more |= {
        "beside": {"overhead": CLONOS_OVERHEAD, "recovery_s": CLONOS_RECOVERY_S},
        "recoveries": recoveries,
        "summary": _summary(BENCHMARK.summary(run), options.queries),
    }


def _throughput(query: int, run: Measurement, directory: str) -> None:
    options = run.options
    count = options.events // nexmark_query.PARTITIONS * nexmark_query.PARTITIONS
    for _ in run.rounds():
        none: dict[str, float] = {}
        for name, arguments in runs.GUARANTEES.items():
            report = _job(query, count, {"tally": 1, "made": directory}, arguments)
            figures = {"rps": float(report["throughput_rps"]), "cpu_us": report["cpu_s"] / count * 1e6}
            none = none or figures
            run.add_all(f"q{query}_{name}_", figures)
            if name != "none":
                run.add(f"q{query}_{name}_overhead", 1 - figures["rps"] / none["rps"])
                run.add(f"q{query}_{name}_cpu_overhead", figures["cpu_us"] / none["cpu_us"] - 1)
    speeds = (f"{name} {run.last(f'q{query}_{name}_rps'):,.0f}/s" for name in runs.GUARANTEES)
    run.report(f"q{query}: {', '.join(speeds)}")


def _recovery(query: int, options: argparse.Namespace) -> dict[str, Any]:
    length_s = (options.kills + 1) * options.every + SETTLE_S
    count = int(options.rate * length_s) // nexmark_query.PARTITIONS * nexmark_query.PARTITIONS
    events, terms = _shape().listed(count), Terms.of_settings(SHAPE)

    def right(out: Path, report: Mapping[str, Any]) -> dict[str, int]:
        return check.compare(query, check.rows_of(out), events, terms)

    kills = [f"--kill=q{query}/0@{(number + 1) * options.every:.3f}" for number in range(options.kills)]
    with tempfile.TemporaryDirectory(prefix="causal-nexmark-") as directory:
        nexmark_query.write(_shape(), count, Path(directory))
        report = _job(query, count, {"rate": options.rate, "made": directory}, kills, right)
    if len(report["recoveries"]) != options.kills:
        raise runs.RunFailed(f"q{query}: {len(report['recoveries'])} recoveries of {options.kills} kills")
    if report["checked"]["lost"] or report["checked"]["false"] or not report["checked"]["rows"]:
        raise runs.RunFailed(f"q{query}: the rows are not those of the model: {report['checked']}")
    return {"recoveries": report["recoveries"], "checked": report["checked"], "latency_ms": report["latency_ms"]}


def _shape() -> Events:
    return check.events_of(SHAPE)


def _job(
    query: int, count: int, settings: Mapping[str, Any], options: Sequence[str], right: runs.Check | None = None
) -> dict[str, Any]:
    values = {**SHAPE, "query": query, "count": count, **settings}
    return runs.job(PIPELINE, values, options, check=right)


def _summary(figures: Mapping[str, Any], chosen: Sequence[int]) -> str:
    """Return our figures next to those of Clonos, a line per query."""
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
        overheads = f"{ours[0]:+.1%} / {ours[1]:+.1%}   {ours[2]:+.1%} / {ours[3]:+.1%}   {beside:<16}"
        line = f"  q{query:<3} {overheads} {QUERIES[query]}"
        if f"q{query}_live_ms" in figures:
            live = figures[f"q{query}_live_ms"]["median"]
            line += f"; live after {live:.0f} ms, Clonos {CLONOS_RECOVERY_S[query][0]} s"
        lines.append(line)
    return "\n".join(lines)


SETTINGS = {"parallelism": 2, "partitions": nexmark_query.PARTITIONS, "standbys": "per-task", **SHAPE}
BENCHMARK = Benchmark("nexmark", OPTIONS, _measure, digits_of={"_rps": 0, "_cpu_us": 1}, settings=SETTINGS)
