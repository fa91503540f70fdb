"""Measures what determinants in files change (`determinant_flush = "background"`): bytes that travel, CPU, recovery.

Each case runs with and without, one after the other.  `wire` is what deltas cost on the channels between tasks,
`bundle` what went to the sinks' stores, both per record that entered.  `recovery` kills one task of a paced job.
A task that sends at once sends before anything can be on a disk: what is saved is what waits, behind a load or for a
window.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Case, Measurement, Option

SETTINGS = ("off", "background")
PHASES = ("collected_ms", "first_output_ms", "live_ms")
OPTIONS = (
    Option("records", 1_000_000, "of the keyed count"),
    Option("single", 10_000, "records, one per batch"),
    Option("windows", 60_000, "rows into windows"),
    Option("payments", 12_000, "of the job with a kill"),
    Option("durability", "process", choices=("process", "os")),
    Option("rounds", 5),
)


def cases(options: argparse.Namespace) -> dict[str, Case]:
    """The measured cases by name."""
    windows = {"windows": "tumbling", "count": options.windows}
    return {
        "single": Case(
            runs.KEYED_COUNT,
            {"count": options.single, "rate": max(1, options.single // 5)},
            {"batch_elements_max": 1},
        ),
        "load": Case(runs.KEYED_COUNT, {"count": options.records}),
        "windows": Case(runs.KEYED_WINDOWS, windows, {"batch_elements_max": 16}),
        "recovery": Case(
            runs.FRAUD_CHAIN,
            {"count": options.payments // 2, "rate": max(1, options.payments // 6)},
            {"checkpoint_interval_s": 60.0},
            ("--kill", "score/0@3"),
        ),
    }


def _measure(run: Measurement) -> dict[str, Any]:
    known = cases(run.options)
    for number in run.rounds():
        for name, case in known.items():
            for flush in SETTINGS:
                report = case.run(f"--determinant-flush={flush}", f"--durability={run.options.durability}")
                run.add_all(f"{name}.{flush}.", {**_per_record(report), **_recovery(report)})
                wire = run.last(f"{name}.{flush}.wire")
                run.report(f"round {number}, {name}, {flush}: {wire:.4f} bytes/record on the wire")
    return {"cases": {name: case.described() for name, case in known.items()}}


def _per_record(report: Mapping[str, Any]) -> dict[str, float]:
    records, tasks = report["records_in"], list(report["tasks"].values())
    return {
        "logged": sum(report["determinant_bytes"].values()) / records,
        "wire": sum(task["delta_bytes"] for task in tasks) / records,
        "bundle": sum(task.get("bundle_delta_bytes", 0) for task in tasks) / records,
        "cpu_us": report["cpu_s"] * 1e6 / records,
    }


def _recovery(report: Mapping[str, Any]) -> dict[str, float]:
    recoveries = report["recoveries"]
    return {phase: float(recoveries[0][phase]) for phase in PHASES if recoveries and recoveries[0][phase] is not None}


BENCHMARK = Benchmark("flush", OPTIONS, _measure, digits=5)
