"""Records per second of the keyed count under each guarantee, against the bare job in the same rounds.

Efficiency = pipeline records/s ÷ (cores × bare records/s), cores being 2 or what there is if that is less.  A
round runs the bare job, then a guarantee, then the bare job again, and so on, so every pipeline run is
compared with the two bare runs around it, and what else the machine does meanwhile weighs on both.

`over_none` is the efficiency of a guarantee ÷ that of none, within a round.
`cpu_us` is CPU time per record: of all processes of the job from its start to its end, with interpreters that
start and standbys that follow; of the bare job, its loop alone.  It hardly depends on what else runs.
With --profile, one more run of each tells CPU time per record by role and thread (`profile_threads`): figures
`profile.*` of causal_full, `profile_none.*` and `profile_causal_f1.*` of the others.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks import runs
from benchmarks.measured import figure, result
from benchmarks.profile_threads import ThreadTimes

GUARANTEES: Mapping[str, Sequence[str]] = {
    "none": ("--guarantee=none",),
    "causal_f1": ("--guarantee=causal", "--sharing-depth=1"),
    "causal_full": ("--guarantee=causal", "--sharing-depth=full"),
}
CORES_MAX = 2


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--records", type=int, default=12_000_000, help="records per run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--batch-elements-max", type=int, default=16384, help="rows per read (default: %(default)s)")
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, help="seconds (default: %(default)s)")
    parser.add_argument(
        "--profile", action="store_true", help="where CPU goes, by process and thread: one more run of each"
    )


def tallied(out: Path, report: Mapping[str, Any]) -> int:
    """How many rows the sink's transactions add up to."""
    database = sqlite3.connect(out)
    try:
        rows: int = database.execute("SELECT sum(rows) FROM tally").fetchone()[0]
    finally:
        database.close()
    return rows


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run all rounds; returns the common form.

    Raises:
        RunFailed: a run failed, or counted other rows than were given.
    """
    cores = min(CORES_MAX, len(os.sched_getaffinity(0)))
    rps: dict[str, list[float]] = {name: [] for name in GUARANTEES}
    efficiency: dict[str, list[float]] = {name: [] for name in GUARANTEES}
    checkpoints: dict[str, list[float]] = {name: [] for name in GUARANTEES}
    cpu_us: dict[str, list[float]] = {name: [] for name in GUARANTEES}
    bares = [_bare(options)]
    for number in range(options.rounds):
        for name, arguments in GUARANTEES.items():
            report = _pipeline(options, arguments)
            bares.append(_bare(options))
            before, after = bares[-2]["rps"], bares[-1]["rps"]
            rps[name].append(report["throughput_rps"])
            efficiency[name].append(report["throughput_rps"] / (cores * (before + after) / 2))
            checkpoints[name].append(report["checkpoints"])
            cpu_us[name].append(report["cpu_s"] / options.records * 1e6)
            tell(
                f"round {number + 1}, {name}: {rps[name][-1]:,.0f} records/s,"
                f" bare {after:,.0f}, efficiency {efficiency[name][-1]:.3f}"
            )
    figures = {"bare_rps": figure([told["rps"] for told in bares], 0)}
    figures |= {f"{name}_rps": figure(values, 0) for name, values in rps.items()}
    figures |= {f"{name}_efficiency": figure(values) for name, values in efficiency.items()}
    figures |= {f"{name}_over_none": figure(values) for name, values in _over_none(efficiency).items()}
    figures |= {f"{name}_checkpoints": figure(values, 0) for name, values in checkpoints.items()}
    figures["bare_cpu_us"] = figure([told["cpu_us"] for told in bares])
    figures |= {f"{name}_cpu_us": figure(values) for name, values in cpu_us.items()}
    if options.profile:
        for name in GUARANTEES:
            figures |= _profile(options, name)
            tell(f"profile of {name}: taken")
    settings = {
        "records": options.records,
        "rounds": options.rounds,
        "keys": 9999,
        "partitions": 2,
        "parallelism": 2,
        "standbys": "per-task",
        "batch_elements_max": options.batch_elements_max,
        "checkpoint_interval_s": options.checkpoint_interval,
        "cores": cores,
    }
    return result("throughput", command, settings, figures)


def _over_none(efficiency: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """By guarantee that costs something, round by round."""
    return {
        name: [each / none for each, none in zip(values, efficiency["none"], strict=True)]
        for name, values in efficiency.items()
        if name != "none"
    }


def _bare(options: argparse.Namespace) -> dict[str, Any]:
    told = runs.bare(options.records, options.batch_elements_max)
    if told["rows"] != options.records // 2 * 2:
        raise runs.RunFailed(f"the bare job counted {told['rows']} rows of {options.records}")
    return told


def _profile(options: argparse.Namespace, guarantee: str) -> dict[str, Any]:
    """CPU µs per record by role and thread, and what nobody saw."""
    watching: list[ThreadTimes] = []

    def watch(job: Path) -> ThreadTimes:
        watching.append(ThreadTimes(job))
        return watching[-1]

    report = _pipeline(options, GUARANTEES[guarantee], watch)
    seconds = watching[0].seconds()
    seen_s = sum(sum(threads.values()) for threads in seconds.values())
    prefix = "profile" if guarantee == "causal_full" else f"profile_{guarantee}"
    figures = {
        f"{prefix}.{role}.{thread}_us": figure([cpu_s / options.records * 1e6])
        for role, threads in seconds.items()
        for thread, cpu_s in threads.items()
    }
    return figures | {f"{prefix}.unseen_us": figure([max(0.0, report["cpu_s"] - seen_s) / options.records * 1e6])}


def _pipeline(
    options: argparse.Namespace,
    arguments: Sequence[str],
    beside: Callable[[Path], AbstractContextManager[Any]] | None = None,
) -> dict[str, Any]:
    report = runs.job(
        runs.KEYED_COUNT,
        {"count": options.records, "partitions": 2, "parallelism": 2},
        (*arguments, f"--checkpoint-interval={options.checkpoint_interval}"),
        {"batch_elements_max": options.batch_elements_max},
        tallied,
        beside=beside,
    )
    if report["checked"] != options.records // 2 * 2:
        raise runs.RunFailed(f"the sink holds {report['checked']} rows of {options.records}")
    return report
