"""Promotes processes, starts missing ones, and informs tasks of their neighbours' addresses.

Everything here compares the actual state with the desired state and removes the difference, so it does not matter what
caused it: the start of the job, a death, two deaths, a death during a recovery, or a new supervisor.  A new supervisor
knows its predecessor's decisions, but not which of the predecessor's messages arrived.
"""

from __future__ import annotations

from causal import commands
from standby.supervision.assignments import Assignments, TaskEntry, TaskState, WorkerEntry, WorkerState
from standby.supervision.checkpoints import Coordinator
from standby.supervision.dirty_workers import DirtyWorkers
from standby.supervision.effects import KillProcess, Note, Outbox, StartProcess
from standby.supervision.inquiries import Inquiries
from standby.supervision.placement import Placement
from standby.supervision.recoveries import Timeline

AGAIN_NS = 1_000_000_000
"""The time that the beats have to confirm a command before the command is repeated."""

FOLLOW_NS = 200_000_000
"""The shortest time between two loads by a standby.  If checkpoints complete faster, it loads several together."""

ECHO_NS = 200_000_000
"""The time that a task has to report in its beats that it knows its hot standby."""

BACKOFF_NS_MIN, BACKOFF_NS_MAX = 100_000_000, 5_000_000_000
"""The wait before a standby that died before it was ready is replaced; it doubles with each such death."""

WORKER = "worker"
ROLLBACK = "rollback"
"""The reason for killing a healthy task: without determinants, all tasks must roll back together."""


