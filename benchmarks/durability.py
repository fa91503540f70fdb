"""What `durability = "os"` costs beside `"process"`: throughput, latency, checkpoints, CPU, of the same job.

Each round runs both, one after the other, at load and at a pace, with determinants in files, too.  Both figures of a
round come from the same minutes of the same disk; the ratio of a round is what its noise leaves alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from benchmarks import runs
from benchmarks.measured import figure, result

SETTINGS = ("process", "os")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--payments", type=int, default=20_000, help="of the job at load (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=1_000, help="payments/s of the paced job (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of the paced job (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run the fraud chain with either setting; returns the common form.

    Raises:
        RunFailed: a run failed.
    """
    told: dict[str, list[float]] = {}
    for number in range(options.rounds):
        loads = {
            "load": {"count": options.payments // 2, "rate": 1_000_000},
            "paced": {"count": int(options.rate * options.seconds) // 2, "rate": options.rate},
        }
        for load, settings in loads.items():
            found = {durability: _run(settings, durability) for durability in SETTINGS}
            for durability, figures in found.items():
                for name, value in figures.items():
                    told.setdefault(f"{load}.{durability}.{name}", []).append(value)
            ratio = found["os"]["throughput_rps"] / found["process"]["throughput_rps"]
            told.setdefault(f"{load}.os_over_process_rps", []).append(ratio)
            tell(f"round {number + 1}, {load}: {ratio:.2f} of the throughput, p99 {found['os']['p99_ms']:.1f} ms")
    facts = {"rounds": options.rounds, "pipeline": runs.FRAUD_CHAIN.name, "payments": options.payments,
             "rate": options.rate, "seconds": options.seconds}  # fmt: skip
    return result("durability", command, facts, {name: figure(values, 4) for name, values in told.items()})


def _run(settings: Mapping[str, Any], durability: str) -> dict[str, float]:
    switches = (f"--durability={durability}", "--determinant-flush=background", "--checkpoint-interval=0.5")
    report = runs.job(runs.FRAUD_CHAIN, settings, switches)
    return {
        "throughput_rps": float(report["throughput_rps"]),
        "p50_ms": float(report["latency_ms"]["p50"]),
        "p99_ms": float(report["latency_ms"]["p99"]),
        **({"checkpoint_ms": float(median(report["checkpoint_ms"]))} if report["checkpoint_ms"] else {}),
        "cpu_us": report["cpu_s"] * 1e6 / report["records_in"],
    }
