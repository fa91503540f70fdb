"""Rates and shares of time, computed from a job's views, which contain only totals. Pure.

A rate is measured over the last two seconds of the job's own clock, so that it neither jumps with each view nor depends
on how often a browser sends requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from standby.supervision.figures import RATED
from standby.supervision.job_view import Figure, JobView

WINDOW_NS = 2_000_000_000
HISTORY_MAX = 600
"""The number of points in the chart, which cover five minutes."""
AT_WORK = ("running", "finished")
TIMES = ("busy_s", "blocked_s", "idle_s")

Totals = dict[str, dict[str, float]]


class Meter:
    """The most recent views of one job."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Totals]] = deque()
        self._run = ""
        self._supervisor: object = None
        self._partial = False
        self.history: deque[tuple[float, float, float]] = deque(maxlen=HISTORY_MAX)
        """(seconds on the job's clock, records/s in, rows/s out)."""

    def take(self, view: JobView) -> None:
        """Process a view unless it is the same as the previous one; a view of another run starts a new history.

        A supervisor that has just started does not know the totals of tasks from which it has not heard, so its views
        are skipped until all tasks are at work.
        """
        at_ns = view.at_ns
        if view.run != self._run or (self._samples and at_ns < self._samples[-1][0]):
            self._run = view.run
            self._samples.clear()
            self.history.clear()
        if view.supervisor_pid != self._supervisor:
            self._supervisor, self._partial = view.supervisor_pid, bool(self.history)
            self._samples.clear()
        if self._partial and not all(task.state in AT_WORK for task in view.tasks):
            return
        self._partial = False
        if self._samples and at_ns == self._samples[-1][0]:
            return
        self._samples.append((at_ns, {task.task: _totals(task.figures) for task in view.tasks}))
        while len(self._samples) > 2 and at_ns - self._samples[1][0] >= WINDOW_NS:
            self._samples.popleft()
        if len(self._samples) > 1:
            entered = sum(self.rates(task.task).get("records_in", 0) for task in view.tasks if task.source)
            rates = (self.rates(task.task) for task in view.tasks if task.sink)
            written = sum(rate.get("records_out", 0) - rate.get("dead_letters", 0) for rate in rates)
            self.history.append((at_ns / 1e9, round(entered, 1), round(written, 1)))

    def rates(self, task: str) -> dict[str, float]:
        """Return the recent growth per second by metric, with `to N` for bytes to task number N.

        A task that is recovering may report less than before, which does not count as a negative rate.

        Returns: an empty mapping until there are two views.
        """
        if len(self._samples) < 2:
            return {}
        (since_ns, first), (at_ns, last) = self._samples[0], self._samples[-1]
        before, now = first.get(task, {}), last.get(task, {})
        seconds = (at_ns - since_ns) / 1e9
        return {name: max(0.0, value - before.get(name, value)) / seconds for name, value in now.items()}


def averages(figures: Mapping[str, Figure], seconds: float | None) -> dict[str, float]:
    """Return rates like those of `Meter.rates`, but averaged over a whole run, for a job that has ended."""
    return {name: value / seconds for name, value in _totals(figures).items()} if seconds else {}


def shares(spent: Mapping[str, float]) -> dict[str, float] | None:
    """Return the shares of time for which a task was busy and blocked; None if nothing is known.

    Args:
        spent: the time by `TIMES`, in seconds or in seconds per second.
    """
    total = sum(spent.get(name, 0.0) for name in TIMES)
    if total <= 0:
        return None
    return {name.removesuffix("_s"): round(spent.get(name, 0.0) / total, 4) for name in TIMES}


def _totals(figures: Mapping[str, Figure]) -> dict[str, float]:
    totals = {name: float(value) for name in RATED if not isinstance(value := figures.get(name, {}), dict)}
    sent = figures.get("sent_bytes_to", {})
    parts = sent.items() if isinstance(sent, dict) else ()
    return {**totals, **{f"to {index}": float(count) for index, count in parts if not isinstance(count, dict)}}
