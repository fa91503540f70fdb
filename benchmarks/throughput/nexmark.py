"""Nexmark: events per second of each query without and with causal logging, and how soon a killed query is back.

Throughput: the three guarantees one after the other, `--rounds` times; `overhead` and `cpu_overhead` compare runs of
one round, the latter by CPU time per event, which hardly depends on what else the machine does.  Events are made
beforehand, rows are counted, not kept.  Recovery: the task with the query's state is killed at a fixed rate of
events, and every row is compared with the model.
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
from examples.nexmark.terms import Terms

PIPELINE = Path(nexmark_query.__file__)
KILLED = (3, 8)
"""The queries that are killed: those of which Clonos published how soon latency is back."""
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
    Option("every", 2.537, "seconds between kills", setting="kills_every_s"),
)


def _measure(run: Measurement) -> None:
    options = run.options
    recoveries: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="causal-nexmark-") as directory:
        nexmark_query.write(_shape(), options.events, Path(directory))
        for query in options.queries:
            _throughput(query, run, directory)
    for query in [each for each in KILLED if each in options.queries and options.kills]:
        of_query = recoveries[f"q{query}"] = _recovery(query, options)
        for phase in PHASES:
            run.figures[f"q{query}_{phase}"] = distribution([each[phase] for each in of_query["recoveries"]])
        rows = of_query["checked"]["rows"]
        run.report(f"q{query}: {options.kills} kills of q{query}/0, {rows} rows, none lost, none false")
    run.more["recoveries"] = recoveries


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


SETTINGS = {"parallelism": 2, "partitions": nexmark_query.PARTITIONS, "standbys": "per-task", **SHAPE}
BENCHMARK = Benchmark("nexmark", OPTIONS, _measure, digits_of={"_rps": 0, "_cpu_us": 1}, settings=SETTINGS)
