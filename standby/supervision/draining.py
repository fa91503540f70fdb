"""The movement of tasks from a draining host to other hosts, one promotion at a time."""

from __future__ import annotations

from collections.abc import Callable

from standby.supervision.assignments import Assignments, TaskEntry, WorkerEntry, WorkerState
from standby.supervision.checkpoints import Coordinator
from standby.supervision.effects import Outbox
from standby.supervision.hosts import HostEntry, Hosts, HostState
from standby.supervision.placement import Placement
from standby.supervision.recoveries import Timeline

Kill = Callable[[WorkerEntry, str, int, Outbox], None]

REQUESTED = "on request"
"""The reason for a kill that does not count as a failure of the task."""


class Draining:
    """Empties the hosts that are draining.

    Standbys are killed first and restarted elsewhere immediately.  A task is killed only when its own standby on
    another host has loaded the latest checkpoint and no other task is recovering, so that the task's output is
    interrupted only for the duration of one promotion.

    Args:
        kill: a function that kills a process and journals the reason.
    """

    def __init__(
        self,
        hosts: Hosts,
        assignments: Assignments,
        placement: Placement,
        coordinator: Coordinator,
        timeline: Timeline,
        kill: Kill,
    ) -> None:
        self._hosts = hosts
        self._assignments = assignments
        self._placement = placement
        self._coordinator = coordinator
        self._timeline = timeline
        self._kill = kill

    def settle(self, now_ns: int, outbox: Outbox) -> None:
        """Kill the standbys on draining hosts, and the process of at most one task that can move now."""
        names = [host.name for host in self._hosts if host.state is HostState.DRAINING]
        if not names:
            return
        for slot in list(self._assignments.slots.values()):
            if slot.host in names and slot.state is WorkerState.IDLE:
                self._kill(slot, REQUESTED, now_ns, outbox)
        if self._coordinator.writing or not self._assignments.confirmed or self._assignments.waiting_count:
            return
        holders = [(entry, self._assignments.holder(entry)) for entry in self._assignments.tasks.values()]
        leaving = any(holder is not None and holder.state is WorkerState.LEAVING for _, holder in holders)
        if leaving or self._timeline.busy(now_ns):
            return
        for entry, holder in holders:
            if holder is None or holder.host not in names or holder.state is not WorkerState.SERVING:
                continue
            if self._replaceable(entry):
                self._kill(holder, REQUESTED, now_ns, outbox)
                return

    def _replaceable(self, entry: TaskEntry) -> bool:
        """Return whether an available standby on another host has loaded the latest checkpoint or needs no state."""
        standby = self._placement.candidate(entry.name)
        if standby is None or self._hosts[standby.host].state is not HostState.JOINED:
            return False
        return not standby.purpose or not self._coordinator.complete or standby.followed == self._coordinator.complete


def drain(host: HostEntry, draining: bool, outbox: Outbox) -> None:
    """Begin to drain a host, or end its draining so that processes may start on it again."""
    if draining != (host.state is HostState.DRAINING):
        outbox.decide("host_draining", host=host.name, draining=draining)


def left_on(host: str, assignments: Assignments) -> list[str]:
    """Return the tasks that still run on a host."""
    holders = ((entry.name, assignments.holder(entry)) for entry in assignments.tasks.values())
    return [name for name, slot in holders if slot is not None and slot.host == host]
