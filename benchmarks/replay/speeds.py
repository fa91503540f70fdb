"""Measures the speed of a replay of one task ÷ that of its first execution.

*over_full* is records/s of the job's sources in the replay ÷ those of the whole job at full speed, both on all cores.
The replay performs one of two tasks of the operator and both tasks of the source, from each kept checkpoint in a
process of its own; *one_process_over_full* is of one process, which begins at the first checkpoint. *over_1000*: the
time that the same job took for its records at 1,000 records/s ÷ that of one process. *cpu_over_full*: CPU time per
record of one process ÷ that of all processes of the job at full speed, which other work hardly changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.declared import Measurement
from benchmarks.harness.runs import KEYED_COUNT, KEYED_WINDOWS
from benchmarks.replay.performed import ALL
from benchmarks.replay.recorded_jobs import EACH_SECOND, ORDERS, recorded, recorded_records, replayed
from benchmarks.replay.recorder_costs import WORKLOADS
from operators.recordings.recording import open_recording

TASKS: Mapping[str, tuple[Path, str, float, Mapping[str, Any]]] = {
    "orders": (ORDERS, "total/0", 1, {}),
    "count": (KEYED_COUNT, "count/0", 10, {"partitions": 2, "parallelism": 2}),
    "windows": (KEYED_WINDOWS, "window/0", 8, {"windows": "tumbling", "rate": 1e8}),
}
"""Workload → pipeline, task, share of the records, settings at full speed."""


def measure(run: Measurement) -> None:
    """Record each workload at full speed and at each rate, and replay one task of it."""
    options = run.options
    for number in run.rounds():
        for name in options.workload:
            pipeline, task, share, settings = TASKS[name]
            count = int(options.records * share)
            with recorded(pipeline, {"count": count, **settings}, options.limit, (EACH_SECOND,)) as job:
                again = replayed(job.job, ALL, task, options.limit)
                rps, full_rps = again["records"] / again["verify_s"], job.report["throughput_rps"]
                figures = {
                    "rps": rps,
                    "over_full": rps / full_rps,
                    "one_process_over_full": again["records"] / again["perform_s"] / full_rps,
                    "cpu_us": again["cpu_s"] / again["records"] * 1e6,
                    "cpu_over_full": again["cpu_s"] / again["records"] / (job.cpu_s / count),
                }
            run.add_all(f"speed.{name}.", figures)
            run.report(f"round {number}, {name}: {_shown(figures)}")
    for rate in options.rates:
        for name in options.workload:
            pipeline, task, _, settings = TASKS[name]
            count = int(rate * options.seconds)
            with recorded(pipeline, {**settings, "count": count, "rate": rate}, options.limit) as job:
                recording = open_recording(job.job)
                covered = recorded_records(recording, WORKLOADS[name].source)
                run.add(f"recorder.{name}.bytes_per_record_at_{rate}", recording.bytes() / covered)
                for _ in run.rounds():
                    again = replayed(job.job, ALL, task, options.limit)
                    run.add(f"speed.{name}.over_{rate}", again["recorded_s"] / again["perform_s"])
            run.report(f"{name} at {rate} records/s: {run.last(f'speed.{name}.over_{rate}'):.3g} × real time")


def _shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{what} {value:,.3g}" for what, value in figures.items())
