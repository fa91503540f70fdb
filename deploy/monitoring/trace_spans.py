"""The traces of a job: converts views to finished spans for recoveries and checkpoints.  Pure.

A recovery is a trace whose root span lasts from the kill, or from the last sign of life, until the task is live; each
phase is a child span.  A checkpoint is one span, from the moment it was triggered until its manifest was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from standby.supervision.job_view import JobView, RecoveryView

Value = str | int | float | bool

PHASES = ("detected", "promoted", "collected", "replayed", "first_output")
"""The phases of a recovery; each begins when the previous one ends."""
CHECKPOINTS_MAX = 20
"""The largest number of checkpoints per view for which spans are created; there are rarely more between two views."""


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span, with monotonic times."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    children: Sequence[Span] = field(default_factory=tuple)
    failed: str = ""
    """The reason why the traced work did not reach its end; empty if it did."""


class TraceModel:
    """Follows the views of one job and creates each span once.

    Args:
        since_ns: work before this time is not traced, because an earlier `causal run` has already traced it.
    """

    def __init__(self, since_ns: int) -> None:
        self._since_ns = since_ns
        self._traced: set[tuple[str, int]] = set()
        self._checkpoints: int | None = None

    def take(self, view: JobView) -> list[Span]:
        """Process a view; return the spans that have ended since the previous one."""
        return [*self._recoveries(view), *self._completed(view)]

    def _recoveries(self, view: JobView) -> list[Span]:
        recoveries = view.recoveries
        latest = {recovery.task: recovery.since_ns for recovery in recoveries}
        spans = []
        for recovery in recoveries:
            key = (recovery.task, recovery.since_ns)
            ended = recovery.live_ms is not None or latest[recovery.task] != recovery.since_ns
            if ended and key not in self._traced and recovery.since_ns >= self._since_ns:
                self._traced.add(key)
                spans.append(_recovery(view.job, recovery))
        self._traced &= {(recovery.task, recovery.since_ns) for recovery in recoveries}
        return spans

    def _completed(self, view: JobView) -> list[Span]:
        checkpoint = view.checkpoint
        before, self._checkpoints = self._checkpoints, checkpoint.count
        if before is None or checkpoint.count <= before:
            return []
        took_ms = checkpoint.took_ms[-min(checkpoint.count - before, CHECKPOINTS_MAX) :]
        spans, end_ns = [], int(view.at_ns)
        for place, duration_ms in enumerate(reversed(took_ms)):
            start_ns = end_ns - int(duration_ms * 1e6)
            attributes: dict[str, Value] = {"causal.job": view.job, "causal.epoch": checkpoint.complete - place}
            spans.append(Span("checkpoint", start_ns, end_ns, attributes | (_slowest(view) if not place else {})))
            end_ns = start_ns
        return spans[::-1]


def _slowest(view: JobView) -> dict[str, Value]:
    """Return the task whose last snapshot took the longest, and its duration."""
    took = [(task.number("checkpoint_ms"), task.task) for task in view.tasks]
    longest_ms, task = max(took, default=(0.0, ""))
    return {"causal.slowest_task": task, "causal.slowest_snapshot_ms": longest_ms} if longest_ms else {}


def _recovery(job: str, recovery: RecoveryView) -> Span:
    since_ns = recovery.since_ns
    reached = [(phase, end_ms) for phase in PHASES if (end_ms := recovery.after_ms(phase)) is not None]
    children, before_ns = [], since_ns
    for phase, after_ms in reached:
        end_ns = since_ns + int(after_ms * 1e6)
        children.append(Span(phase.replace("_", " "), min(before_ns, end_ns), end_ns, {}))
        before_ns = max(before_ns, end_ns)
    live_ms = recovery.live_ms
    end_ns = before_ns if live_ms is None else max(before_ns, since_ns + int(live_ms * 1e6))
    attributes: dict[str, Value] = {
        "causal.job": job,
        "causal.task": recovery.task,
        "causal.operator": recovery.task.rpartition("/")[0],
        "causal.mode": recovery.mode,
        "causal.replayed_elements": recovery.replayed_elements or 0,
        "causal.withdrawn_rows": recovery.withdrawn,
    }
    cause = recovery.cause or recovery.why
    if cause:
        attributes["causal.cause"] = cause
    failed = "" if live_ms is not None else "the task died again before it was live"
    return Span("recovery", since_ns, end_ns, attributes, children, failed)
