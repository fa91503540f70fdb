"""Kill -9 until latency is back within 10 % of before: the end of the first 100 ms of elements that are as fast again.

Latency is that of the rows of the killed task alone, from the moment its element was due at the source to the commit of
the sink's transaction.  `before` is its median over the second before the kill.  A window holds the elements that
entered in 100 ms; it moves by 10 ms from the kill on, and the first whose median is at most 1.1 times `before` ends the
time to `back`: so 100 ms is the least that can be measured.  `control` is the same from moments without a kill: what
the noise of the machine alone does.  `over_replayed` divides by the stretch of the stream that was replayed.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import paced_kills, runs, stamped_ledger
from benchmarks.measured import distribution, figure, result
from benchmarks.stamped_sink import Stamp, read_stamps
from benchmarks.watched import watched

PIPELINE = Path(stamped_ledger.__file__)
TASK, TASK_INDEX = "count/0", 0
WINDOW_NS, STEP_NS, BEFORE_NS = 100_000_000, 10_000_000, 1_000_000_000
NEAR = 1.1
CONTROL_NS = 1_500_000_000
"""How long before a kill its control moment lies: at least a second after the kill before, with room for windows."""
END_WITHIN_S = 120.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--kills", type=int, default=24, help="default: %(default)s")
    parser.add_argument("--rate", type=int, default=5000, help="records per second (default: %(default)s)")
    parser.add_argument("--every", type=float, default=3.5, help="least seconds between kills (default: %(default)s)")
    parser.add_argument("--checkpoint-interval", type=float, default=1.0, help="seconds (default: %(default)s)")


@dataclass(frozen=True, slots=True)
class Latencies:
    """Elements of one task by the time they entered."""

    origins_ns: Sequence[int]
    took_ns: Sequence[int]

    def median_ns(self, start_ns: int, end_ns: int) -> float | None:
        """Of what entered from `start_ns` on and before `end_ns`; None for nothing."""
        first, last = bisect_left(self.origins_ns, start_ns), bisect_left(self.origins_ns, end_ns)
        return median(self.took_ns[first:last]) if last > first else None

    def back_ms(self, moment_ns: int, before_ns: float, limit_ns: int) -> float | None:
        """From `moment_ns` to the end of the first window that is as fast as before; None for none up to `limit_ns`."""
        for start_ns in range(moment_ns, limit_ns - WINDOW_NS, STEP_NS):
            found = self.median_ns(start_ns, start_ns + WINDOW_NS)
            if found is not None and found <= NEAR * before_ns:
                return (start_ns + WINDOW_NS - moment_ns) / 1e6
        return None


def latencies(
    rows: Sequence[stamped_ledger.Row], stamps: Sequence[Stamp], began_ns: int, interval_ns: float
) -> Latencies:
    """Latencies of the killed task's rows.

    Args:
        interval_ns: between two elements of a partition.
    """
    found: list[tuple[int, int]] = []
    for stamp in stamps:
        for counter, _, _, _, i in rows[stamp.first : stamp.first + stamp.count]:
            if counter == TASK_INDEX:
                origin_ns = began_ns + int(i * interval_ns)
                found.append((origin_ns, stamp.at_ns - origin_ns))
    found.sort()
    return Latencies([origin for origin, _ in found], [took for _, took in found])


def measure(options: argparse.Namespace, command: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run it; returns the common form, `never_back` being how many kills had no such window before the next kill.

    Raises:
        RunFailed: the run failed, or its rows are not there exactly once.
    """
    interval_s = options.checkpoint_interval
    length_s = paced_kills.seconds_needed(options.kills, options.every, interval_s)
    count = int(length_s * options.rate / stamped_ledger.PARTITIONS)
    settings = {"count": count, "rate": options.rate}
    with watched(PIPELINE, settings, (f"--checkpoint-interval={interval_s}",)) as job:
        moments = paced_kills.kill_again(job, TASK, options.kills, options.every, interval_s, tell)
        began_ns = job.view()["first_record_ns"]
        report = job.report(END_WITHIN_S)
        rows, stamps = stamped_ledger.read_rows(job.out), read_stamps(job.out)
    found = stamped_ledger.wrong(rows, count)
    if any(found.values()) or len(report["recoveries"]) != options.kills:
        raise runs.RunFailed(f"{found}, {len(report['recoveries'])} recoveries of {options.kills} kills")
    series = latencies(rows, stamps, began_ns, stamped_ledger.PARTITIONS / options.rate * 1e9)
    limit_ns = int(options.every * 1e9)
    figures, never = compared(series, moments, report["recoveries"], limit_ns, options.rate / stamped_ledger.COUNTERS)
    told = {"records_per_s": options.rate, "keys": stamped_ledger.KEYS, "task": TASK, "kills": options.kills}
    told |= {"every_s": options.every, "checkpoint_interval_s": interval_s, "standbys": "per-task"}
    output = {"rows": len(rows), **found}
    return result("latency_back", command, told, figures, never_back=never, output=output)


def compared(
    series: Latencies,
    moments: Sequence[int],
    recoveries: Sequence[Mapping[str, Any]],
    limit_ns: int,
    task_rps: float,
) -> tuple[dict[str, Any], int]:
    """All figures, and how many kills latency never came back from.

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
        raise runs.RunFailed("latency never came back within 10 % of before; give more seconds between kills")
    figures = {
        "before_ms": distribution(before_ms, 3),
        "back_ms": distribution(back),
        "control_ms": distribution(control),
        "replayed_ms": figure(replayed, 1),
        "over_replayed": distribution(over, 2),
    }
    return figures, len(moments) - len(back)
