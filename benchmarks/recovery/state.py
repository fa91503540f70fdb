"""A task with a large keyed state: what a checkpoint writes and how long the task pauses for it, memory, and failover.

Jobs on the same pipeline (`jobs/large_ledger.py`): one per round that is left alone, then one whose counting task is
killed repeatedly. Latencies are those of the steady phase alone: what the sink had counted when all keys were in is
subtracted; each round has its percentiles. All times of a failover count from the SIGKILL.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import runs, zero_point
from benchmarks.harness.declared import CAUSAL, Benchmark, Measurement, Option
from benchmarks.harness.measured import PHASES, distribution
from benchmarks.harness.usage import pss_mib
from benchmarks.harness.watched import Watched, follows, processes, ready, watched
from benchmarks.jobs import large_ledger
from benchmarks.jobs.gated import shut
from standby.supervision.figures import Buckets, merged_buckets, percentile_ms
from standby.supervision.job_view import JobView

TASK = "again/0"
PIPELINE = Path(large_ledger.__file__)
FILL_WITHIN_S = 300.0
END_WITHIN_S = 600.0
SHARES = {"latency_p50_ms": 0.5, "latency_p99_ms": 0.99, "latency_p9999_ms": 0.9999}


OPTIONS = (
    Option("keys", 1_000_000),
    Option("rate", 5000, "records per second", setting="records_per_s"),
    Option("seconds", 20.0, "of an undisturbed run"),
    Option("rounds", 3, "undisturbed runs"),
    Option("kills", 8),
)


def _measure(run: Measurement) -> dict[str, int]:
    options = run.options
    checkpoints_ms: list[float] = []
    for number in run.rounds():
        took_ms, figures = _undisturbed(options)
        checkpoints_ms += took_ms
        run.add_all("", figures)
        shown = ", ".join(f"{name} {value:,.1f}" for name, value in figures.items())
        run.report(f"round {number}, undisturbed: {shown}")
    run.figures["checkpoint_ms"] = distribution(checkpoints_ms)
    recoveries = _killed(options, run.report)
    for phase in PHASES:
        run.figures[phase] = distribution([each[phase] for each in recoveries if each[phase] is not None])
    for recovery in recoveries:
        run.add("replayed_elements", recovery["replayed_elements"])
    run.more["recoveries"] = recoveries
    return {"changed_keys": options.keys // large_ledger.WARM_SHARE}


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {"keys": options.keys, "rate": options.rate}


def filled(job: Watched, task: str, records: int, within_s: float = FILL_WITHIN_S) -> Mapping[str, Any]:
    """Return the first view in which a task has that many records, which fill its state."""

    def whole(view: Mapping[str, Any]) -> bool:
        count = next(each for each in view["tasks"] if each["task"] == task)
        return bool(count["figures"].get("delivered_elements", 0) >= records)

    return job.until("all keys were in", whole, within_s)


def _saved(job: Watched, options: argparse.Namespace) -> Mapping[str, Any]:
    """Return the view when every key is in the state, a later checkpoint holds it all, and its standby has loaded
    that.
    """
    view = filled(job, TASK, options.keys)
    complete = view["checkpoint"]["complete"]
    return job.until(
        "a checkpoint held them all", lambda view: view["checkpoint"]["complete"] >= complete + 3, FILL_WITHIN_S
    )


def _undisturbed(options: argparse.Namespace) -> tuple[list[float], dict[str, float]]:
    """Return what checkpoints took in a job that was left alone, in ms, and its figures."""
    with watched(PIPELINE, _settings(options), ("--checkpoint-interval=1",)) as job:
        before = _saved(job, options)
        wanted = before["checkpoint"]["complete"] + max(3, int(options.seconds / 2))
        after = job.until("enough checkpoints", lambda v: v["checkpoint"]["complete"] >= wanted, FILL_WITHIN_S)
        serving, standby = processes(after, TASK)
        memory = {"task_mib": serving, "standby_mib": standby}
        mib = {name: None if pid is None else pss_mib(pid) for name, pid in memory.items()}
        if None in mib.values():
            raise runs.RunFailed("a task or its standby was gone when its memory was to be looked at")
        ended(job, options.rate)
    latencies = _difference(before, after)
    count = after["checkpoint"]["complete"] - before["checkpoint"]["complete"]
    figures = {"snapshot_bytes_per_checkpoint": grown(before, after, "snapshot_bytes") / count}
    for name, share in SHARES.items():
        took_ms = percentile_ms(latencies, share)
        if took_ms is None:
            raise runs.RunFailed("no row became visible in the steady phase; give more --seconds")
        figures[name] = took_ms
    figures |= {name: each for name, each in mib.items() if each is not None}
    return after["checkpoint"]["took_ms"][-count:], figures


def ended(job: Watched, rate: float, fills: int = 1) -> Mapping[str, Any]:
    """Let the steady source end: the report, once all rows have been found."""
    records = shut(large_ledger.gate_of(job.out), zero_point.began_ns(job.directory), rate)
    report = job.report(END_WITHIN_S)
    wrong = large_ledger.check(job.out, records, fills)
    if wrong["lost"] or wrong["doubled"] or wrong["contradicted"]:
        raise runs.RunFailed(f"the output is not exactly once: {wrong} ({report['records_out']} rows)")
    return report


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Buckets:
    """Return latencies of what became visible between two views."""
    early, late = merged_buckets(JobView.of(before).tasks), merged_buckets(JobView.of(after).tasks)
    return {bound: count - early.get(bound, 0) for bound, count in late.items()}


def grown(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    """Return by how much a counter of all tasks has grown between two views."""

    def total(view: Mapping[str, Any]) -> float:
        return float(sum(task["figures"].get(name, 0) for task in view["tasks"]))

    return total(after) - total(before)


def _killed(options: argparse.Namespace, report_line: Callable[[str], None]) -> list[Mapping[str, Any]]:
    with watched(PIPELINE, _settings(options), ("--checkpoint-interval=1",)) as job:
        view = _saved(job, options)
        for number in range(options.kills):
            view = killed(job, TASK, number, view["checkpoint"]["complete"] + 2)
            report_line(f"kill {number + 1}")
        report = ended(job, options.rate)
    recoveries: list[Mapping[str, Any]] = report["recoveries"]
    return recoveries


def killed(job: Watched, task: str, before: int, epoch: int, within_s: float = FILL_WITHIN_S) -> dict[str, Any]:
    """Kill a task after a checkpoint, with a standby that is ready; returns the view when it has recovered."""
    job.until("more checkpoints", _complete_beyond(epoch), within_s)
    job.until("the standby was ready", lambda view: ready(view, task) and follows(view, task), within_s)
    job.kill(task)
    return job.until("it was recovered", _recovered_beyond(before), within_s)


def _complete_beyond(epoch: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda view: view["checkpoint"]["complete"] > epoch


def _recovered_beyond(count: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda view: sum(recovery["live_ms"] is not None for recovery in view["recoveries"]) > count


DIGITS_OF = {**dict.fromkeys(SHARES, 3), "_mib": 1}
SETTINGS = {"task": TASK, **CAUSAL, "checkpoint_interval_s": 1.0}
BENCHMARK = Benchmark("state", OPTIONS, _measure, digits=0, digits_of=DIGITS_OF, settings=SETTINGS)
