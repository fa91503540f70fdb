"""Measures what a recorder costs a job at full speed: records/s, CPU time and checkpoints with it ÷ without it.

Speeds are of jobs in turn, in alternating order. CPU is of two jobs at the same time, which share both cores and
whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.declared import Measurement
from benchmarks.harness.runs import KEYED_COUNT, KEYED_WINDOWS, RunFailed, job
from benchmarks.replay.recorded_jobs import CHECKPOINTS, ORDERS, RECORD, recorded_records
from operators.recordings.recording import open_recording


@dataclass(frozen=True)
class Workload:
    """A job, its source, and its records per run ÷ those that the option asks for."""

    pipeline: Path
    source: str
    share: float
    settings: Mapping[str, Any]


WORKLOADS: Mapping[str, Workload] = {
    "count": Workload(KEYED_COUNT, "rows", 10, {"partitions": 2, "parallelism": 2}),
    "orders": Workload(ORDERS, "orders", 1, {"rate": 0}),
    "windows": Workload(KEYED_WINDOWS, "rows", 8, {"windows": "tumbling", "rate": 1e8}),
}
"""A keyed count, an operator that draws and reads the clock for each record, and windows of processing time."""
MODES: Mapping[str, Sequence[str]] = {"off": (), "on": (RECORD,)}


def measure(run: Measurement) -> None:
    """Measure each workload in each round."""
    options = run.options
    for number in run.rounds():
        for name in options.workload:
            order = list(MODES)[:: 1 if number % 2 else -1]
            speeds = {mode: _run(options, name, mode) for mode in order}
            with ProcessPoolExecutor(len(MODES)) as pool:  # processes, as a run's CPU is that of all their children
                reports = {mode: pool.submit(_run, options, name, mode) for mode in order}
                cpu_s = {mode: report.result()["cpu_s"] for mode, report in reports.items()}
            on, off = speeds["on"], speeds["off"]
            figures = {
                "rps": on["throughput_rps"],
                "rps_over_off": on["throughput_rps"] / off["throughput_rps"],
                "cpu_over_off": cpu_s["on"] / cpu_s["off"],
                "cpu_us": cpu_s["on"] / _records(options, name) * 1e6,
                "checkpoint_ms": median(on["checked"]["took_ms"]),
                "checkpoint_over_off": median(on["checked"]["took_ms"]) / median(off["checked"]["took_ms"]),
                "bytes_per_record": on["checked"]["bytes"] / on["checked"]["recorded"],
            }
            run.add_all(f"recorder.{name}.", figures)
            run.report(f"round {number}, {name}: {', '.join(f'{what} {value:.3g}' for what, value in figures.items())}")


def _records(options: argparse.Namespace, name: str) -> int:
    return int(options.records * WORKLOADS[name].share) // 2 * 2


def _run(options: argparse.Namespace, name: str, mode: str) -> dict[str, Any]:
    workload, count = WORKLOADS[name], _records(options, name)
    settings = {"count": count, **workload.settings}
    looked_at = partial(_looked_at, workload.source)
    return job(workload.pipeline, settings, (*MODES[mode], CHECKPOINTS), check=looked_at, limit_s=options.limit)


def _looked_at(source: str, out: Path, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what checkpoints took in ms; of a recording, also its bytes, and the records that it covers."""
    directory = out.with_name("job")
    took_ms = json.loads((directory / "status.json").read_text())["checkpoint"]["took_ms"]
    if not took_ms:
        raise RunFailed("no checkpoint completed; give the job more records")
    if not (directory / "recording").exists():
        return {"took_ms": took_ms}
    recording = open_recording(directory)
    if not recording.epochs():
        raise RunFailed("no epoch was recorded; give the job more records")
    return {"took_ms": took_ms, "bytes": recording.bytes(), "recorded": recorded_records(recording, source)}
