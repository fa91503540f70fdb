"""The determinants that a task holds, and those that each neighbour downstream still lacks (D3).

A task shares its own log and those of ancestors nearer than the sharing depth. The extents of the logs of farther
ancestors travel too, as dependencies, to distinguish *lost* from *never shared* (D9). What an owner has on stable
storage is reported instead of shared (0012).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from causal.errors import PeerViolation
from causal.ids import TaskIndex
from causal.logs.log import DeterminantLog, LogDelta
from causal.logs.rollback import Extent, TaskRollback, vector_of
from causal.topology import Topology

STABLE_BYTES_REPORTED = 256
"""The bytes of a log that become stable before holders are informed again and forget them."""

Following = tuple[DeterminantLog, bytearray, bytes]
"""A log, the bytes of its epoch, and the bytes to append."""

_task_of = itemgetter(0)
_EPOCHS_HELD = 4
"""The number of epochs beyond which entries of older epochs are removed: a log has fewer at a time."""


class Seen:
    """The extents that one holder downstream has been sent, per log and epoch.

    State: moves when a delta is taken, and is reset by each WELCOME.
    """

    __slots__ = ("extents", "grown", "depends", "depends_version", "stable")

    def __init__(self) -> None:
        self.extents: dict[int, dict[int, int]] = {}
        self.grown: dict[int, int] = {}
        self.depends: dict[tuple[int, int], int] = {}
        self.depends_version = -1
        self.stable: dict[int, dict[int, int]] = {}
        """The extents reported to it as stable, if the job writes its determinants."""

    def reset(self, extents: Iterable[Extent]) -> None:
        """Record the logs that the holder reports; anything sent before may have been lost."""
        self.extents = {}
        for task, epoch, extent in extents:
            self.extents.setdefault(task, {})[epoch] = extent
        self.grown = {}
        self.depends = {}
        self.depends_version = -1
        self.stable = {}

    def cut(self, retreats: Mapping[int, TaskRollback]) -> None:
        """Record that the holder has forgotten what does not stand of these tasks' logs; they grow again from there."""
        for task, retreat in retreats.items():
            sent = self.extents.get(task, {})
            self.extents[task] = {e: min(n, retreat.stands.get(e, 0)) for e, n in sent.items()}
            self.grown.pop(task, None)
            self.stable.pop(task, None)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Determinants, and the dependencies on logs of the task that holds them."""

    logs: tuple[LogDelta, ...] = ()
    depends: tuple[Extent, ...] = ()


NO_KNOWLEDGE = Knowledge()


class Holdings:
    """The own log, the replicas of ancestors' logs, and the dependencies of one task."""

    def __init__(
        self, topology: Topology, task: TaskIndex, sharing_depth: int, epoch: int, flushing: bool = False
    ) -> None:
        self.task = task
        self.flushing = flushing
        """Whether owners write their logs to stable storage, and report it."""
        self.own = DeterminantLog(task, epoch, owner=True)
        ancestors = topology.ancestors(task)
        owners = topology.held_by(task, sharing_depth)
        self.logs: dict[int, DeterminantLog] = {task: self.own}
        self.logs |= {t: DeterminantLog(t, epoch) for t in owners if t != task}
        self._shared = [self.logs[t] for t in topology.shared_by(task, sharing_depth)]
        self._everyone = frozenset((task, *ancestors))
        self.partial = sharing_depth < topology.depth
        """Whether some task depends on logs that it does not hold, so that all tasks send their dependencies."""
        self._depends: dict[tuple[int, int], int] = {}
        self._depends_version = 0

    def merge(self, deltas: Sequence[LogDelta], extents: Iterable[Extent] = ()) -> None:
        """Store what came with a message, before any element of it can be delivered (always-no-orphans, D4).

        All or nothing: a log that ended inside a determinant could not be replayed.

        Args:
            extents: what the sender claims to hold, and must then be held here.

        Raises:
            PeerViolation: a log that this task cannot hold, a gap or a contradiction.
        """
        self.check(deltas, extents)
        self.store(deltas)

    def check(self, deltas: Sequence[LogDelta], extents: Iterable[Extent] = ()) -> None:
        """Raise what `merge` would raise; changes nothing."""
        reach: dict[tuple[int, int], int] = {}
        for delta in deltas:
            log = self.logs.get(delta.task)
            if log is None:
                raise PeerViolation(f"a delta of task {delta.task}, whose log is not held here")
            if not delta.bytes and not self.flushing:
                raise PeerViolation(f"the log of task {delta.task} is said to be stable, but no log is written")
            where = (delta.task, delta.epoch)
            reach[where] = log.check(delta, reach.get(where, 0))
        for task, epoch, extent in extents:
            log = self.logs.get(task)
            if log is None or epoch < log.first_epoch:
                continue
            reached = max(log.extent(epoch), reach.get((task, epoch), 0))
            if reached < extent:
                raise PeerViolation(f"log of task {task}, epoch {epoch}: {reached} of {extent} bytes came")

    def store(self, deltas: Sequence[LogDelta]) -> None:
        """Store deltas that `check` has accepted."""
        for delta in deltas:
            self.logs[delta.task].merge(delta)

    def following(self, deltas: Sequence[LogDelta]) -> list[Following] | None:
        """Return what `follow` is to append, if each delta continues the log that is held, and each log occurs once.

        It replaces `check` for nearly every message; None where `check` has to decide.
        """
        logs = self.logs
        appends: list[Following] = []
        for task, epoch, offset, piece in deltas:
            log = logs.get(task)
            content = None if log is None else log.tail(epoch, offset)
            if log is None or content is None or not piece:
                return None
            appends.append((log, content, piece))
        return appends if len(appends) < 2 or len(set(map(_task_of, deltas))) == len(appends) else None

    def follow(self, following: Iterable[Following]) -> None:
        """Append what `following` has returned."""
        for log, content, piece in following:
            content += piece
            log.grown += len(piece)

    def depend(self, extents: Iterable[Extent]) -> None:
        """Record how far ancestors' logs had come that the elements depend on."""
        depends = self._depends
        for task, epoch, extent in extents:
            if extent > depends.get((task, epoch), 0) and epoch >= self.own.first_epoch and task in self._everyone:
                depends[task, epoch] = extent
                self._depends_version += 1

    def lacking(self, seen: Seen, store: bool = False) -> tuple[list[LogDelta], list[Extent]]:
        """Return what a message to that holder must carry; `seen` counts it as sent.

        Args:
            store: the holder is a sink's store, which outlives processes: it gets all logs held here, for the rows
                depend on them and no task further downstream holds any (D8).
        """
        deltas: list[LogDelta] = []
        for log in self.logs.values() if store else self._shared:
            capped = self.partial and log is not self.own
            grown = log.grown + self._depends_version if capped else log.grown
            before = seen.grown.get(log.task)
            if before == grown:
                continue
            extents = seen.extents.get(log.task)
            if before is not None and extents and not capped:
                epoch = max(extents)
                content = log.fresh(epoch, start := extents[epoch], before)
                if content is not None:  # nearly always
                    deltas.append(LogDelta(log.task, epoch, start, bytes(content[start:])))
                    extents[epoch] = len(content)
                    seen.grown[log.task] = grown
                    continue
            if extents is None:
                extents = seen.extents[log.task] = {}
            elif len(extents) > _EPOCHS_HELD:
                seen.extents[log.task] = extents = {e: n for e, n in extents.items() if e >= log.first_epoch}
            for delta in log.deltas(extents, self._depended(log.task) if capped else None):
                extents[delta.epoch] = delta.offset + len(delta.bytes)
                if not delta.bytes:
                    seen.stable.setdefault(log.task, {})[delta.epoch] = delta.offset
                deltas.append(delta)
            if self.flushing and not store:
                deltas += self._settled(log, seen)
            seen.grown[log.task] = grown
        if not self.partial:
            return deltas, []
        version = self._depends_version + self.own.grown
        if version == seen.depends_version:
            return deltas, []
        seen.depends_version = version
        return deltas, self._news(seen)

    def _news(self, seen: Seen) -> list[Extent]:
        """Return those of `dependencies` that this holder has not been sent; `seen` counts them as sent."""
        me, known = self.task, seen.depends
        if len(known) > _EPOCHS_HELD * len(self._everyone):
            known = seen.depends = {(t, e): extent for (t, e), extent in known.items() if e >= self.own.first_epoch}
        fresh = [item for item in self._depends.items() if known.get(item[0]) != item[1] and item[0][0] != me]
        for epoch, extent in self.own.extents().items():
            if known.get((me, epoch)) != extent:
                fresh.append(((me, epoch), extent))
        known.update(fresh)
        return sorted([(task, epoch, extent) for (task, epoch), extent in fresh])

    def _settled(self, log: DeterminantLog, seen: Seen) -> list[LogDelta]:
        """Return what that holder can forget because it is stable: not more than it has been sent."""
        reported = seen.stable.setdefault(log.task, {})
        fresh: list[LogDelta] = []
        for epoch, extent in log.stable.items():
            extent = min(extent, seen.extents[log.task].get(epoch, 0))
            if extent >= reported.get(epoch, 0) + STABLE_BYTES_REPORTED:
                reported[epoch] = extent
                fresh.append(LogDelta(log.task, epoch, extent, b""))
        if len(reported) > _EPOCHS_HELD:
            seen.stable[log.task] = {epoch: n for epoch, n in reported.items() if epoch >= log.first_epoch}
        return fresh

    def _depended(self, task: int) -> dict[int, int]:
        """Return how much of that log to pass on where dependencies are sent: not more than they cover.

        With bytes beyond, their owner would replay what no task has said to depend on.
        """
        return {epoch: extent for (owner, epoch), extent in self._depends.items() if owner == task}

    def dependencies(self) -> list[Extent]:
        """Return how far every log had come that this task's state depends on, held or not.

        What was merely received does not count: an element that waits in a queue has had no consequence yet.
        """
        own = [(self.task, epoch, extent) for epoch, extent in self.own.extents().items()]
        return sorted(
            [*own, *((task, epoch, extent) for (task, epoch), extent in self._depends.items() if task != self.task)]
        )

    def extents_for(self, tasks: Iterable[int]) -> list[Extent]:
        """Return the extents held of the logs of these tasks: part of a WELCOME."""
        return [
            (task, epoch, extent)
            for task in tasks
            if task in self.logs
            for epoch, extent in self.logs[task].extents().items()
        ]

    def logs_for(self, tasks: Iterable[int], depends: Sequence[Extent]) -> list[LogDelta]:
        """Return the bytes held of the logs of these tasks, for a task that collects.

        Args:
            depends: the dependencies sent with them; where they matter, no bytes go beyond them (see `_depended`).
        """
        vector = vector_of(depends)
        deltas: list[LogDelta] = []
        for task in tasks:
            if task in self.logs:
                limits = {epoch: n for (owner, epoch), n in vector.items() if owner == task} if self.partial else None
                deltas += self.logs[task].whole(limits)
        return deltas

    def needed(self) -> list[Extent]:
        """Return how much of the own log others depend on, where they depend on more than could be collected."""
        own = self.own
        return [
            (task, epoch, extent)
            for (task, epoch), extent in sorted(self._depends.items())
            if task == self.task and extent > own.extent(epoch)
        ]

    def missing(self) -> list[Extent]:
        """Test for orphans, once every task downstream has answered (D9).

        Returns: how far the own log could be collected, of each epoch in which others depend on more.
        """
        return [(task, epoch, self.own.extent(epoch)) for task, epoch, _ in self.needed()]

    @property
    def version(self) -> int:
        """A number that rises with all that is learnt of the own log and of dependencies."""
        return self.own.grown + self._depends_version

    def cut(self, retreats: Mapping[int, TaskRollback]) -> None:
        """Forget what does not stand of the logs of tasks that roll back."""
        for task, retreat in retreats.items():
            if task in self.logs:
                self.logs[task].cut(retreat.stands)
            for owner, epoch in [log for log in self._depends if log[0] == task]:
                stands = min(retreat.stands.get(epoch, 0), self._depends[owner, epoch])
                if stands:
                    self._depends[owner, epoch] = stands
                else:
                    del self._depends[owner, epoch]
        self._depends_version += 1

    def forget_beyond(self, depends: Iterable[Extent]) -> None:
        """Forget the bytes of others' logs beyond `depends`: they came with elements that were given back."""
        vector = vector_of(depends)
        for task, log in self.logs.items():
            if task != self.task:
                log.cut({epoch: extent for (owner, epoch), extent in vector.items() if owner == task})

    def knowledge(self) -> Knowledge:
        """Return what a task keeps when it rolls back: its dependencies, and the logs it holds as far as these reach.

        Bytes that only came with elements that were never delivered are forgotten with their elements.
        """
        depends = tuple(self.dependencies())
        return Knowledge(tuple(self.logs_for(self.logs, depends)), depends)

    def truncate(self, epoch: int) -> None:
        """Forget what came before checkpoint `epoch`, which is complete: no task will replay it."""
        for log in self.logs.values():
            log.truncate(epoch)
        self._depends = {(t, e): extent for (t, e), extent in self._depends.items() if e >= epoch}
        self._depends_version += 1

    @property
    def size(self) -> int:
        return sum(log.size for log in self.logs.values())
