"""A task with a large keyed state: what a checkpoint writes and how long the task pauses for it, memory, and failover.

Jobs on the same pipeline (`benchmarks/large_ledger.py`): one per round that is left alone, then one whose counting task
is killed again and again.  Latencies are those of the steady phase alone: what the sink had counted when all keys were
in is subtracted; each round has its percentiles.  All times of a failover count from the SIGKILL.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import large_ledger, runs
from benchmarks.gated import shut
from benchmarks.measured import distribution, figure, result
from benchmarks.watched import Watched, processes, pss_mib, watched
from deploy.report import Buckets, merged_buckets, percentile_ms

TASK = "again/0"
PIPELINE = Path(large_ledger.__file__)
FILL_WITHIN_S = 300.0
END_WITHIN_S = 600.0
SHARES = {"latency_p50_ms": 0.5, "latency_p99_ms": 0.99, "latency_p9999_ms": 0.9999}
DIGITS = {"snapshot_bytes_per_checkpoint": 0, **dict.fromkeys(SHARES, 3), "task_mib": 1, "standby_mib": 1}
PHASES = ("detected_ms", "promoted_ms", "collected_ms", "first_output_ms", "live_ms")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--keys", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--rate", type=int, default=5000, help="records per second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="of an undisturbed run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="undisturbed runs (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=8, help="default: %(default)s")


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all jobs; returns the common form.

    Raises:
        RunFailed: a run failed, or its rows are not there exactly once.
    """
    rounds: list[Undisturbed] = []
    for number in range(options.rounds):
        rounds.append(_undisturbed(options))
        told = ", ".join(f"{name} {value:,.1f}" for name, value in rounds[-1].figures.items())
        tell(f"round {number + 1}, undisturbed: {told}")
    figures = {"checkpoint_ms": distribution([took for each in rounds for took in each.checkpoints_ms])}
    figures |= {name: figure([each.figures[name] for each in rounds], digits) for name, digits in DIGITS.items()}
    recoveries = _killed(options, tell)
    for phase in PHASES:
        figures[phase] = distribution([r[phase] for r in recoveries if r[phase] is not None])
    figures["replayed_elements"] = figure([recovery["replayed_elements"] for recovery in recoveries], 0)
    settings = {
        "keys": options.keys,
        "changed_keys": options.keys // large_ledger.WARM_SHARE,
        "records_per_s": options.rate,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "kills": options.kills,
        "task": TASK,
        "guarantee": "causal",
        "sharing_depth": "full",
        "standbys": "per-task",
        "checkpoint_interval_s": 1.0,
    }
    return result("state", command, settings, figures, recoveries=recoveries)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {"keys": options.keys, "rate": options.rate}


def _filled(job: Watched, options: argparse.Namespace) -> Mapping[str, Any]:
    """The view when every key is in the state, a later checkpoint holds it all, and its standby has loaded that."""

    def whole(view: Mapping[str, Any]) -> bool:
        count = next(task for task in view["tasks"] if task["task"] == TASK)
        return bool(count["figures"].get("delivered_elements", 0) >= options.keys)

    view = job.until("all keys were in", whole, FILL_WITHIN_S)
    complete = view["checkpoint"]["complete"]
    return job.until(
        "a checkpoint held them all", lambda told: told["checkpoint"]["complete"] >= complete + 3, FILL_WITHIN_S
    )


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """What a job came to that was left alone."""

    checkpoints_ms: Sequence[float]
    figures: Mapping[str, float]


def _undisturbed(options: argparse.Namespace) -> Undisturbed:
    with watched(PIPELINE, _settings(options), ("--checkpoint-interval=1",)) as job:
        before = _filled(job, options)
        wanted = before["checkpoint"]["complete"] + max(3, int(options.seconds / 2))
        after = job.until("enough checkpoints", lambda v: v["checkpoint"]["complete"] >= wanted, FILL_WITHIN_S)
        serving, standby = processes(after, TASK)
        memory = {"task_mib": serving, "standby_mib": standby}
        held = {name: None if pid is None else pss_mib(pid) for name, pid in memory.items()}
        if None in held.values():
            raise runs.RunFailed("a task or its standby was gone when its memory was to be looked at")
        _ended(job, options)
    latencies = _difference(before, after)
    count = after["checkpoint"]["complete"] - before["checkpoint"]["complete"]
    told = {"snapshot_bytes_per_checkpoint": _grown(before, after, "snapshot_bytes") / count}
    for name, share in SHARES.items():
        took_ms = percentile_ms(latencies, share)
        if took_ms is None:
            raise runs.RunFailed("no row became visible in the steady phase; give more --seconds")
        told[name] = took_ms
    told |= {name: mib for name, mib in held.items() if mib is not None}
    return Undisturbed(after["checkpoint"]["took_ms"][-count:], told)


def _ended(job: Watched, options: argparse.Namespace) -> Mapping[str, Any]:
    """Let the steady source end: the report, once all rows have been found."""
    records = shut(large_ledger.gate_of(job.out), job.view(), options.rate)
    report = job.report(END_WITHIN_S)
    found = large_ledger.check(job.out, options.keys, records)
    if found["lost"] or found["doubled"] or found["contradicted"]:
        raise runs.RunFailed(f"the output is not exactly once: {found} ({report['records_out']} rows)")
    return report


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Buckets:
    """Latencies of what became visible between two views."""
    early, late = merged_buckets(before["tasks"]), merged_buckets(after["tasks"])
    return {bound: count - early.get(bound, 0) for bound, count in late.items()}


def _grown(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> float:
    def held(view: Mapping[str, Any]) -> float:
        return float(sum(task["figures"].get(name, 0) for task in view["tasks"]))

    return held(after) - held(before)


def _killed(options: argparse.Namespace, tell: Callable[[str], None]) -> list[Mapping[str, Any]]:
    with watched(PIPELINE, _settings(options), ("--checkpoint-interval=1",)) as job:
        view = _filled(job, options)
        for number in range(options.kills):
            job.until("more checkpoints", _complete_beyond(view["checkpoint"]["complete"] + 2), FILL_WITHIN_S)
            job.until("the standby was ready", _ready, FILL_WITHIN_S)
            job.kill(TASK)
            view = job.until("it was recovered", _recovered_beyond(number), FILL_WITHIN_S)
            tell(f"kill {number + 1}")
        report = _ended(job, options)
    recoveries: list[Mapping[str, Any]] = report["recoveries"]
    return recoveries


def _ready(view: Mapping[str, Any]) -> bool:
    return all(pid is not None for pid in processes(view, TASK))


def _complete_beyond(epoch: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda view: view["checkpoint"]["complete"] > epoch


def _recovered_beyond(count: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda view: sum(recovery["live_ms"] is not None for recovery in view["recoveries"]) > count
