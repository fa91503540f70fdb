"""The timeline of every recovery, from the task's last sign of life until the task is live again.

Times are stored as absolute values (`*_ns`) and shown relative to the kill (`*_ms`).  A phase is None if it was never
reached because the task died again first.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import astuple

from standby.supervision.durations import Durations
from standby.supervision.effects import Record
from standby.supervision.job_view import PhaseView, RecoveryNumber, RecoveryTotalsView, RecoveryView

COLD = "cold"
"""The mode of a recovery without a ready standby."""

KEPT = 1000
"""The number of recoveries kept; the oldest are dropped first."""

RECENT = 16
"""The number of latest recoveries that `busy` examines."""

UNDISTURBED_NS = 1_000_000_000
"""The time for which a recovery may delay the start of new standbys."""

_PHASES = {
    "promoted": "promoted_ns",
    "collected": "collected_ns",
    "replayed": "replayed_ns",
    "first_output": "first_output_ns",
    "running": "live_ns",
}

TIMED = ("detected", "promoted", "collected", "replayed", "first_output", "live")
"""The phases of a recovery, timed from the kill; all except `first_output` occur in this order."""


@dataclass(slots=True)
class RecoveryRecord:
    """One failure of one task, with its recovery."""

    task: str
    incarnation: int
    """The task's incarnation after the recovery."""
    since_ns: int
    detected_ns: int
    mode: str = ""
    promoted_ns: int | None = None
    collected_ns: int | None = None
    replayed_ns: int | None = None
    replayed_elements: int | None = None
    first_output_ns: int | None = None
    live_ns: int | None = None
    why: str = ""
    """The reason for a rollback; empty for other recoveries."""
    withdrawn: int = 0
    """The number of visible rows that were withdrawn."""
    cause: str = ""
    """The reason why the supervisor killed the process; empty if the process ended on its own."""
    counted: bool = False
    """Whether the recovery is included in the totals, because its task is live or has died again before it was live."""

    def shown(self) -> RecoveryView:
        """Return the recovery as the report shows it."""

        def after(at_ns: int | None) -> float | None:
            return None if at_ns is None else round((at_ns - self.since_ns) / 1e6, 3)

        return RecoveryView(
            task=self.task,
            mode=self.mode or COLD,
            since_ns=self.since_ns,
            detected_ms=after(self.detected_ns),
            promoted_ms=after(self.promoted_ns),
            collected_ms=after(self.collected_ns),
            replayed_ms=after(self.replayed_ns),
            replayed_elements=self.replayed_elements,
            first_output_ms=after(self.first_output_ns),
            live_ms=after(self.live_ns),
            why=self.why,
            cause=self.cause,
            withdrawn=self.withdrawn,
        )


