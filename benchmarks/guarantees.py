"""What each guarantee costs, and what one death does under it: the same two jobs under all four, in turn in each round.

*load* is a keyed count whose rows go into SQLite, as fast as it goes: `over_none` is records/s ÷ those of none in the
same round, `cpu_us` CPU time per record of all processes, `cpu_over_none` the same against none.  *paced* is the same
count at a rate, with one SIGKILL of one of its two tasks.  `p50_ms` and `p99_ms` are from the moment an element was due
to the commit of the sink's transaction, in the seconds before the kill.  `gap_ms` is the longest time without a row of
the killed task from the kill on, `calm_gap_ms` the same before it.  `lost`, `doubled` and `contradicted` are what the
whole output says of it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import keyed_ledger, runs, stamped_ledger
from benchmarks.latency_back import TASK, TASK_INDEX, latencies
from benchmarks.measured import figure, percentile, result
from benchmarks.stamped_sink import Stamp, read_stamps
from benchmarks.torture_processes import kill
from benchmarks.watched import Watched, processes, watched

GUARANTEES = ("none", "at-least-once", "causal", "epoch")
UNHURT = ("causal", "epoch")
"""Those that promise an output as if nobody had died."""
PIPELINE = Path(stamped_ledger.__file__)
AS_FAST_AS_IT_GOES = 100_000_000
READY_WITHIN_S, END_WITHIN_S = 60.0, 120.0
NS = 1_000_000_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--only", choices=GUARANTEES, help="one of them (default: all)")
    parser.add_argument("--records", type=int, default=1_000_000, help="per load run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--rate", type=int, default=5000, help="records/s of the paced runs (default: %(default)s)")
    parser.add_argument("--calm", type=float, default=4.0, help="seconds before the kill (default: %(default)s)")
    parser.add_argument("--after", type=float, default=5.0, help="seconds behind the kill (default: %(default)s)")
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, help="seconds (default: %(default)s)")


@dataclass(frozen=True, slots=True)
class Paced:
    """What a user saw of one paced run."""

    p50_ms: float
    p99_ms: float
    calm_gap_ms: float
    gap_ms: float
    wrong: Mapping[str, int]


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all rounds; returns the common form.

    Raises:
        RunFailed: a run failed, or an output is not what its guarantee promises.
    """
    found: dict[str, list[float]] = {}
    for number in range(options.rounds):
        none: tuple[float, float] | None = None
        for guarantee in (options.only,) if options.only else GUARANTEES:
            rps, cpu_us = _load(options, guarantee)
            told = {"rps": rps, "cpu_us": cpu_us}
            none = (rps, cpu_us) if guarantee == "none" else none
            if none is not None:
                told |= {"over_none": rps / none[0], "cpu_over_none": cpu_us / none[1]}
            paced = _paced(options, guarantee)
            told |= {"p50_ms": paced.p50_ms, "p99_ms": paced.p99_ms}
            told |= {"calm_gap_ms": paced.calm_gap_ms, "gap_ms": paced.gap_ms, **paced.wrong}
            for name, value in told.items():
                found.setdefault(f"{guarantee}.{name}", []).append(value)
            tell(
                f"round {number + 1}, {guarantee}: {rps:,.0f} records/s, p99 {paced.p99_ms:,.1f} ms, "
                f"gap {paced.gap_ms:,.0f} ms, {dict(paced.wrong)}"
            )
    settings = {
        "records": options.records,
        "rounds": options.rounds,
        "paced_records_per_s": options.rate,
        "calm_s": options.calm,
        "after_s": options.after,
        "keys": stamped_ledger.KEYS,
        "task": TASK,
        "sharing_depth": "full",
        "standbys": "per-task",
        "checkpoint_interval_s": options.checkpoint_interval,
    }
    return result("guarantees", command, settings, {name: figure(values) for name, values in found.items()})


def _arguments(options: argparse.Namespace, guarantee: str) -> tuple[str, ...]:
    return f"--guarantee={guarantee}", f"--checkpoint-interval={options.checkpoint_interval}"


