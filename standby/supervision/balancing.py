"""The movement of tasks to hosts that have joined, one promotion at a time, until no further move helps (0039).

A host receives tasks once it has been joined for a while and runs less than half of its share, which is in proportion
to its slots.  A move helps if the host that receives the task is less loaded after it than the other host was before.
Each move therefore lowers the load of the more loaded host without creating a higher one, so the moves come to an end.

A task moves through a second standby: it is started on the receiving host, loads the latest checkpoint, and is promoted
when the task's process is killed.  Until then, the task keeps its first standby.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from standby.supervision.assignments import Assignments, TaskEntry, WorkerEntry, WorkerState
from standby.supervision.effects import Note, Outbox
from standby.supervision.hosts import HostEntry, Hosts, HostState
from standby.supervision.moves import Moves
from standby.supervision.placement import Placement

Start = Callable[[str, str, int, Outbox], None]
"""A function (purpose, host, now_ns, outbox) that starts a process."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A task, the process that runs it, and the host that is to run it."""

    entry: TaskEntry
    holder: WorkerEntry
    to: str


class Balancing:
    """Gives hosts that have joined their share of the tasks.

    Args:
        after_ns: the time for which a host must have been joined; 0 to move no task.
        own: whether each task has its own standby.
        start: a function that starts a standby on a host.
    """

    def __init__(
        self,
        after_ns: int,
        own: bool,
        hosts: Hosts,
        assignments: Assignments,
        placement: Placement,
        moves: Moves,
        start: Start,
    ) -> None:
        self._after_ns = after_ns
        self._own = own
        self._hosts = hosts
        self._assignments = assignments
        self._placement = placement
        self._moves = moves
        self._start = start
        self._joined_ns: dict[tuple[str, int], int] = {}
        """Host and incarnation → when this supervisor first found the host joined."""
        self._receiving: dict[str, None] = {}
        """The hosts that receive tasks until no further move helps."""

    def settle(self, now_ns: int, outbox: Outbox) -> None:
        """Perform the next step of at most one move, and end standbys that no move needs any longer."""
        if not self._after_ns or not self._hosts.several:
            return
        self._note_joins(now_ns)
        if not self._moves.possible(now_ns):
            return
        move = self._next_move(now_ns)
        for purpose in list(self._assignments.unserved):
            if move is None or purpose != move.entry.name:
                self._end_surplus(purpose, now_ns, outbox)
        if move is not None:
            self._advance(move, now_ns, outbox)

    def _note_joins(self, now_ns: int) -> None:
        joined = {(host.name, host.incarnation) for host in self._joined()}
        self._joined_ns = {host: self._joined_ns.get(host, now_ns) for host in sorted(joined)}

    def _joined(self) -> Iterator[HostEntry]:
        return (host for host in self._hosts if host.state is HostState.JOINED)

    # -- what moves ------------------------------------------------------------------------------------

    def _next_move(self, now_ns: int) -> _Move | None:
        """Return the move that helps most; None if none helps."""
        served: Counter[str] = Counter()
        for entry in self._assignments.tasks.values():
            holder = self._assignments.holder(entry)
            if holder is not None and not entry.finished:
                served[holder.host] += 1
        joined = list(self._joined())
        slots = sum(host.slots for host in joined)
        mean = sum(served[host.name] for host in joined) / slots if slots else 0.0
        for host in joined:
            rested = now_ns - self._joined_ns[host.name, host.incarnation] >= self._after_ns
            if rested and served[host.name] / host.slots < mean / 2:
                self._receiving[host.name] = None
        by_load = sorted(joined, key=lambda host: (served[host.name] / host.slots, host.name))
        for to in by_load:
            if to.name in self._receiving:
                move = self._move_to(to, by_load, served)
                if move is not None:
                    return move
        self._receiving.clear()
        return None

    def _move_to(self, to: HostEntry, by_load: list[HostEntry], served: Counter[str]) -> _Move | None:
        load = Counter(slot.host for slot in self._assignments.slots.values())
        for host in reversed(by_load):
            if served[host.name] / host.slots <= (served[to.name] + 1) / to.slots:
                return None
            moves = [
                _Move(entry, holder, to.name)
                for entry in self._assignments.tasks.values()
                if (holder := self._assignments.holder(entry)) is not None
                and holder.host == host.name
                and not entry.finished
                and self._placement.may_move(entry.name, to)
            ]
            # A standby that is there already has been started for this move, or makes the move cheaper.
            begun = [move for move in moves if self._standby_on(move) is not None]
            if begun or (moves and load[to.name] < to.slots):
                return (begun or moves)[0]
        return None

    def _standby_on(self, move: _Move) -> WorkerEntry | None:
        """Return the task's standby on the receiving host; None if there is none."""
        own = self._assignments.unserved.get(move.entry.name, {})
        return next((slot for slot in own.values() if slot.host == move.to), None)

    # -- how it moves ----------------------------------------------------------------------------------

    def _advance(self, move: _Move, now_ns: int, outbox: Outbox) -> None:
        name, standby = move.entry.name, self._standby_on(move)
        if standby is None:
            outbox.add(Note(f"{name} will move from {move.holder.host} to {move.to}, which has room"))
            self._start(name, move.to, now_ns, outbox)
        elif standby.state is WorkerState.IDLE and standby.seen_ns and self._moves.loaded(standby):
            for other in list(self._assignments.unserved[name].values()):
                if other is not standby:  # which would be promoted instead
                    self._moves.kill(other, now_ns, outbox)
            self._moves.kill(move.holder, now_ns, outbox)

    def _end_surplus(self, purpose: str, now_ns: int, outbox: Outbox) -> None:
        """Kill the standbys of a task that were started for a move which no longer helps."""
        if not purpose:
            return
        kept = 1 if self._own or self._placement.constrained(purpose) else 0
        for slot in list(self._assignments.unserved[purpose].values())[kept:]:
            self._moves.kill(slot, now_ns, outbox)
