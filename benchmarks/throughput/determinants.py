"""Measures what a record costs in determinants: bytes logged by kind, and bytes of deltas that rode on messages.

`logged` is what the owners wrote, once.  `wire` counts a log's bytes on every channel that they travelled, with
the numbers around each delta; what a sink's store was given is not in it.  `ratio` is wire ÷ logged.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Case, Measurement, Option

OPTIONS = (
    Option("records", 4_000_000, "of the keyed count"),
    Option("single", 10_000, "records, one per batch"),
    Option("payments", 16_000, "of the fraud chain"),
    Option("windows", 60_000, "of each kind of window"),
    Option("only", "", "cases whose names begin so"),
    Option("rounds", 5),
)
NEAREST = ("--sharing-depth=1",)


def cases(options: argparse.Namespace) -> dict[str, Case]:
    """Return the measured cases by name."""
    half = options.payments // 2
    load = {"count": options.records}
    single, one = {"count": options.single, "rate": max(1, options.single // 5)}, {"batch_elements_max": 1}
    every = {
        "keyed_count_load_full": Case(runs.KEYED_COUNT, load),
        "keyed_count_load_f1": Case(runs.KEYED_COUNT, load, options=NEAREST),
        "keyed_count_single_full": Case(runs.KEYED_COUNT, single, one),
        "keyed_count_single_f1": Case(runs.KEYED_COUNT, single, one, NEAREST),
        "fraud_chain_load_full": Case(runs.FRAUD_CHAIN, {"count": half, "rate": 1_000_000}),
        "fraud_chain_paced_full": Case(runs.FRAUD_CHAIN, {"count": half, "rate": max(1, options.payments // 8)}),
        **{
            f"sums_{order}_single_full": Case(runs.COMMUTING_SUMS, {**single, "commutes": commutes}, one)
            for order, commutes in (("in_order", 0), ("commuting", 1))
        },
        **{
            f"windows_{kind}_paced_full": Case(runs.KEYED_WINDOWS, {"windows": kind, "count": options.windows})
            for kind in ("event", "tumbling", "sliding", "session")
        },
    }
    return {name: case for name, case in every.items() if name.startswith(options.only)}


def _measure(run: Measurement) -> dict[str, Any]:
    known = cases(run.options)
    kinds: dict[str, list[dict[str, float]]] = {name: [] for name in known}
    for number in run.rounds():
        for name, case in known.items():
            kinds[name].append(per_record(case.run()))
            run.report(f"round {number}, {name}: {kinds[name][-1]['logged']:.4f} bytes/record logged")
    for name, rounds in kinds.items():
        for kind in dict.fromkeys(kind for each in rounds for kind in each):
            for each in rounds:
                run.add(f"{name}.{kind}", each.get(kind, 0.0))  # a kind that a round lacks was not logged in it
    return {"cases": {name: case.described() for name, case in known.items()}}


def per_record(report: Mapping[str, Any]) -> dict[str, float]:
    """Return bytes per record that entered: by kind, logged in all, on the wire; and records per frame."""
    records = report["records_in"]
    kinds = report["determinant_bytes"]
    logged = sum(kinds.values())
    tasks = report["tasks"].values()
    wire = sum(task["delta_bytes"] for task in tasks)
    frames = sum(task["sent_frames"] for name, task in report["tasks"].items() if task["records_in"])
    return {
        **{kind: count / records for kind, count in kinds.items()},
        "logged": logged / records,
        "wire": wire / records,
        "ratio": wire / logged,
        "payload": report["sent_bytes"] / records,
        "records_per_source_frame": records / frames,
    }


BENCHMARK = Benchmark("determinants", OPTIONS, _measure, digits=5)
