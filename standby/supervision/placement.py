"""Chooses the host for a new process, as a function of hosts, processes and constraints (design 0024).

A standby is never placed on its task's host, unless the task is restricted to that host.  Otherwise, the order of
preference is: another machine, another zone, the host with the largest free share of its slots, and finally the host
name, so that identical situations have identical outcomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from standby.blueprint import Constraint
from standby.supervision.assignments import Assignments, WorkerEntry
from standby.supervision.hosts import LOCAL, HostEntry, Hosts, HostState

ANYWHERE = Constraint()


class Placement:
    """The choice of hosts for one job.

    Args:
        constraints: the constraints of those tasks that have any.
    """

    def __init__(self, hosts: Hosts, assignments: Assignments, constraints: Mapping[str, Constraint]) -> None:
        self.next_version: Callable[[], Iterable[WorkerEntry]] = tuple
        """Returns the processes of the job's next version, which need room as well."""
        self._hosts = hosts
        self._assignments = assignments
        self._constraints = constraints

    def ready(self, now_ns: int) -> bool:
        """Return whether processes may be placed now.  The first processes wait until the hosts have joined."""
        return self._assignments.up or self._hosts.gathered(now_ns)

    def constrained(self, task: str) -> bool:
        """Return whether the task is restricted to some hosts, in which case no process from the pool can run it."""
        return task in self._constraints

    def candidate(self, task: str) -> WorkerEntry | None:
        """Return the process that can be promoted to a task now: the task's own standby, or else one from the pool."""
        own = self._assignments.idle(task)
        return own if own is not None or self.constrained(task) else self._assignments.idle("")

    def may_move(self, task: str, to: HostEntry) -> bool:
        """Return whether a task may run on a host to which it would not have to move."""
        constraint = self._constraints.get(task, ANYWHERE)
        return not constraint.host and constraint.admits(to.name, to.labels)

    def host_for(self, purpose: str) -> str | None:
        """Return the host for a new process that serves `purpose` (a task, or empty for the pool); None if no host
        has room.
        """
        if not self._hosts.several:
            return LOCAL
        constraint = self._constraints.get(purpose, ANYWHERE)
        holder = self._holder(purpose)
        load = self._load()

        def rank(host: HostEntry) -> tuple[bool, bool, float, str]:
            same_machine = holder is not None and bool(host.machine) and host.machine == holder.machine
            same_zone = holder is not None and bool(host.zone) and host.zone == holder.zone
            return same_machine, same_zone, load[host.name] / host.slots, host.name

        admitted = [
            host
            for host in self._hosts
            if self._admits(host, constraint, load) and (host is not holder or constraint.host)
        ]
        return min(admitted, key=rank).name if admitted else None

    def host_for_next(self, constraint: Constraint) -> str | None:
        """Return the host for another process of the job's next version; None if no host has room.

        Both versions need room, but the load of the next one alone is balanced, because the current one ends.
        """
        if not self._hosts.several:
            return LOCAL
        next_load, load = Counter(slot.host for slot in self.next_version()), self._load()
        admitted = [host for host in self._hosts if self._admits(host, constraint, load)]

        def rank(host: HostEntry) -> tuple[float, float, str]:
            return next_load[host.name] / host.slots, load[host.name] / host.slots, host.name

        return min(admitted, key=rank).name if admitted else None

    def _load(self) -> Counter[str]:
        """Return the number of processes of each host."""
        return Counter(slot.host for slot in (*self._assignments.slots.values(), *self.next_version()))

    def _admits(self, host: HostEntry, constraint: Constraint, load: Counter[str]) -> bool:
        """Return whether a process may start on a host, which has room for it."""
        joined = host.state is HostState.JOINED
        return joined and constraint.admits(host.name, host.labels) and load[host.name] < host.slots

    def _holder(self, purpose: str) -> HostEntry | None:
        entry = self._assignments.tasks.get(purpose)
        slot = self._assignments.holder(entry) if entry is not None else None
        return self._hosts.get(slot.host) if slot is not None else None