def _load(options: argparse.Namespace, guarantee: str) -> tuple[float, float]:
    """(records/s, CPU µs per record) as fast as it goes, without a failure."""
    records = options.records // keyed_ledger.PARTITIONS * keyed_ledger.PARTITIONS
    report = runs.job(
        runs.KEYED_LEDGER,
        {"count": records, "rate": AS_FAST_AS_IT_GOES},
        _arguments(options, guarantee),
        check=lambda out, report: keyed_ledger.check(out, records),
    )
    if report["checked"] != {"rows": records, "lost": 0, "doubled": 0, "contradicted": 0}:
        raise runs.RunFailed(f"{guarantee}, nobody killed: {report['checked']} of {records} records")
    return report["throughput_rps"], report["cpu_s"] / records * 1e6


def _paced(options: argparse.Namespace, guarantee: str) -> Paced:
    """One run at a rate, and one kill in it."""
    length_s = 6.0 + options.calm + options.after
    count = int(length_s * options.rate / stamped_ledger.PARTITIONS)
    with watched(PIPELINE, {"count": count, "rate": options.rate}, _arguments(options, guarantee)) as job:
        moment_ns = _killed(job, options.calm)
        began_ns = job.view()["first_record_ns"]
        report = job.report(END_WITHIN_S)
        rows, stamps = stamped_ledger.read_rows(job.out), read_stamps(job.out)
    wrong = stamped_ledger.wrong(rows, count)
    if not report["recoveries"] or (guarantee in UNHURT and any(wrong.values())):
        raise runs.RunFailed(f"{guarantee}: {wrong}, {len(report['recoveries'])} recoveries")
    if guarantee == "at-least-once" and wrong["lost"]:
        raise runs.RunFailed(f"at-least-once: {wrong}")
    series = latencies(rows, stamps, began_ns, stamped_ledger.PARTITIONS / options.rate * NS)
    before_ns = moment_ns - int(options.calm * NS)
    # What entered just before the kill was seen only after it where rows wait for a checkpoint.
    until_ns = moment_ns - int(2 * options.checkpoint_interval * NS)
    calm = [
        took / 1e6 for at, took in zip(series.origins_ns, series.took_ns, strict=True) if before_ns <= at < until_ns
    ]
    if not calm:
        raise runs.RunFailed(f"{guarantee}: nothing entered before the kill; give it more --calm seconds")
    seen_ns = _seen_ns(rows, stamps)
    return Paced(
        percentile(calm, 0.5),
        percentile(calm, 0.99),
        longest_gap_ms(seen_ns, before_ns, moment_ns),
        longest_gap_ms(seen_ns, moment_ns, moment_ns + int(options.after * NS)),
        wrong,
    )


def _killed(job: Watched, calm_s: float) -> int:
    """Kill the task once all standbys are ready and `calm_s` have passed; the moment, in monotonic time."""
    job.until("every standby was ready", _ready, READY_WITHIN_S)
    time.sleep(calm_s)
    pid, _ = processes(job.view(), TASK)
    moment_ns = time.monotonic_ns()
    if pid is None or not kill(pid):
        raise runs.RunFailed(f"{TASK} has no process to kill")
    return moment_ns


def _ready(view: Mapping[str, Any]) -> bool:
    return bool(view["first_record_ns"]) and all(
        pid is not None for task in view["tasks"] for pid in processes(view, task["task"])
    )


def _seen_ns(rows: Sequence[stamped_ledger.Row], stamps: Sequence[Stamp]) -> list[int]:
    """When rows of the killed task became visible."""
    return [
        stamp.at_ns
        for stamp in stamps
        if any(counter == TASK_INDEX for counter, *_ in rows[stamp.first : stamp.first + stamp.count])
    ]


def longest_gap_ms(seen_ns: Sequence[int], from_ns: int, until_ns: int) -> float:
    """The longest time without a row, of those that end in that stretch of time.

    Raises:
        RunFailed: no row was seen in it.
    """
    gaps = [later - earlier for earlier, later in pairwise(seen_ns) if from_ns <= later < until_ns]
    if not gaps:
        raise runs.RunFailed("no row was seen for a whole stretch; give it more seconds")
    return max(gaps) / 1e6