class RecoveryTotals:
    """Totals of all recoveries of a job, including recoveries that are no longer kept.  The totals only increase.

    A recovery is counted once it has ended, because only then is its mode known.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._phases: dict[tuple[str, str], Durations] = {}

    def count(self, recovery: RecoveryRecord) -> None:
        """Count a recovery that has ended, unless it has been counted already."""
        if recovery.counted:
            return
        recovery.counted = True
        key = (recovery.task, recovery.mode or COLD)
        self._numbers[key] = self._numbers.get(key, 0) + 1
        for phase in TIMED:
            self.time(recovery, phase)

    def time(self, recovery: RecoveryRecord, phase: str) -> None:
        """Add the duration of one phase if the recovery has reached it."""
        at_ns: int | None = getattr(recovery, f"{phase}_ns")
        if at_ns is not None:
            durations = self._phases.setdefault((recovery.mode or COLD, phase), Durations())
            durations.add((at_ns - recovery.since_ns) / 1e9)

    def shown(self) -> RecoveryTotalsView:
        """Return the totals as the metrics show them."""
        return RecoveryTotalsView(
            [RecoveryNumber(task, mode, number) for (task, mode), number in self._numbers.items()],
            [PhaseView(*each, *astuple(counted.shown())) for each, counted in self._phases.items()],
        )


class Timeline:
    """All recoveries of a job."""

    def __init__(self) -> None:
        self._recoveries: list[RecoveryRecord] = []
        self._latest: dict[str, RecoveryRecord] = {}
        self.totals = RecoveryTotals()
        self._killing: dict[str, str] = {}
        """Process → the reason why it is being killed, until its end has been journaled."""

    def apply(self, record: Record) -> None:
        """Apply one decision; a decision that does not concern recoveries has no effect."""
        kind = record["kind"]
        if kind == "killing":
            self._killing[record["slot"]] = record["why"]
        elif kind == "gone":
            self._gone(record)
        elif kind == "promoted":
            recovery = self.of(record["task"], record["incarnation"])
            if recovery is not None:
                recovery.mode = record["mode"]
        elif kind == "rolled_back":
            self._rolled_back(record)
        elif kind == "phase":
            self._phase(record)
        elif kind == "resumed":
            self._killing.clear()
            for recovery in self._latest.values():
                self.totals.count(recovery)  # all processes of the job have ended, and every task starts again

    def _gone(self, record: Record) -> None:
        killed = self._killing.pop(record["slot"], "")
        cause = "host lost" if record.get("host_lost") else killed
        if record["task"] and record["recover"]:
            self._begin(
                RecoveryRecord(
                    record["task"], record["incarnation"] + 1, record["since_ns"], record["detected_ns"], cause=cause
                )
            )

    def _begin(self, recovery: RecoveryRecord) -> None:
        """Add a recovery; if the same task is already recovering, that earlier recovery has failed and is counted."""
        if recovery.task in self._latest:
            self.totals.count(self._latest[recovery.task])
        self._latest[recovery.task] = recovery
        self._recoveries.append(recovery)
        for dropped in self._recoveries[:-KEPT]:
            self.totals.count(dropped)
        del self._recoveries[:-KEPT]

    def _rolled_back(self, record: Record) -> None:
        """Begin a recovery of each task.  A recovery that is under way restarts but keeps its time of failure."""
        for task, incarnation in record["tasks"].items():
            recovery = self.of(task, incarnation - 1)
            if recovery is None or recovery.live_ns is not None:
                recovery = RecoveryRecord(task, incarnation, record["at_ns"], record["at_ns"])
                self._begin(recovery)
            recovery.incarnation = incarnation
            recovery.collected_ns = recovery.replayed_ns = recovery.replayed_elements = None
            if task in record["why"]:
                recovery.mode, recovery.why = "rollback", record["why"][task]

    def _phase(self, record: Record) -> None:
        recovery = self.of(record["task"], record["incarnation"])
        if recovery is None:
            return
        if record["phase"] == "replayed":
            recovery.replayed_elements = record["detail"]
        elif record["phase"] == "withdrawn":
            recovery.withdrawn += record["detail"]
        if record["phase"] in _PHASES and getattr(recovery, _PHASES[record["phase"]]) is None:
            setattr(recovery, _PHASES[record["phase"]], record["at_ns"])
            if recovery.counted:
                self.totals.time(recovery, _PHASES[record["phase"]].removesuffix("_ns"))
        if recovery.live_ns is not None:
            self.totals.count(recovery)

    def of(self, task: str, incarnation: int) -> RecoveryRecord | None:
        """Return the recovery that led to this incarnation; None if there is none."""
        for recovery in reversed(self._recoveries):
            if recovery.task == task and recovery.incarnation == incarnation:
                return recovery
        return None

    def busy(self, now_ns: int) -> bool:
        """Return whether a task is recovering, so that other processes should not start and compete for the machine."""
        recent = self._recoveries[-RECENT:]
        # If the machine was restarted, a recovery from before the job was resumed may have a time from another clock.
        return any(not r.counted and 0 <= now_ns - r.detected_ns < UNDISTURBED_NS for r in recent)

    def since(self, at_ns: int) -> list[RecoveryRecord]:
        """Return the recoveries from failures that were detected at this time or later, oldest first."""
        return [recovery for recovery in self._recoveries if recovery.detected_ns >= at_ns]

    def shown(self) -> list[RecoveryView]:
        """Return all recoveries, oldest first, as shown in the report."""
        return [recovery.shown() for recovery in self._recoveries]
