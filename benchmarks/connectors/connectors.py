"""Connectors: Kafka → count → Kafka compared with other engines and under kills, changes of PostgreSQL, lakehouses.

The parts are independent (`--parts`): *rates* (`through_kafka`), *kills* (`committed_rows`), *changes*
(`throughput.postgres_changes`) and *lakes* (`costs.lakehouses`).  The broker is noida-db, started for each part, or the
cluster that KAFKA_BOOTSTRAP names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.connectors import committed_rows, through_kafka
from benchmarks.costs import lakehouses
from benchmarks.harness.declared import CAUSAL, Benchmark, Measurement, Option, some_of
from benchmarks.peers import venvs
from benchmarks.throughput import postgres_changes


def _changes(run: Measurement) -> None:
    for number in run.rounds():
        run.add("changes_per_s", postgres_changes.measured(run.options.changes, run.options.per_transaction))
        run.report(f"round {number}: {run.last('changes_per_s'):,.0f} changes/s")


def _lakes(run: Measurement) -> None:
    for make in (lakehouses.delta, lakehouses.iceberg):
        lakehouses.measured(make)  # what is loaded and compiled once
        for number in run.rounds():
            by_time, by_cpu = lakehouses.ratios(make, number)
            run.add_all(f"{make.__name__}_over_parquet.", {"time": by_time, "cpu": by_cpu})
            run.report(f"round {number}: {make.__name__} ÷ parquet {by_time:.2f} by time, {by_cpu:.2f} by CPU")


PARTS: Mapping[str, Callable[[Measurement], None]] = {
    "rates": through_kafka.measure,
    "kills": committed_rows.measure,
    "changes": _changes,
    "lakes": _lakes,
}
OPTIONS = (
    Option("parts", ",".join(PARTS), "which ones", some_of(PARTS)),
    Option("rounds", 5, "of all parts but kills"),
    Option("events", 400_000, "of rates"),
    Option("kills", 10, "of each task of kills"),
    Option("every", 2.5, "least seconds between kills", setting="every_s"),
    Option("rate", 1000, "events/s of kills", setting="events_per_s"),
    Option("changes", 100_000, "of the database"),
    Option("per_transaction", 100, "changes"),
    Option("limit", 240.0, "seconds after which a run is given up", setting=None),
    Option("venvs", venvs.default_place(), "where Quix Streams lives", Path, setting=None),
)


def _measure(run: Measurement) -> None:
    for name in run.options.parts:
        PARTS[name](run)


SETTINGS = {**CAUSAL, "checkpoint_interval_s": 1.0, "peer": venvs.QUIX.requirements}
BENCHMARK = Benchmark("connectors", OPTIONS, _measure, digits_of={"_rps": 0, "_per_s": 0}, settings=SETTINGS)
