"""Measures what `durability = "os"` costs beside `"process"`: throughput, latency, checkpoints, CPU, of the same job.

Each round runs both, one after the other, at load and at a pace, with determinants in files, too.  Both figures of a
round come from the same minutes of the same disk; the ratio of a round is what its noise leaves alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option

SETTINGS = ("process", "os")
OPTIONS = (
    Option("payments", 20_000, "of the job at load"),
    Option("rate", 1_000, "payments/s of the paced job"),
    Option("seconds", 4.0, "of the paced job"),
    Option("rounds", 5),
)


def _measure(run: Measurement) -> None:
    options = run.options
    loads = {
        "load": {"count": options.payments // 2, "rate": 1_000_000},
        "paced": {"count": int(options.rate * options.seconds) // 2, "rate": options.rate},
    }
    for number in run.rounds():
        for load, settings in loads.items():
            figures = {durability: _run(settings, durability) for durability in SETTINGS}
            for durability, values in figures.items():
                run.add_all(f"{load}.{durability}.", values)
            ratio = figures["os"]["throughput_rps"] / figures["process"]["throughput_rps"]
            run.add(f"{load}.os_over_process_rps", ratio)
            run.report(f"round {number}, {load}: {ratio:.2f} of the throughput, p99 {figures['os']['p99_ms']:.1f} ms")


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


BENCHMARK = Benchmark("durability", OPTIONS, _measure, digits=4, settings={"pipeline": runs.FRAUD_CHAIN.name})
