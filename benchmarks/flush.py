"""What determinants in files change (`determinant_flush = "background"`): bytes that travel, CPU, recovery.

Each case runs with and without, one after the other.  `wire` is what deltas cost on the channels between tasks,
`bundle` what went to the sinks' stores, both per record that entered.  `recovery` kills one task of a paced job.
Whoever sends at once sends before anything can be on a disk: what is saved is what waits, behind a load or for a
window.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks import runs
from benchmarks.determinants import KEYED_WINDOWS
from benchmarks.measured import figure, result

SETTINGS = ("off", "background")
PHASES = ("collected_ms", "first_output_ms", "live_ms")


@dataclass(frozen=True)
class Case:
    """One pipeline under one load."""

    pipeline: Any
    settings: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--records", type=int, default=1_000_000, help="of the keyed count (default: %(default)s)")
    parser.add_argument("--single", type=int, default=10_000, help="records, one per batch (default: %(default)s)")
    parser.add_argument("--windows", type=int, default=60_000, help="rows into windows (default: %(default)s)")
    parser.add_argument("--payments", type=int, default=12_000, help="of the job with a kill (default: %(default)s)")
    parser.add_argument("--durability", default="process", choices=("process", "os"), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")


def cases(options: argparse.Namespace) -> dict[str, Case]:
    """The measured cases by name."""
    one = {"batch_elements_max": 1}
    rate = max(1, options.single // 5)
    return {
        "single": Case(runs.KEYED_COUNT, {"count": options.single, "rate": rate}, one),
        "load": Case(runs.KEYED_COUNT, {"count": options.records}),
        "windows": Case(KEYED_WINDOWS, {"windows": "tumbling", "count": options.windows}, {"batch_elements_max": 16}),
        "recovery": Case(
            runs.FRAUD_CHAIN,
            {"count": options.payments // 2, "rate": max(1, options.payments // 6)},
            {"checkpoint_interval_s": 60.0},
            ("--kill", "score/0@3"),
        ),
    }


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all cases with and without in every round; returns the common form.

    Raises:
        RunFailed: a run failed.
    """
    told: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for name, case in cases(options).items():
            for flush in SETTINGS:
                switches = (f"--determinant-flush={flush}", f"--durability={options.durability}")
                report = runs.job(case.pipeline, case.settings, (*case.options, *switches), case.config)
                found = {**_per_record(report), **_recovery(report)}
                for key, value in found.items():
                    told.setdefault(f"{name}.{flush}.{key}", []).append(value)
                tell(f"round {number + 1}, {name}, {flush}: {found['wire']:.4f} bytes/record on the wire")
    figures = {name: figure(values, 5) for name, values in told.items()}
    settings = {
        name: {"pipeline": case.pipeline.name, "settings": case.settings, "options": case.options, **case.config}
        for name, case in cases(options).items()
    }
    facts = {"rounds": options.rounds, "durability": options.durability, "cases": settings}
    return result("flush", command, facts, figures)


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
