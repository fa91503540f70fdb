"""Measures what each guarantee costs, and what one death does under it: the same two jobs under all four, in turn.

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
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness import runs, zero_point
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import longest_gap_ms, percentile
from benchmarks.harness.watched import Watched, ready, watched
from benchmarks.jobs import keyed_ledger, stamped_ledger
from benchmarks.jobs.stamped_sink import Stamp, read_stamps
from benchmarks.recovery.latency_back import TASK, TASK_INDEX
from benchmarks.recovery.row_latency import latencies

GUARANTEES = ("none", "at-least-once", "causal", "epoch")
UNHURT = ("causal", "epoch")
"""Those that promise an output as if no process had died."""
PIPELINE = Path(stamped_ledger.__file__)
AS_FAST_AS_IT_GOES = 100_000_000
READY_WITHIN_S, END_WITHIN_S = 60.0, 120.0
NS = 1_000_000_000


OPTIONS = (
    Option("only", None, "one of them", str, GUARANTEES),
    Option("records", 1_000_000, "per load run"),
    Option("rounds", 3),
    Option("rate", 5000, "records/s of the paced runs", setting="paced_records_per_s"),
    Option("calm", 4.0, "seconds before the kill", setting="calm_s"),
    Option("after", 5.0, "seconds behind the kill", setting="after_s"),
    Option("checkpoint_interval", 1.0, "seconds", setting="checkpoint_interval_s"),
)


def _measure(run: Measurement) -> None:
    options = run.options
    for number in run.rounds():
        none: dict[str, float] | None = None
        for guarantee in (options.only,) if options.only else GUARANTEES:
            load = _load(options, guarantee)
            none = load if guarantee == "none" else none
            over = {} if none is None else {
                "over_none": load["rps"] / none["rps"], "cpu_over_none": load["cpu_us"] / none["cpu_us"]
            }  # fmt: skip
            paced, wrong = _paced(options, guarantee)
            run.add_all(f"{guarantee}.", {**load, **over, **paced, **wrong})
            run.report(
                f"round {number}, {guarantee}: {load['rps']:,.0f} records/s, p99 {paced['p99_ms']:,.1f} ms, "
                f"gap {paced['gap_ms']:,.0f} ms, {dict(wrong)}"
            )


def _arguments(options: argparse.Namespace, guarantee: str) -> tuple[str, ...]:
    return f"--guarantee={guarantee}", f"--checkpoint-interval={options.checkpoint_interval}"


def _load(options: argparse.Namespace, guarantee: str) -> dict[str, float]:
    """Record/s and CPU µs per record as fast as it goes, without a failure."""
    records = options.records // keyed_ledger.PARTITIONS * keyed_ledger.PARTITIONS
    report = runs.job(
        runs.KEYED_LEDGER,
        {"count": records, "rate": AS_FAST_AS_IT_GOES},
        _arguments(options, guarantee),
        check=lambda out, report: keyed_ledger.check(out, records),
    )
    if report["checked"] != {"rows": records, "lost": 0, "doubled": 0, "contradicted": 0}:
        raise runs.RunFailed(f"{guarantee}, no kill: {report['checked']} of {records} records")
    return {"rps": report["throughput_rps"], "cpu_us": report["cpu_s"] / records * 1e6}


def _paced(options: argparse.Namespace, guarantee: str) -> tuple[dict[str, float], Mapping[str, int]]:
    """Return what a user saw of one run at a rate with one kill in it, and what is wrong with its rows."""
    length_s = 6.0 + options.calm + options.after
    count = int(length_s * options.rate / stamped_ledger.PARTITIONS)
    with watched(PIPELINE, {"count": count, "rate": options.rate}, _arguments(options, guarantee)) as job:
        moment_ns = _killed(job, options.calm)
        began_ns = zero_point.began_ns(job.directory)
        report = job.report(END_WITHIN_S)
        rows, stamps = stamped_ledger.read_rows(job.out), read_stamps(job.out)
    wrong = stamped_ledger.wrong(rows, count)
    if not report["recoveries"] or (guarantee in UNHURT and any(wrong.values())):
        raise runs.RunFailed(f"{guarantee}: {wrong}, {len(report['recoveries'])} recoveries")
    if guarantee == "at-least-once" and wrong["lost"]:
        raise runs.RunFailed(f"at-least-once: {wrong}")
    series = latencies(rows, stamps, TASK_INDEX, began_ns, stamped_ledger.PARTITIONS / options.rate * NS)
    before_ns = moment_ns - int(options.calm * NS)
    # What entered just before the kill was seen only after it where rows wait for a checkpoint.
    until_ns = moment_ns - int(2 * options.checkpoint_interval * NS)
    calm = [
        took / 1e6 for at, took in zip(series.origins_ns, series.took_ns, strict=True) if before_ns <= at < until_ns
    ]
    if not calm:
        raise runs.RunFailed(f"{guarantee}: nothing entered before the kill; give it more --calm seconds")
    seen_ns = _seen_ns(rows, stamps)
    return {
        "p50_ms": percentile(calm, 0.5),
        "p99_ms": percentile(calm, 0.99),
        "calm_gap_ms": longest_gap_ms(seen_ns, before_ns, moment_ns),
        "gap_ms": longest_gap_ms(seen_ns, moment_ns, moment_ns + int(options.after * NS)),
    }, wrong


def _killed(job: Watched, calm_s: float) -> int:
    """Kill the task once all standbys are ready and `calm_s` have passed; the moment, in monotonic time."""
    job.until("every standby was ready", lambda view: view["first_record_ns"] and ready(view), READY_WITHIN_S)
    time.sleep(calm_s)
    return job.kill_process(TASK)


def _seen_ns(rows: Sequence[stamped_ledger.Row], stamps: Sequence[Stamp]) -> list[int]:
    """Return when rows of the killed task became visible."""
    return [
        stamp.at_ns
        for stamp in stamps
        if any(counter == TASK_INDEX for counter, *_ in rows[stamp.first : stamp.first + stamp.count])
    ]


SETTINGS = {"keys": stamped_ledger.KEYS, "task": TASK, "sharing_depth": "full", "standbys": "per-task"}
BENCHMARK = Benchmark("guarantees", OPTIONS, _measure, settings=SETTINGS)
