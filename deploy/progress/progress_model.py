"""The metrics that `causal run` shows while its job runs: converts views to lines and table rows.  Pure.

The content is the same with and without a terminal; `display` and `progress_screen` present it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from causal.task.activity import sentence
from deploy.jobs.hints import led_by
from deploy.printable import one_line
from standby.supervision.figures import agent_silent, listed_totals, merged_buckets, percentile_ms, total
from standby.supervision.job_view import JobView, TaskView

RATE_S = 1.0
"""The shortest time span over which a rate is measured."""
SETTLED_S = 3.0
"""The time over which the rate of a bounded input is measured before the remaining time is estimated."""
LONG_NS = 2_000_000_000
"""If work lasts longer than this, it is shown; if several tasks have such work, only the oldest is shown."""
NAMES_SHOWN = 4
ROOM = "start another `causal agent`, or use --standbys 0"
"""The remedy if no host has room for a standby."""
REASON_CHARACTERS_MAX = 120
RECOVERIES_SHOWN = 3
TASKS_SHOWN = 30
"""The largest number of table rows; if there are more tasks, only the busiest are shown."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task, as a row of the table.

    Attributes:
        entering, leaving: how many elements were delivered to the task, and how many rows or records left it, per
            second; None if there is no rate.
        busy, blocked: the shares of time for which the task was busy and blocked.
        waiting_bytes: the bytes that have arrived but have not been performed yet.
    """

    task: str
    state: str
    entering: float | None
    leaving: float | None
    busy: float | None
    blocked: float | None
    waiting_bytes: int


@dataclass(frozen=True, slots=True)
class Bounded:
    """The part of a bounded input that has been read.

    Attributes:
        left_s: an estimate of the time until all of the input is read; None if there is no rate yet.
    """

    read: int
    size: int
    left_s: float | None


class ProgressModel:
    """The latest view, and the growth of its metrics since an earlier one.

    Args:
        companions: the names of sources that need a separate process before the first record can enter.
        hosts: how many hosts should join.
    """

    def __init__(self, companions: Sequence[str] = (), hosts: int = 0) -> None:
        self._companions = tuple(companions)
        self._hosts = hosts
        self._samples: deque[tuple[float, JobView]] = deque()
        self.latency_ms: tuple[float, float] | None = None
        """The median and 99th percentile of the latencies of rows that became visible recently."""

    def take(self, view: JobView, elapsed_s: float) -> None:
        """Process a view."""
        samples = self._samples
        if samples and elapsed_s - samples[-1][0] < RATE_S / 4:
            samples.pop()
        samples.append((elapsed_s, view))
        while len(samples) > 2 and elapsed_s - samples[1][0] >= RATE_S:
            self._measure_latency(samples.popleft()[1])

    def _measure_latency(self, before: JobView) -> None:
        sinks = [task for task in self._samples[-1][1].tasks if task.sink]
        buckets, earlier = merged_buckets(sinks), merged_buckets([task for task in before.tasks if task.sink])
        fresh = {bound: max(0, count - earlier.get(bound, 0)) for bound, count in buckets.items()}
        median_ms, high_ms = percentile_ms(fresh, 0.5), percentile_ms(fresh, 0.99)
        self.latency_ms = None if median_ms is None or high_ms is None else (median_ms, high_ms)

    def _grown(self, value_before: float, value: float) -> float | None:
        """Return the growth per second of a metric over the stored samples; None if they cover too short a time."""
        seconds = self._samples[-1][0] - self._samples[0][0] if self._samples else 0.0
        return max(0.0, value - value_before) / seconds if seconds >= RATE_S / 2 else None

    def rate(self, figure: str, kind: str) -> float | None:
        """Return the growth per second of a metric over all tasks of a kind; None until there are two views."""
        if len(self._samples) < 2:
            return None
        first, last = self._samples[0][1], self._samples[-1][1]
        return self._grown(total(first, figure, kind), total(last, figure, kind))

    # -- lines -----------------------------------------------------------------------------------------------

    def headline(self, elapsed_s: float) -> str:
        """Return one line about the job."""
        view = self._samples[-1][1]
        leader = view.leader
        if leader is not None and not leader.here:
            return f"{elapsed_s:.1f} s  followed: led by {led_by(leader)}"
        rates = (self.rate("records_in", "source"), self.rate("records_out", "sink"))
        entering, leaving = ("" if rate is None else f" ({rate:,.0f}/s)" for rate in rates)
        parts = [
            f"in {total(view, 'records_in', 'source'):,}{entering}",
            f"out {total(view, 'records_out', 'sink'):,}{leaving}",
            *([] if self.latency_ms is None else [f"latency {self.latency_ms[0]:.0f} to {self.latency_ms[1]:.0f} ms"]),
            f"in flight {in_bytes(total(view, 'inflight_bytes') + total(view, 'inflight_disk_bytes'))}",
            f"checkpoint {view.checkpoint.complete}",
            f"recoveries {len(view.recoveries)}",
            *(f"{label} {value:,}" for label, value in listed_totals(view)),
        ]
        return f"{elapsed_s:.1f} s  {view.state}: {', '.join(parts)}"

    def waits(self, elapsed_s: float) -> list[str]:
        """Return descriptions of what the job is waiting for."""
        view = self._samples[-1][1]
        waits = []
        joined = sum(1 for host in view.hosts if host.state == "joined") if self._hosts else 0
        if joined < self._hosts and view.life.first_record_ns is None:
            waits.append(f"{joined} of {self._hosts} hosts have joined")
        if view.life.first_record_ns is None and self._companions:
            names = ", ".join(self._companions)
            waits.append(f"waiting for the first record of {names}, {elapsed_s:.0f} s")
        if silent := agent_silent(view):
            waits.append(silent)
        recovering = [task.task for task in view.tasks if task.state not in ("running", "finished", "staged")]
        if recovering:
            waits.append(f"not yet running: {named(recovering)}")
        away = {task.task: task.waiting for task in view.tasks if task.waiting is not None}
        if away:
            longest = min(away.values(), key=lambda waiting: waiting.since_ns)
            since_s, why = (view.at_ns - longest.since_ns) / 1e9, bounded(longest.reason)
            waits.append(f"waiting for its store: {named(list(away))}, {since_s:.0f} s: {why}")
        busy = [(task.doing.since_ns, task.task, task.doing) for task in view.tasks if task.doing and not task.waiting]
        long = [each for each in busy if view.at_ns - each[0] >= LONG_NS]
        if long:
            _, oldest, doing = min(long, key=lambda each: each[0])
            more = f" and {len(long) - 1} more" if len(long) > 1 else ""
            waits.append(f"{oldest} is {sentence(doing, view.at_ns)}{more}")
        full = [task.task for task in view.tasks if task.number("ingest_waiting_s")]
        if full:
            waits.append(f"the input waits for {named(full)} to read")
        unanswered = [task.task for task in view.tasks if task.number("ingest_store_waiting_s")]
        if unanswered:
            waits.append(f"the store does not answer {named(unanswered)}")
        return waits

    def recoveries(self) -> list[str]:
        """Return a line for each of the most recent recoveries."""
        lines = []
        for recovery in self._samples[-1][1].recoveries[-RECOVERIES_SHOWN:]:
            live_ms = recovery.live_ms
            end = "not live yet" if live_ms is None else f"live after {live_ms:,.0f} ms"
            replayed = recovery.replayed_elements
            again = "" if replayed is None else f", {replayed:,} elements replayed"
            lines.append(f"recovered {recovery.task} ({recovery.mode}): {end}{again}")
        return lines

    # -- the table -------------------------------------------------------------------------------------------

    def rows(self) -> list[TaskRow]:
        """Return a row for each task, in graph order; if there are too many tasks, only for the busiest ones."""
        before = {task.task: task for task in self._samples[0][1].tasks if task.figures}
        rows = [self._row(task, before.get(task.task)) for task in self._samples[-1][1].tasks]
        if len(rows) > TASKS_SHOWN:
            busiest = {row.task for row in sorted(rows, key=lambda row: -(row.busy or 0))[:TASKS_SHOWN]}
            rows = [row for row in rows if row.task in busiest]
        return rows

    def _row(self, task: TaskView, before: TaskView | None) -> TaskRow:
        def grown(name: str) -> float | None:
            return None if before is None else self._grown(before.number(name), task.number(name))

        leaving = grown("records_out") if task.sink else grown("records_in") if task.source else None
        return TaskRow(
            task.task, task.state, grown("delivered_elements"), leaving, grown("busy_s"), grown("blocked_s"),
            int(task.number("queued_bytes")),
        )  # fmt: skip

    # -- bounded inputs --------------------------------------------------------------------------------------

    def bounded(self) -> Bounded | None:
        """Return how much of the input has been read; None unless every source reports the size of its input."""
        view = self._samples[-1][1]
        sources = [task for task in view.tasks if task.source]
        if not sources or any("input_size" not in task.figures for task in sources):
            return None
        size, read = total(view, "input_size", "source"), total(view, "input_read", "source")
        rate = self.rate("input_read", "source")
        settled = self._samples[-1][0] >= SETTLED_S
        left_s = (size - read) / rate if rate and settled else None
        return Bounded(min(read, size), size, left_s) if size else None


def named(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def bounded(reason: str) -> str:
    """Return the reason on one line, truncated to its maximum length."""
    line = one_line(reason)
    return line if len(line) <= REASON_CHARACTERS_MAX else f"{line[: REASON_CHARACTERS_MAX - 1]}…"


def in_bytes(count: int) -> str:
    """Return a number of bytes in a suitable unit."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
