"""The movement of tasks from a draining host to other hosts, one promotion at a time."""

from __future__ import annotations

from standby.supervision.assignments import Assignments, TaskEntry, WorkerState
from standby.supervision.effects import Outbox
from standby.supervision.hosts import HostEntry, Hosts, HostState
from standby.supervision.moves import Moves
from standby.supervision.placement import Placement


class Draining:
    """Empties the hosts that are draining.

    Standbys are killed first and restarted elsewhere immediately.  A task is killed only when its own standby on
    another host has loaded the latest checkpoint and no other task is recovering, so that the task's output is
    interrupted only for the duration of one promotion.
    """

    def __init__(self, hosts: Hosts, assignments: Assignments, placement: Placement, moves: Moves) -> None:
        self._hosts = hosts
        self._assignments = assignments
        self._placement = placement
        self._moves = moves

    def settle(self, now_ns: int, outbox: Outbox) -> None:
        """Kill the standbys on draining hosts, and the process of at most one task that can move now."""
        names = [host.name for host in self._hosts if host.state is HostState.DRAINING]
        if not names:
            return
        for slot in list(self._assignments.slots.values()):
            if slot.host in names and slot.state is WorkerState.IDLE:
                self._moves.kill(slot, now_ns, outbox)
        if not self._moves.possible(now_ns):
            return
        for entry in self._assignments.tasks.values():
            holder = self._assignments.holder(entry)
            if holder is None or holder.host not in names or holder.state is not WorkerState.SERVING:
                continue
            if self._replaceable(entry):
                self._moves.kill(holder, now_ns, outbox)
                return

    def _replaceable(self, entry: TaskEntry) -> bool:
        """Return whether an available standby on another host has loaded the latest checkpoint or needs no state."""
        standby = self._placement.candidate(entry.name)
        if standby is None or self._hosts[standby.host].state is not HostState.JOINED:
            return False
        return self._moves.loaded(standby)


def drain(host: HostEntry, draining: bool, outbox: Outbox) -> None:
    """Begin to drain a host, or end its draining so that processes may start on it again."""
    if draining != (host.state is HostState.DRAINING):
        outbox.decide("host_draining", host=host.name, draining=draining)


def left_on(host: str, assignments: Assignments) -> list[str]:
    """Return the tasks that still run on a host."""
    holders = ((entry.name, assignments.holder(entry)) for entry in assignments.tasks.values())
    return [name for name, slot in holders if slot is not None and slot.host == host]
