"""What a record costs in determinants: bytes logged by kind, and bytes of deltas that rode on messages.

`logged` is what the owners wrote, once.  `wire` counts a log's bytes on every channel that they travelled, with
the numbers around each delta; what a sink's store was given is not in it.  `ratio` is wire ÷ logged.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.measured import figure, result

KEYED_WINDOWS = Path(__file__).parent / "keyed_windows.py"


@dataclass(frozen=True)
class Case:
    """One pipeline under one load."""

    pipeline: Path
    settings: Mapping[str, Any]
    options: Sequence[str] = ()
    config: Mapping[str, Any] = field(default_factory=dict)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--records", type=int, default=4_000_000, help="of the keyed count (default: %(default)s)")
    parser.add_argument("--single", type=int, default=10_000, help="records, one per batch (default: %(default)s)")
    parser.add_argument("--payments", type=int, default=16_000, help="of the fraud chain (default: %(default)s)")
    parser.add_argument("--windows", type=int, default=60_000, help="of each kind of window (default: %(default)s)")
    parser.add_argument("--only", default="", help="cases whose names begin so (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")


def cases(options: argparse.Namespace) -> dict[str, Case]:
    """The measured cases by name."""
    half = options.payments // 2
    rate = max(1, options.single // 5)
    return {
        "keyed_count_load_full": Case(runs.KEYED_COUNT, {"count": options.records}),
        "keyed_count_load_f1": Case(runs.KEYED_COUNT, {"count": options.records}, ("--sharing-depth=1",)),
        "keyed_count_single_full": Case(
            runs.KEYED_COUNT, {"count": options.single, "rate": rate}, config={"batch_elements_max": 1}
        ),
        "keyed_count_single_f1": Case(
            runs.KEYED_COUNT,
            {"count": options.single, "rate": rate},
            ("--sharing-depth=1",),
            {"batch_elements_max": 1},
        ),
        "fraud_chain_load_full": Case(runs.FRAUD_CHAIN, {"count": half, "rate": 1_000_000}),
        "fraud_chain_paced_full": Case(runs.FRAUD_CHAIN, {"count": half, "rate": max(1, options.payments // 8)}),
        **{
            f"windows_{kind}_paced_full": Case(KEYED_WINDOWS, {"windows": kind, "count": options.windows})
            for kind in ("event", "tumbling", "sliding", "session")
        },
    }


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all cases in every round; returns the common form.

    Raises:
        RunFailed: a run failed.
    """
    told: dict[str, dict[str, list[float]]] = {}
    for number in range(options.rounds):
        for name, case in cases(options).items():
            if not name.startswith(options.only):
                continue
            report = runs.job(case.pipeline, case.settings, case.options, case.config)
            for key, value in per_record(report).items():
                told.setdefault(name, {}).setdefault(key, []).append(value)
            tell(f"round {number + 1}, {name}: {told[name]['logged'][-1]:.4f} bytes/record logged")
    figures = {
        f"{name}.{key}": figure(values + [0.0] * (options.rounds - len(values)), 5)
        for name, found in told.items()
        for key, values in found.items()
    }
    settings = {
        name: {"pipeline": case.pipeline.name, "settings": case.settings, "options": case.options, **case.config}
        for name, case in cases(options).items()
        if name in told
    }
    return result("determinants", command, {"rounds": options.rounds, "cases": settings}, figures)


def per_record(report: Mapping[str, Any]) -> dict[str, float]:
    """Bytes per record that entered: by kind, logged in all, on the wire; and records per frame."""
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
