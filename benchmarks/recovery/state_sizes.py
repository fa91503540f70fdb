"""A task with a megabyte to gigabytes of state: failover, checkpoints, memory and speed at each size.

One job per size and place of the state (`jobs/sized_ledger.py`): it is filled at full speed, then one key of a hundred
gets all records at a steady rate while checkpoints are taken and the counting task is killed repeatedly. The output of
every job is checked. Figures are called by the place, the megabytes and what they are; *failover_spread* divides the
slowest median failover by the fastest. *checkpoint_late* is the longest checkpoint after the fill, in intervals, also
of those in which the task was killed; *fill_late* is the longest one before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.declared import CAUSAL, Benchmark, Measurement, Option
from benchmarks.harness.measured import distribution, figure
from benchmarks.harness.usage import pss_mib
from benchmarks.harness.watched import processes, watched
from benchmarks.jobs import sized_ledger
from benchmarks.recovery.state import ended, filled, grown, killed

TASK = "count/0"
PIPELINE = Path(sized_ledger.__file__)
MEGABYTE = 1_000_000
PLACES = ("memory", "disk")
WITHIN_S = 1800.0
INTERVAL_S = 1.0
TIMES = ("detected_ms", "promoted_ms", "first_output_ms")


def _megabytes(text: str) -> list[int]:
    sizes = [int(each) for each in text.split(",")] if text else []
    if any(size < 1 for size in sizes):
        raise argparse.ArgumentTypeError(f"{text!r} are not sizes of one megabyte or more")
    return sizes


OPTIONS = (
    Option("memory", "1,10,100,1000", "MB of state in memory", _megabytes, setting="memory_mb"),
    Option("disk", "100,1000", "MB of state on disk", _megabytes, setting="disk_mb"),
    Option("rate", 2000, "records per second once it is filled", setting="records_per_s"),
    Option("checkpoints", 6, "undisturbed ones of each size"),
    Option("kills", 5, "of each size"),
)


def _measure(run: Measurement) -> dict[str, Any]:
    options = run.options
    for place in PLACES:
        for size_mb in getattr(options, place):
            figures = _sized(options, place, size_mb, run.report)
            run.figures |= {f"{place}.{size_mb}.{name}": each for name, each in figures.items()}
            shown = ", ".join(f"{name} {each['median']:,.4g}" for name, each in figures.items())
            run.report(f"{size_mb} MB in {place}: {shown}")
    failovers_ms = [each["median"] for name, each in run.figures.items() if name.endswith(".first_output_ms")]
    if failovers_ms:
        run.figures["failover_spread"] = figure([max(failovers_ms) / min(failovers_ms)], 2)
    return {"load_bytes": sized_ledger.LOAD_BYTES}


def _sized(
    options: argparse.Namespace, place: str, size_mb: int, report_line: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Return the figures of one size in one place.

    Raises:
        RunFailed: the output is not exactly once, or it took too long.
    """
    keys = size_mb * MEGABYTE // sized_ledger.LOAD_BYTES
    fills = sized_ledger.fills_of(keys)
    settings = {"keys": keys, "rate": options.rate, "kept": place}
    with watched(PIPELINE, settings, (f"--checkpoint-interval={INTERVAL_S:g}",)) as job:
        view = filled(job, TASK, fills * keys, WITHIN_S)
        took_s = (time.monotonic_ns() - view["first_record_ns"]) / 1e9
        wanted = view["checkpoint"]["complete"] + 3
        before = job.until("a checkpoint held them all", _complete(wanted), WITHIN_S)
        after = job.until("more checkpoints", _complete(wanted + options.checkpoints), WITHIN_S)
        count = after["checkpoint"]["complete"] - before["checkpoint"]["complete"]
        serving, standby = processes(after, TASK)
        figures = {
            "fill_rps": figure([fills * keys / took_s], 0),
            "checkpoint_ms": distribution(after["checkpoint"]["took_ms"][-count:]),
            "fill_late": figure([_longest_s(before, {}) / INTERVAL_S], 2),
            "checkpoint_bytes": figure([grown(before, after, "snapshot_bytes") / max(1, count)], 0),
        }
        for name, pid in (("task_mib", serving), ("standby_mib", standby)):
            mib = None if pid is None else pss_mib(pid)
            figures |= {name: figure([mib], 0)} if mib is not None else {}
        view, longest_s = after, _longest_s(after, before)
        for number in range(options.kills):
            earlier, view = view, killed(job, TASK, number, view["checkpoint"]["complete"] + 1, WITHIN_S)
            longest_s = max(longest_s, _longest_s(view, earlier))
            report_line(f"{size_mb} MB in {place}: kill {number + 1}")
        figures["checkpoint_late"] = figure([longest_s / INTERVAL_S], 2)
        recoveries = ended(job, options.rate, fills)["recoveries"]
    for phase in TIMES:
        figures[phase] = distribution([each[phase] for each in recoveries if each[phase] is not None])
    return figures


def _longest_s(view: Mapping[str, Any], earlier: Mapping[str, Any]) -> float:
    """Return how long the longest of the checkpoints took that were completed since an earlier view, and that are
    shown.
    """
    known = earlier["checkpoint"]["complete"] if earlier else 0
    return max(view["checkpoint"]["took_ms"][-max(1, view["checkpoint"]["complete"] - known) :], default=0.0) / 1e3


def _complete(epoch: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda view: view["checkpoint"]["complete"] >= epoch


SETTINGS = {"task": TASK, **CAUSAL, "checkpoint_interval_s": INTERVAL_S}
BENCHMARK = Benchmark("state_sizes", OPTIONS, _measure, digits=1, settings=SETTINGS)
