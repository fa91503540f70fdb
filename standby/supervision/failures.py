"""Decides what follows from the end of a worker process: a recovery, a lost standby, or a failure that ends the job."""

from __future__ import annotations

from dataclasses import dataclass

from standby.exit_status import ending
from standby.supervision.assignments import Assignments, TaskEntry, TaskState, WorkerEntry, WorkerState
from standby.supervision.effects import Outbox
from standby.supervision.hosts import Hosts
from standby.supervision.injection import Injection
from standby.supervision.reconciler import Reconciler
from standby.supervision.task_counters import TaskCounters


@dataclass(frozen=True, slots=True)
class End:
    """The known facts about the end of a worker process.

    Attributes:
        killed_ns: the time of the kill, if the agent killed the process.
        status: the exit status of the process, if no message has explained its end.
        last_line: the last message of the process to the supervisor, or else the last line of its log.
    """

    killed_ns: int | None
    status: int | None
    last_line: str

    def __str__(self) -> str:
        """Return a clause that explains how the process ended; empty if there is nothing to explain."""
        if self.status is None or self.killed_ns is not None:
            return f"; it ended with: {self.last_line}" if self.last_line else ""
        was, why = "" if self.status >= 0 else "was ", self.last_line or ("" if self.status else "user code ended it")
        return f"; its process {was}{ending(self.status)}{f': {why}' if why else ''}"


@dataclass(frozen=True, slots=True)
class Failures:
    """Classifies the ends of processes.  The reaction is decided elsewhere, from the resulting state."""

    assignments: Assignments
    figures: TaskCounters
    injection: Injection
    hosts: Hosts
    promotion: Reconciler
    crash_loop_max: int

    def gone(self, slot: WorkerEntry, end: End, stopping: bool, now_ns: int, outbox: Outbox) -> str | None:
        """Journal the end of a worker process.

        Args:
            stopping: whether the job is ending, so that the end of this process is not a failure.

        Returns: the reason why the job must end now; None if it need not end.
        """
        entry = self.assignments.entry_of(slot)
        # The loss of a host proves nothing about the task, so it counts neither towards a crash loop nor as a
        # stillbirth.
        host_lost = not self.hosts[slot.host].living
        requested = host_lost or self.injection.requested(slot.name)
        failure = not requested and not stopping and (entry is not None or self._waited_for(slot))
        sign_ns = end.killed_ns if end.killed_ns is not None else slot.alive_ns
        outbox.decide(
            "gone",
            slot=slot.name,
            task=entry.name if entry is not None else "",
            incarnation=slot.incarnation,
            since_ns=sign_ns or now_ns,
            detected_ns=now_ns,
            failure=failure,
            recover=not stopping,
            counters=dict(self.figures.last_reported(entry.name, slot.incarnation)) if entry is not None else {},
            **({"host_lost": True} if host_lost else {}),
        )
        if entry is None and not requested:
            self.promotion.stillborn(slot.purpose, now_ns)
        return None if stopping else self._crash_loop(slot, entry, end)

    def _waited_for(self, slot: WorkerEntry) -> bool:
        """Return whether a task was waiting for this particular process to start."""
        entry = self.assignments.tasks.get(slot.purpose)
        born = slot.ready_ns and slot.state is not WorkerState.STARTING
        return entry is not None and entry.state is TaskState.WAITING and not born

    def _crash_loop(self, slot: WorkerEntry, entry: TaskEntry | None, end: End) -> str | None:
        counted = entry if entry is not None else self.assignments.tasks.get(slot.purpose)
        if counted is not None:
            name, failures, logs = counted.name, counted.failures, f"causal logs {counted.name}"
        elif not self.assignments.up:  # the process was one of the job's first, which come from the pool
            name, failures, logs = "a worker", self.promotion.stillborn_count(slot.purpose), "causal logs"
        else:
            return None
        if failures < self.crash_loop_max:
            return None
        return (
            f"{name} failed {failures} times in a row without two complete checkpoints in between: "
            f"see `{logs}` (logs/{slot.name}.log){end}"
        )