class Reconciler:
    """Keeps every task running and every standby ready."""

    def __init__(
        self,
        assignments: Assignments,
        coordinator: Coordinator,
        timeline: Timeline,
        inquiries: Inquiries,
        placement: Placement,
        pool: int | None,
        together: bool = False,
        every_epoch: bool = False,
        hot: frozenset[str] = frozenset(),
    ) -> None:
        """
        Args:
            pool: the number of standbys that all tasks share; None if each task has its own standby.
            together: whether one failure rolls all tasks back to the last complete checkpoint (at-least-once).
            every_epoch: whether standbys load each epoch separately in order to check it.
            hot: the tasks whose standbys are hot.
        """
        self._assignments = assignments
        self._coordinator = coordinator
        self._timeline = timeline
        self._inquiries = inquiries
        self._placement = placement
        self._together = together
        self._follow_ns = 0 if every_epoch else FOLLOW_NS
        self._pool = pool
        self._hot = hot
        self._stillborn: dict[str, int] = {}
        self._start_from_ns: dict[str, int] = {}

    def settle(self, now_ns: int, outbox: Outbox, dirty: DirtyWorkers) -> None:
        """Promote, start and inform processes until no dirty process lacks anything."""
        # While a manifest is being written, the state to promote from is about to change.  Promotions therefore wait
        # for a few milliseconds.
        if not self._coordinator.writing and not self._rolling_back():
            pool_empty = False
            for entry in self._waiting(dirty):
                shared = self._pool is not None and not self._placement.constrained(entry.name)
                if shared and pool_empty:
                    continue  # the pool has no idle process, so no other task that shares it can be served either
                slot = self._placement.candidate(entry.name)
                if slot is not None:
                    self._promote(entry, slot, outbox)
                else:
                    pool_empty = pool_empty or shared
        slots = dirty.slots()
        for slot in slots:
            if slot.seen_ns and slot.state is WorkerState.ASSIGNED:
                self._command(slot, now_ns, outbox)
        for slot in slots:
            if slot.seen_ns and slot.state in (WorkerState.ASSIGNED, WorkerState.SERVING):
                self._introduce(slot, now_ns, outbox)
        for slot in slots:
            if slot.seen_ns and slot.state is WorkerState.IDLE:
                self._follow(slot, now_ns, outbox)
        if self._hot:
            for slot in slots:
                self._echo(slot, now_ns, outbox)
        self._start_missing(now_ns, outbox)

    def _waiting(self, dirty: DirtyWorkers) -> list[TaskEntry]:
        """Return the waiting tasks for which a process may be idle now.

        If each task has its own standby, these are the waiting tasks whose standby is marked and idle.
        """
        if dirty.everything or self._together or self._pool is not None:
            return self._assignments.waiting()
        purposes = {slot.purpose: None for slot in dirty.slots() if slot.state is WorkerState.IDLE}
        entries = [self._assignments.tasks[purpose] for purpose in purposes if purpose]
        return [entry for entry in entries if entry.state is TaskState.WAITING]

    def _rolling_back(self) -> bool:
        """Return whether a process that must roll back is still running; it must not meet the new processes of other
        tasks.
        """
        if not self._together or not self._assignments.waiting_count:
            return False
        return any(slot.task and slot.state is WorkerState.LEAVING for slot in self._assignments.slots.values())

    def roll_back(self, now_ns: int, outbox: Outbox) -> None:
        """Kill the processes of all tasks after a failure if there are no determinants, so that all tasks roll back
        together.
        """
        if not self._together:
            return
        for slot in list(self._assignments.slots.values()):
            if slot.state in (WorkerState.SERVING, WorkerState.ASSIGNED):
                self.kill(slot, ROLLBACK, now_ns, outbox)

    def _promote(self, entry: TaskEntry, slot: WorkerEntry, outbox: Outbox) -> None:
        recovery = self._timeline.of(entry.name, entry.incarnation + 1)
        # The recovery used a standby only if the process was ready before the failure; otherwise this is a cold start.
        ready = recovery is not None and slot.ready_ns <= recovery.detected_ns
        outbox.decide(
            "promoted",
            task=entry.name,
            incarnation=entry.incarnation + 1,
            slot=slot.name,
            epoch=self._coordinator.complete,
            mode=self._mode(ready),
        )

    def _mode(self, ready: bool) -> str:
        if self._together:
            return ROLLBACK
        return "standby" if ready else "cold"

    def _command(self, slot: WorkerEntry, now_ns: int, outbox: Outbox) -> None:
        """Send `promote`, repeatedly until the beats confirm it."""
        entry = self._assignments.entry_of(slot)
        if entry is None or (slot.commanded_ns and now_ns - slot.commanded_ns < AGAIN_NS):
            return
        slot.commanded_ns = now_ns
        known = self._whereabouts(entry, slot.host)
        slot.peers_sent, slot.peers_sent_ns = dict(known), now_ns
        promote = commands.Promote(
            task=entry.name,
            incarnation=entry.incarnation,
            epoch=self._coordinator.complete,
            files=self._coordinator.files.get(entry.name, ()),
            peers={name: (endpoint, incarnation) for name, (endpoint, incarnation) in known.items() if endpoint},
            rollback=self._inquiries.rollback_of(entry.name).message(),
        )
        outbox.send(slot.name, promote)

    def _whereabouts(self, entry: TaskEntry, host: str) -> dict[str, tuple[str, int]]:
        """Return the (endpoint, incarnation) of each neighbour as seen from `host`; the endpoint is empty if the
        neighbour has no process.
        """
        known: dict[str, tuple[str, int]] = {}
        for name in entry.neighbours:
            neighbour = self._assignments.tasks[name]
            holder = self._assignments.holder(neighbour)
            endpoint = "" if holder is None else holder.endpoint_for(host)
            if holder is not None and endpoint and holder.state is not WorkerState.LEAVING:
                known[name] = (endpoint, neighbour.incarnation)
            elif neighbour.state is TaskState.WAITING and neighbour.incarnation and name not in entry.upstream:
                known[name] = ("", neighbour.incarnation)
        return known

    def _introduce(self, slot: WorkerEntry, now_ns: int, outbox: Outbox) -> None:
        """Inform a task of changes to its neighbours since the last message, until its beats confirm them."""
        entry = self._assignments.entry_of(slot)
        if entry is None or not slot.commanded_ns and slot.state is WorkerState.ASSIGNED:
            return
        again = now_ns - slot.peers_sent_ns >= AGAIN_NS
        for name, (endpoint, incarnation) in self._whereabouts(entry, slot.host).items():
            known = slot.peers_known.get(name) == (incarnation if endpoint else -incarnation)
            if slot.peers_sent.get(name) == (endpoint, incarnation) and (known or not again):
                continue
            slot.peers_sent[name], slot.peers_sent_ns = (endpoint, incarnation), now_ns
            if endpoint:
                outbox.send(slot.name, commands.Peer(name, endpoint, incarnation))
            else:
                outbox.send(slot.name, commands.PeerDown(name, incarnation))

    def _follow(self, slot: WorkerEntry, now_ns: int, outbox: Outbox) -> None:
        """Make a task's own standby load the latest complete checkpoint and, if it is hot, follow the current
        incarnation.
        """
        if not slot.purpose:
            return
        epoch = self._coordinator.complete
        entry = self._assignments.tasks[slot.purpose]
        incarnation = entry.incarnation if self._hot else 0
        peers = self._downstream(entry, slot.host) if slot.purpose in self._hot else {}
        following = slot.purpose, epoch, incarnation, tuple(peers.items())
        since_ns = now_ns - slot.commanded_ns
        if slot.following == following:
            # A standby with an earlier version of this package does not report the incarnation that it follows.
            follows = slot.followed == epoch and slot.shadow.get("incarnation", incarnation) == incarnation
            if follows or since_ns < AGAIN_NS:
                return
        elif slot.following is not None and since_ns < self._follow_ns:
            return  # this standby is handled at the next checkpoint, or at the next check of all processes
        slot.following, slot.commanded_ns = following, now_ns
        files = self._coordinator.files.get(slot.purpose, ())
        outbox.send(slot.name, commands.Follow(slot.purpose, epoch, files, incarnation, peers))

    def _downstream(self, entry: TaskEntry, host: str) -> dict[str, tuple[str, int]]:
        """Return the running neighbours to which a task would connect from `host`."""
        known = self._whereabouts(entry, host)
        return {name: where for name, where in known.items() if where[0] and name not in entry.upstream}

    def _echo(self, slot: WorkerEntry, now_ns: int, outbox: Outbox) -> None:
        """Send a task the endpoint of its hot standby until the task's beats show that it echoes to that endpoint."""
        entry = self._assignments.entry_of(slot) or self._assignments.tasks.get(slot.purpose)
        holder = None if entry is None or entry.name not in self._hot else self._assignments.holder(entry)
        if entry is None or holder is None or holder.state is not WorkerState.SERVING:
            return
        standby = self._assignments.idle(entry.name)
        endpoint = "" if standby is None else standby.endpoint_for(holder.host)
        if holder.hot_standby != endpoint and now_ns - holder.echo_asked_ns >= ECHO_NS:
            holder.echo_asked_ns = now_ns
            outbox.send(holder.name, commands.Echo(endpoint))

    def _start_missing(self, now_ns: int, outbox: Outbox) -> None:
        """Start a process for every waiting task and, once all tasks are running, for every missing standby."""
        assignments = self._assignments
        if not self._placement.ready(now_ns):
            return
        if self._pool is None:
            lacking = (
                list(assignments.starved)
                if assignments.starved and self._standbys_due(now_ns)
                else assignments.unmanned()
            )
        else:
            own = [name for name in assignments.unmanned() if self._placement.constrained(name)]
            bound = sum(self._placement.constrained(entry.name) for entry in assignments.waiting())
            wanted = assignments.waiting_count - bound + (self._pool if self._standbys_due(now_ns) else 0)
            lacking = own + [""] * (wanted - len(assignments.unserved.get("", ())))
        for purpose in lacking:
            if now_ns >= self._start_from_ns.get(purpose, 0):
                self._start(purpose, now_ns, outbox)

    def _standbys_due(self, now_ns: int) -> bool:
        """Return whether standbys may start.  They start after the tasks, so that they slow down neither the start
        of the job nor a recovery.
        """
        if not self._assignments.up or self._timeline.busy(now_ns):
            return False
        return self._assignments.confirmed

    def _start(self, purpose: str, now_ns: int, outbox: Outbox) -> None:
        host = self._placement.host_for(purpose)
        if host is not None:  # otherwise the view shows the tasks that wait until a host joins or has room again
            self.start_on(purpose, host, now_ns, outbox)

    def start_on(self, purpose: str, host: str, now_ns: int, outbox: Outbox) -> None:
        """Start a process for a task, or for the pool, on a host."""
        number = self._assignments.started_max + 1
        name = f"w{number}"
        where = {"host": host} if host else {}
        outbox.decide("process", slot=name, number=number, purpose=purpose, **where)
        slot = self._assignments.slots[name]
        slot.known_ns = slot.asked_ns = now_ns
        outbox.add(StartProcess(name, WORKER, host))

    def ready(self, slot: WorkerEntry) -> None:
        """Reset the count of failed starts for the purpose of a process that has become ready."""
        self._stillborn.pop(slot.purpose, None)

    def stillborn(self, purpose: str, now_ns: int) -> None:
        """Count a process that ended before it was ready, and increase the delay before the next start for its
        purpose.
        """
        count = self._stillborn[purpose] = self._stillborn.get(purpose, 0) + 1
        self._start_from_ns[purpose] = now_ns + min(BACKOFF_NS_MIN << min(count - 1, 16), BACKOFF_NS_MAX)

    def stillborn_count(self, purpose: str) -> int:
        """Return how many consecutive processes for this purpose ended before they were ready."""
        return self._stillborn.get(purpose, 0)

    def ask_again(self, slot: WorkerEntry, now_ns: int, outbox: Outbox) -> None:
        """Repeat the order to start a slot that the agent does not report."""
        if now_ns - slot.asked_ns >= AGAIN_NS:
            slot.asked_ns = now_ns
            outbox.add(Note(f"{slot.name}: asking the agent again to start it"))
            outbox.add(StartProcess(slot.name, WORKER, slot.host))

    def kill(self, slot: WorkerEntry, why: str, now_ns: int, outbox: Outbox) -> None:
        """Kill the process; once its exit is confirmed, another process is promoted to its task."""
        outbox.decide("killing", slot=slot.name, why=why)
        slot.asked_ns = now_ns
        outbox.add(KillProcess(slot.name, slot.host))

    def deadline_ns(self, now_ns: int) -> int | None:
        """Return when the next delayed start is due; None if no start is delayed."""
        due = [at for at in self._start_from_ns.values() if at > now_ns]
        return min(due) if due else None
