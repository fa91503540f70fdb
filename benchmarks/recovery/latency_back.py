"""Kill -9 until latency is back: the end of the first 100 ms of elements within 10 % of its old level.

Latency is that of the rows of the killed task alone, from the moment its element was due at the source to the commit of
the sink's transaction.  `before` is its median over the second before the kill.  A window holds the elements that
entered in 100 ms; it moves by 10 ms from the kill on, and the first whose median is at most 1.1 times `before` ends the
time to `back`: so 100 ms is the least that can be measured.  `control` is the same from moments without a kill: what
the noise of the machine alone does.  `over_replayed` divides by the stretch of the stream that was replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import runs, zero_point
from benchmarks.harness.declared import Benchmark, Measurement, Option
from benchmarks.harness.measured import distribution, figure
from benchmarks.harness.watched import watched
from benchmarks.jobs import stamped_ledger
from benchmarks.jobs.stamped_sink import read_stamps
from benchmarks.recovery import paced_kills
from benchmarks.recovery.row_latency import WINDOW_NS, Latencies, latencies

PIPELINE = Path(stamped_ledger.__file__)
TASK, TASK_INDEX = "count/0", 0
BEFORE_NS = 1_000_000_000
CONTROL_NS = 1_500_000_000
"""Time from the control moment to its kill: at least a second after the kill before, with room for windows."""
END_WITHIN_S = 120.0


OPTIONS = (
    Option("kills", 24),
    Option("rate", 5000, "records per second", setting="records_per_s"),
    Option("every", 3.5, "least seconds between kills", setting="every_s"),
    Option("checkpoint_interval", 1.0, "seconds", setting="checkpoint_interval_s"),
)


def _measure(run: Measurement) -> None:
    options = run.options
    interval_s = options.checkpoint_interval
    length_s = paced_kills.seconds_needed(options.kills, options.every, interval_s)
    count = int(length_s * options.rate / stamped_ledger.PARTITIONS)
    settings = {"count": count, "rate": options.rate}
    with watched(PIPELINE, settings, (f"--checkpoint-interval={interval_s}",)) as job:
        moments = paced_kills.kill_again(job, TASK, options.kills, options.every, interval_s, run.report)
        began_ns = zero_point.began_ns(job.directory)
        report = job.report(END_WITHIN_S)
        rows, stamps = stamped_ledger.read_rows(job.out), read_stamps(job.out)
    wrong = stamped_ledger.wrong(rows, count)
    if any(wrong.values()) or len(report["recoveries"]) != options.kills:
        raise runs.RunFailed(f"{wrong}, {len(report['recoveries'])} recoveries of {options.kills} kills")
    series = latencies(rows, stamps, TASK_INDEX, began_ns, stamped_ledger.PARTITIONS / options.rate * 1e9)
    limit_ns, task_rps = int(options.every * 1e9), options.rate / stamped_ledger.COUNTERS
    figures, never_back = compared(series, moments, report["recoveries"], limit_ns, task_rps)
    run.figures |= figures
    run.more |= {"never_back": never_back, "output": {"rows": len(rows), **wrong}}


def compared(
    series: Latencies,
    moments: Sequence[int],
    recoveries: Sequence[Mapping[str, Any]],
    limit_ns: int,
    task_rps: float,
) -> tuple[dict[str, Any], int]:
    """Return all figures, and how many kills latency never came back from.

    Raises:
        RunFailed: it came back from none.
    """
    before_ms, back, control, over, replayed = [], [], [], [], []
    for moment_ns, recovery in zip(moments, recoveries, strict=True):
        before_ns = series.median_ns(moment_ns - BEFORE_NS, moment_ns - WINDOW_NS)
        if before_ns is None:
            raise runs.RunFailed("a kill fell into a second without output")
        before_ms.append(before_ns / 1e6)
        quiet_ns = moment_ns - CONTROL_NS
        quiet_before_ns = series.median_ns(quiet_ns - BEFORE_NS + WINDOW_NS, quiet_ns)
        at_rest = series.back_ms(quiet_ns, quiet_before_ns or before_ns, moment_ns)
        if at_rest is not None:
            control.append(at_rest)
        replayed_ms = recovery["replayed_elements"] / task_rps * 1e3
        replayed.append(replayed_ms)
        back_ms = series.back_ms(moment_ns, before_ns, moment_ns + limit_ns)
        if back_ms is not None:
            back.append(back_ms)
            over.append(back_ms / max(replayed_ms, WINDOW_NS / 1e6))
    if not back or not control:
        raise runs.RunFailed("latency never came back within 10 % of its old level; give more seconds between kills")
    figures = {
        "before_ms": distribution(before_ms, 3),
        "back_ms": distribution(back),
        "control_ms": distribution(control),
        "replayed_ms": figure(replayed, 1),
        "over_replayed": distribution(over, 2),
    }
    return figures, len(moments) - len(back)


SETTINGS = {"keys": stamped_ledger.KEYS, "task": TASK, "standbys": "per-task"}
BENCHMARK = Benchmark("latency_back", OPTIONS, _measure, settings=SETTINGS)
