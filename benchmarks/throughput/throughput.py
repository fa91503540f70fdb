"""Records per second of the keyed count under each guarantee, against the bare job in the same rounds.

Efficiency = pipeline records/s ÷ (cores × bare records/s), cores being 2 or what there is if that is less.  A
round runs the bare job, then a guarantee, then the bare job again, and so on, so every pipeline run is
compared with the two bare runs around it, and what else the machine does meanwhile weighs on both.

`over_none` is the efficiency of a guarantee ÷ that of none, within a round: the price of everything.  The causal ones
are also divided by at-least-once with the same checkpoints (`over_at_least_once`): the price of causal logging alone.
`cpu_us` is CPU time per record: of all processes of the job from its start to its end, with interpreters that
start and standbys that follow; of the bare job, its loop alone.  It hardly depends on what else runs.
`p50_ms` is the median of the time from the source to the store: everything waits for everything here.
With --profile, one more run of each shows CPU time per record by role and thread (`profile_threads`): figures
`profile.*` of causal_full, `profile_none.*` and `profile_causal_f1.*` of the others.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from benchmarks.harness import runs
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.profile_threads import thread_times
from benchmarks.jobs import keyed_count

CORES_MAX = 2
ENTRANTS = {"none": runs.GUARANTEES["none"], "at_least_once": runs.AT_LEAST_ONCE, **runs.GUARANTEES}
OPTIONS = (
    Option("records", 12_000_000, "records per run"),
    Option("rounds", 5),
    Option("batch_elements_max", 16384, "rows per read"),
    Option("checkpoint_interval", 1.0, "seconds", setting="checkpoint_interval_s"),
    Option("profile", False, "where CPU goes, by process and thread: one more run of each"),
)


def _measure(run: Measurement) -> dict[str, int]:
    options = run.options
    cores = min(CORES_MAX, len(os.sched_getaffinity(0)))
    before = _bare(run)
    for number in run.rounds():
        for name in ENTRANTS:
            report = _pipeline(options, name)
            after = _bare(run)
            efficiency = report["throughput_rps"] / (cores * (before + after) / 2)
            run.add(f"{name}_rps", report["throughput_rps"])
            run.add(f"{name}_efficiency", efficiency)
            if name != "none":
                run.add(f"{name}_over_none", efficiency / run.last("none_efficiency"))
            if name.startswith("causal"):
                run.add(f"{name}_over_at_least_once", efficiency / run.last("at_least_once_efficiency"))
            run.add(f"{name}_p50_ms", report["latency_ms"]["p50"])
            run.add(f"{name}_checkpoints", report["checkpoints"])
            run.add(f"{name}_cpu_us", report["cpu_s"] / options.records * 1e6)
            run.report(
                f"round {number}, {name}: {report['throughput_rps']:,.0f} records/s,"
                f" bare {after:,.0f}, efficiency {efficiency:.3f}"
            )
            before = after
    if options.profile:
        for name in runs.GUARANTEES:
            run.add_all("profile." if name == "causal_full" else f"profile_{name}.", _profile(options, name))
            run.report(f"profile of {name}: taken")
    return {"cores": cores}


def _bare(run: Measurement) -> float:
    """Record/s of one run of the bare job."""
    job = runs.printed_by("benchmarks.jobs.bare", run.options.records, run.options.batch_elements_max)
    if job["rows"] != run.options.records // 2 * 2:
        raise runs.RunFailed(f"the bare job counted {job['rows']} rows of {run.options.records}")
    run.add("bare_rps", job["rps"])
    run.add("bare_cpu_us", job["cpu_us"])
    return float(job["rps"])


def _profile(options: argparse.Namespace, guarantee: str) -> dict[str, float]:
    """CPU µs per record by role and thread, and what no look has seen."""
    report = _pipeline(options, guarantee, profiled=True)
    seconds = {
        f"{role}.{thread}_us": cpu_s
        for role, threads in report["beside"].seconds().items()
        for thread, cpu_s in threads.items()
    }
    seconds["unseen_us"] = max(0.0, report["cpu_s"] - sum(seconds.values()))
    return {name: cpu_s / options.records * 1e6 for name, cpu_s in seconds.items()}


def _pipeline(options: argparse.Namespace, guarantee: str, profiled: bool = False) -> dict[str, Any]:
    return runs.tallied_job(
        runs.KEYED_COUNT,
        {"count": options.records, "partitions": 2, "parallelism": 2},
        options.records // 2 * 2,
        (*ENTRANTS[guarantee], f"--checkpoint-interval={options.checkpoint_interval}"),
        {"batch_elements_max": options.batch_elements_max},
        beside=thread_times if profiled else None,
    )


SETTINGS = {**keyed_count.SHAPE, "standbys": "per-task"}
BENCHMARK = Benchmark("throughput", OPTIONS, _measure, digits_of={"_rps": 0, "_checkpoints": 0}, settings=SETTINGS)
