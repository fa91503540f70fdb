"""Input that no job likes, while tasks are killed: hot keys, giant records, tiny batches, a slow operator, a slow sink.

Each case is one job on the same keyed fold (`jobs/strained_fold.py`) and must put out every row exactly once.
`memory_share` is the highest peak of any task's memory ÷ what its budgets allow (see `bad_input_memory`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option, some_of
from benchmarks.harness.watched import watched
from benchmarks.jobs import strained_fold
from benchmarks.recovery.bad_input_memory import Budget, sampled

PIPELINE = Path(strained_fold.__file__)
CREDIT_BYTES, INFLIGHT_BYTES = 1 << 20, 16 << 20
BUDGETS = {"channel_window_bytes": CREDIT_BYTES, "inflight_memory_bytes_max": INFLIGHT_BYTES}
RECORD_BYTES_MAX = 16 << 20
GIANT_BYTES = RECORD_BYTES_MAX - 64
END_WITHIN_S = 600.0


@dataclass(frozen=True)
class Case:
    """One sort of bad input.

    Args:
        settings: of the pipeline.
        config: of the job, in addition to the budgets.
        kills: `TASK@SECONDS`.
    """

    settings: Mapping[str, Any]
    kills: Sequence[str]
    config: Mapping[str, Any] = field(default_factory=dict)
    record_bytes: int = 4096


def cases(scale: float) -> dict[str, Case]:
    """Return all cases; `scale` says how long they run."""
    hot, slow = int(400_000 * scale), int(8_000 * scale)
    giants = int(20 * scale) + 1
    every = 1000
    tiny = int(40_000 * scale)
    return {
        "hot_key": Case(
            {"hot": "yes", "count": hot, "rounds": 10}, ("fold/0@1", "fold/1@1.5"),
        ),
        "giant_record": Case(
            {"count": giants * every, "giant_bytes": GIANT_BYTES, "giant_every": every, "rounds": 1},
            ("fold/0@1", "numbers/0@2.5"),
            record_bytes=RECORD_BYTES_MAX,
        ),
        "tiny_batches": Case(
            {"count": tiny}, ("fold/0@2", "numbers/0@4"), {"batch_elements_max": 1},
        ),
        "slow_operator": Case(
            {"count": slow, "sleep_s": 0.002, "width": 1, "load_bytes": 200}, ("fold/0@3", "numbers/0@6")
        ),
        "slow_sink": Case(
            {"count": slow, "sink_row_s": 0.002, "emit": 1, "width": 1, "load_bytes": 200}, ("out/0@3", "fold/0@6"),
        ),
    }  # fmt: skip


OPTIONS = (
    Option("cases", ",".join(cases(1.0)), "which ones", some_of(cases(1.0)), setting=None),
    Option("rounds", 3),
    Option("scale", 1.0, "length of the runs"),
)


def _measure(run: Measurement) -> dict[str, Any]:
    options, known = run.options, cases(run.options.scale)
    over: dict[str, None] = {}
    for number in run.rounds():
        for name in options.cases:
            figures = run_case(known[name])
            run.add_all(f"{name}_killed.", figures)
            if figures["memory_share"] > 1:
                over[name] = None
            shown = ", ".join(f"{key} {value:,.3f}" for key, value in figures.items())
            run.report(f"round {number}, {name}: {shown}")
    summary = f"over its budgets: {', '.join(over) or 'none'}; every output exactly once"
    run.more |= {"failed": bool(over), "summary": summary}
    return {"cases": {name: {**known[name].settings, "kills": known[name].kills} for name in options.cases}}


def run_case(case: Case) -> dict[str, float]:
    """Return one run of a case, whose rows have been checked: records/s, memory and what it recovered from.

    Raises:
        RunFailed: it failed, or its rows are not there exactly once.
    """
    options = ("--checkpoint-interval=1", *(f"--kill={each}" for each in case.kills))
    with watched(PIPELINE, case.settings, options, {**BUDGETS, **case.config}) as job, sampled(job.view) as peaks:
        report = job.report(END_WITHIN_S)
        hot, emit = case.settings.get("hot") == "yes", case.settings.get("emit", 100)
        wrong = strained_fold.wrong(job.out, case.settings["count"], hot, emit)
    if any(wrong.values()) or report["records_in"] != case.settings["count"]:
        raise runs.RunFailed(f"the output is not exactly once: {wrong}, {report['records_in']} records in")
    if not report["recoveries"]:
        raise runs.RunFailed("no kill hit the job while it ran; give a larger --scale")
    shares = peaks.shares(budget(case))
    return {
        "rps": report["throughput_rps"],
        "memory_share": max(shares.values()),
        "task_mib": max(peaks.tasks.values()),
        "standby_mib": max(peaks.standbys.values(), default=0.0),
        "inflight_disk_mib": max(task.get("inflight_disk_bytes", 0) for task in report["tasks"].values()) / (1 << 20),
        "checkpoints": report["checkpoints"],
        "recoveries": len(report["recoveries"]),
    }


def budget(case: Case) -> Budget:
    """Return what each task of that case may hold."""
    width = int(case.settings.get("width", 2))
    inputs = {f"fold/{index}": 1 for index in range(width)} | {"out/0": width}
    return Budget(INFLIGHT_BYTES, CREDIT_BYTES, case.record_bytes, inputs, frozenset(("out/0",)))


BENCHMARK = Benchmark("bad_input", OPTIONS, _measure, settings={**BUDGETS, "standbys": "per-task"})
