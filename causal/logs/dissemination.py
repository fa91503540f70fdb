"""The determinants that a task holds, and the determinants that each downstream neighbour still lacks (D3).

A task shares its own log and the logs of ancestors closer than the sharing depth. For the logs of more distant
ancestors, it sends only the extents, as dependencies, to distinguish *lost* from *never shared* (D9). Bytes that an
owner has on stable storage are reported instead of shared (0012).
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
"""The number of additional stable bytes of a log after which the holders are informed so that they can drop them."""

Following = tuple[DeterminantLog, bytearray, bytes]
"""A log, the bytes that it holds of one epoch, and the bytes to append to them."""

_task_of = itemgetter(0)
_EPOCHS_HELD = 4
"""The number of epochs above which entries of old epochs are removed; a log never has more epochs than this."""


class Seen:
    """The extents that have been sent to one downstream holder, per log and epoch.

    State: advances with each delta that is returned for sending; each WELCOME resets it.
    """

    __slots__ = ("extents", "grown", "depends", "depends_version", "stable")

    def __init__(self) -> None:
        self.extents: dict[int, dict[int, int]] = {}
        self.grown: dict[int, int] = {}
        self.depends: dict[tuple[int, int], int] = {}
        self.depends_version = -1
        self.stable: dict[int, dict[int, int]] = {}
        """The extents reported to the holder as stable, if the job writes determinants to stable storage."""

    def reset(self, extents: Iterable[Extent]) -> None:
        """Replace the extents with those that the holder reports, because deltas sent earlier may have been lost."""
        self.extents = {}
        for task, epoch, extent in extents:
            self.extents.setdefault(task, {})[epoch] = extent
        self.grown = {}
        self.depends = {}
        self.depends_version = -1
        self.stable = {}

    def cut(self, retreats: Mapping[int, TaskRollback]) -> None:
        """Record that the holder has dropped the invalid ends of these tasks' logs, which will grow again."""
        for task, retreat in retreats.items():
            sent = self.extents.get(task, {})
            self.extents[task] = {e: min(n, retreat.stands.get(e, 0)) for e, n in sent.items()}
            self.grown.pop(task, None)
            self.stable.pop(task, None)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Determinants, and the dependencies of the task that holds them."""

    logs: tuple[LogDelta, ...] = ()
    depends: tuple[Extent, ...] = ()


NO_KNOWLEDGE = Knowledge()


class Holdings:
    """One task's own log, its replicas of its ancestors' logs, and its dependencies."""

    def __init__(
        self, topology: Topology, task: TaskIndex, sharing_depth: int, epoch: int, flushing: bool = False
    ) -> None:
        self.task = task
        self.flushing = flushing
        """Whether owners write their logs to stable storage and report the stable extents."""
        self.own = DeterminantLog(task, epoch, owner=True)
        ancestors = topology.ancestors(task)
        owners = topology.held_by(task, sharing_depth)
        self.logs: dict[int, DeterminantLog] = {task: self.own}
        self.logs |= {t: DeterminantLog(t, epoch) for t in owners if t != task}
        self._shared = [self.logs[t] for t in topology.shared_by(task, sharing_depth)]
        self._everyone = frozenset((task, *ancestors))
        self.partial = sharing_depth < topology.depth
        """Whether some task may depend on logs that it does not hold, so that all tasks send their dependencies."""
        self._depends: dict[tuple[int, int], int] = {}
        self._depends_version = 0

    def merge(self, deltas: Sequence[LogDelta], extents: Iterable[Extent] = ()) -> None:
        """Store the deltas of a message before any of its elements can be delivered (always-no-orphans, D4).

        Either all deltas are stored or none, because a log that ended inside a determinant could not be replayed.

        Args:
            extents: the extents that the sender claims to hold, which this task must also hold after the merge.

        Raises:
            PeerViolation: a delta belongs to a log not held by this task, follows a gap, or contradicts held bytes.
        """
        self.check(deltas, extents)
        self.store(deltas)

    def check(self, deltas: Sequence[LogDelta], extents: Iterable[Extent] = ()) -> None:
        """Raise the error that `merge` would raise, but change nothing."""
        reach: dict[tuple[int, int], int] = {}
        for delta in deltas:
            log = self.logs.get(delta.task)
            if log is None:
                raise PeerViolation(f"a frame has a delta of task {delta.task}, whose log this task does not hold")
            if not delta.bytes and not self.flushing:
                raise PeerViolation(
                    f"a frame reports the log of task {delta.task} as stable, but this job stores no logs"
                )
            where = (delta.task, delta.epoch)
            reach[where] = log.check(delta, reach.get(where, 0))
        for task, epoch, extent in extents:
            log = self.logs.get(task)
            if log is None or epoch < log.first_epoch:
                continue
            reached = max(log.extent(epoch), reach.get((task, epoch), 0))
            if reached < extent:
                raise PeerViolation(f"log of task {task}, epoch {epoch}: only {reached} of {extent} bytes have arrived")

    def store(self, deltas: Sequence[LogDelta]) -> None:
        """Store deltas that `check` has accepted."""
        for delta in deltas:
            self.logs[delta.task].merge(delta)

    def following(self, deltas: Sequence[LogDelta]) -> list[Following] | None:
        """Return the appends for `follow` if each delta continues a held log and each log occurs only once.

        For nearly every message, this method replaces `check`. It returns None if `check` has to decide.
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
        """Append the bytes as specified by the result of `following`."""
        for log, content, piece in following:
            content += piece
            log.grown += len(piece)

    def depend(self, extents: Iterable[Extent]) -> None:
        """Record the extents of ancestors' logs on which delivered elements depend."""
        depends = self._depends
        for task, epoch, extent in extents:
            if extent > depends.get((task, epoch), 0) and epoch >= self.own.first_epoch and task in self._everyone:
                depends[task, epoch] = extent
                self._depends_version += 1

    def lacking(self, seen: Seen, store: bool = False) -> tuple[list[LogDelta], list[Extent]]:
        """Return the deltas and dependencies for the next message to a holder, and record in `seen` that they are sent.

        Args:
            store: whether the holder is a sink's store. The store outlives processes and receives all logs held by this
                task, because the rows depend on them and no task further downstream holds them (D8).
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
                if content is not None:  # nearly always the case
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
        """Return the dependencies that this holder has not received yet, and record in `seen` that they are sent."""
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
        """Return reports of the stable bytes that the holder can drop, limited to the bytes that were sent to it."""
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
        """Return the extents of the log of `task` that dependencies cover, which limit the bytes that are passed on.

        If more bytes were passed on, their owner would replay events for which no task has reported a dependency.
        """
        return {epoch: extent for (owner, epoch), extent in self._depends.items() if owner == task}

    def dependencies(self) -> list[Extent]:
        """Return the extents of all logs, including logs not held, on which this task's state depends.

        Elements that were received but not delivered are not included, because they have had no effect yet.
        """
        own = [(self.task, epoch, extent) for epoch, extent in self.own.extents().items()]
        return sorted(
            [*own, *((task, epoch, extent) for (task, epoch), extent in self._depends.items() if task != self.task)]
        )

    def extents_for(self, tasks: Iterable[int]) -> list[Extent]:
        """Return the extents that this task holds of the logs of these tasks, for a WELCOME."""
        return [
            (task, epoch, extent)
            for task in tasks
            if task in self.logs
            for epoch, extent in self.logs[task].extents().items()
        ]

    def logs_for(self, tasks: Iterable[int], depends: Sequence[Extent]) -> list[LogDelta]:
        """Return the bytes that this task holds of the logs of these tasks, for a task that is collecting.

        Args:
            depends: the dependencies that are sent with the bytes; below full sharing depth, no bytes beyond these
                dependencies are returned (see `_depended`).
        """
        vector = vector_of(depends)
        deltas: list[LogDelta] = []
        for task in tasks:
            if task in self.logs:
                limits = {epoch: n for (owner, epoch), n in vector.items() if owner == task} if self.partial else None
                deltas += self.logs[task].whole(limits)
        return deltas

    def needed(self) -> list[Extent]:
        """Return the extents of the own log on which other tasks depend and that exceed the collected extents."""
        own = self.own
        return [
            (task, epoch, extent)
            for (task, epoch), extent in sorted(self._depends.items())
            if task == self.task and extent > own.extent(epoch)
        ]

    def missing(self) -> list[Extent]:
        """Test for orphans once every downstream task has answered (D9).

        Returns: the collected extents of the own log for the epochs in which other tasks depend on more bytes.
        """
        return [(task, epoch, self.own.extent(epoch)) for task, epoch, _ in self.needed()]

    @property
    def version(self) -> int:
        """A number that increases with each change to the own log or to the dependencies."""
        return self.own.grown + self._depends_version

    def cut(self, retreats: Mapping[int, TaskRollback]) -> None:
        """Drop the invalid parts of the logs of tasks that roll back."""
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
        """Drop other tasks' log bytes beyond `depends`, because they arrived with elements that were given back."""
        vector = vector_of(depends)
        for task, log in self.logs.items():
            if task != self.task:
                log.cut({epoch: extent for (owner, epoch), extent in vector.items() if owner == task})

    def knowledge(self) -> Knowledge:
        """Return what a task keeps when it rolls back: its dependencies, and the logs it holds up to these extents.

        Bytes that arrived with undelivered elements are dropped together with those elements.
        """
        depends = tuple(self.dependencies())
        return Knowledge(tuple(self.logs_for(self.logs, depends)), depends)

    def truncate(self, epoch: int) -> None:
        """Drop the epochs before complete checkpoint `epoch`, because no task will replay them."""

        for log in self.logs.values():
            log.truncate(epoch)
        self._depends = {(t, e): extent for (t, e), extent in self._depends.items() if e >= epoch}
        self._depends_version += 1

    @property
    def size(self) -> int:
        return sum(log.size for log in self.logs.values())
