"""The promises of the protocol, checked from outside after every step.

The observer keeps its own account of what truly depends on what: for every element that was put out, how far each
task's log had come when it was.  It never asks the code under test what it thinks it depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from causal.channels.receiver import Receiver
from causal.channels.sink_channel import depended
from causal.cut import Cut
from causal.events import CheckpointCompleted, Event, OrphanQuery, Turn
from causal.ids import OUTSIDE
from causal.logs.rollback import Extent
from causal.ports import Bundle
from causal.task.recovery import PERFORMS, State
from causal.task.task import TaskProtocol
from tests.simulation.chains import identities
from tests.simulation.peers import Store, Violated
from tests.simulation.performances import Performances
from tests.simulation.twin import rows_of_twin

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import Simulation

Vector = dict[tuple[int, int], int]
"""(task, epoch) → bytes of that log that something truly depends on."""

Dependencies = tuple[Vector, Vector]
"""An element's dependencies, and the part of them that its sender must have handed on before it could be delivered."""

Life = tuple[int, int]
"""(task, incarnation)."""

Places = tuple[list[int], list[int], list[int], int, bool]
"""Elements accepted and delivered per input, put out per output, the epoch, whether the log has more."""

Senders = list[tuple[int, int]]
"""(position, incarnation): who sent what was accepted from there on, ascending."""


NO_LOG_YET = (State.RESTORED, State.COLLECTING)


def _life(task: TaskProtocol) -> Life:
    return task.holdings.task, task.incarnation


def _join(vector: Vector, more: Vector, from_epoch: int) -> None:
    for log, extent in more.items():
        if log[1] >= from_epoch and vector.get(log, 0) < extent:
            vector[log] = extent


class Observer:
    """Everything that is checked about one run."""

    def __init__(self, world: Simulation) -> None:
        self._world = world
        self._topology = world.topology
        self._causal = world.scenario.guarantee == "causal"
        self._staged = world.scenario.guarantee == "epoch"
        self._partial = world.scenario.depth < world.topology.depth
        self._held_by = [frozenset(world.topology.held_by(t.index, world.scenario.depth)) for t in world.topology.tasks]
        self._incarnations = [0] * len(world.topology.tasks)
        self._first_incarnation = 0
        """The number above which the incarnations of the present version are."""
        self._current: dict[int, tuple[Process, TaskProtocol]] = {}
        self._shared_by = [world.topology.shared_by(t.index, world.scenario.depth) for t in world.topology.tasks]
        self._truth: dict[Life, Vector] = {}
        self._owed: dict[Life, Vector] = {}
        """The part of `_truth` that a task must hold: all of it at full depth, less below."""
        self._emitted: dict[int, dict[int, dict[int, Dependencies]]] = {c.id: {} for c in world.topology.channels}
        """Channel → incarnation → position: a zombie and its successor may put out other elements there."""
        self._senders: dict[Life, dict[int, Senders]] = {}
        self._passed: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._complete: dict[tuple[int, int], bytes] = {}
        self._rests: dict[tuple[int, int, int], tuple[Any, ...]] = {}
        """(task, incarnation, epoch) → what a task that reported nothing behind that barrier had performed."""
        self._lives: list[list[TaskProtocol]] = [[] for _ in world.topology.tasks]
        self._cuts: dict[int, Cut] = {}
        self._shown: list[tuple[Store, bytes]] = []
        """Rows that were visible when the job was resumed with code that gives other rows."""
        self._must_diverge = False
        self.performances = Performances(world)
        self.durable = 0
        """The last complete checkpoint: its manifest is on disk."""
        self.steps = 0
        """The number of checks."""

    # -- what happens --------------------------------------------------------------------------------

    def began(self, process: Process, task: TaskProtocol, index: int) -> None:
        """An incarnation of a task begins: of a host that was cut off, also after its successor has begun."""
        if any(task.incarnation == life.incarnation for life in self._lives[index]):
            raise Violated(f"incarnations: {task.incarnation} of {task.name} begins a second time")
        late = task.incarnation < self._incarnations[index]
        if late and not self._world.several and task.incarnation > self._first_incarnation:
            raise Violated(f"incarnations: {task.incarnation} of {task.name} begins behind {self._incarnations[index]}")
        self._incarnations[index] = max(task.incarnation, self._incarnations[index])
        task.cursor.logging = task.cursor.logging or self._staged  # for the twin alone: nothing is sent
        self._lives[index].append(task)
        self._lives[index].sort(key=lambda life: life.incarnation)
        if not late:
            self._current[index] = (process, task)
        self._truth[_life(task)], self._owed[_life(task)] = {}, {}
        self._senders[_life(task)] = {channel.id: [] for channel in task.inputs}

    def took_over(self, process: Process, task: TaskProtocol, index: int, of: int, before: Places) -> None:
        """A hot standby becomes its task: its part of the echo of incarnation `of` counts as a replay."""
        taken = {channel.id: channel.next for channel in task.inputs}
        senders = self._senders[index, of]
        self.began(process, task, index)
        self._senders[_life(task)] = {c: [s for s in senders[c] if s[0] < at] for c, at in taken.items()}
        self.after(process, task, Turn(), (list(taken.values()), *before[1:4], True))

    def shadow_lost(self, line: str, blamed: bool) -> None:
        """A hot standby could not follow its task: that is no fault, but a difference between them is."""
        if blamed:
            raise Violated(f"shadow: {line}")

    def superseded(self, task: TaskProtocol) -> bool:
        """Return whether a younger incarnation has begun: nothing needs to be kept for what this one misses."""
        return task.incarnation < self._incarnations[task.holdings.task]

    def before(self, task: TaskProtocol) -> Places:
        """Return where the task stands, for `after`."""
        outputs = task.execution._outputs
        return (
            [c.next for c in task.inputs],
            [c.delivered for c in task.inputs],
            [o.position for o in outputs],
            task.cursor.epoch,
            task.cursor.replaying,
        )

    def after(self, process: Process, task: TaskProtocol, event: Event, before: Places) -> None:
        """A task has handled an event."""
        self.performances.after(task)
        self._check_rest(task)
        if self._staged:
            self._note_barrier(task, before[3])
        if not self._causal:
            return
        self._note_senders(task, before[0])
        if isinstance(event, OrphanQuery):
            self._check_asked(task, event.lost)
        if isinstance(event, CheckpointCompleted):
            self._check_kept(task)
            return
        _, delivered, positions, epoch, replaying = before
        outputs = task.execution._outputs
        if task.cursor.epoch == epoch and all(o.position == p for o, p in zip(outputs, positions, strict=True)):
            if all(c.delivered == d for c, d in zip(task.inputs, delivered, strict=True)):
                return
        self.steps += 1
        index = task.holdings.task
        truth = dict(self._truth[_life(task)])
        owed = dict(self._owed[_life(task)]) if self._partial else truth
        for channel, first in zip(task.inputs, delivered, strict=True):
            if channel.source != OUTSIDE:
                self._learn(task, truth, owed, channel.id, range(first, channel.delivered))
        if task.cursor.epoch != epoch:
            truth[index, epoch] = owed[index, epoch] = self._note_barrier(task, epoch)
        if task.cursor._place:
            here = (index, task.cursor.epoch)
            truth[here] = owed[here] = task.cursor._place
        self._truth[_life(task)], self._owed[_life(task)] = truth, owed
        self._check_orphan(task, index, truth, owed)
        for output, first in zip(outputs, positions, strict=True):
            if output.position > first:
                dependencies = (truth, self._handed_on(task, truth, output.id) if self._partial else truth)
                lives = self._emitted[output.id]
                older = [lives[i] for i in sorted(lives, reverse=True) if i < task.incarnation] if replaying else []
                emitted = lives.setdefault(task.incarnation, {})
                for position in range(first, output.position):
                    # A replay may perform several events in a turn; what it makes again depends on what it did before.
                    emitted[position] = next((life[position] for life in older if position in life), dependencies)

    def _check_rest(self, task: TaskProtocol) -> None:
        """A task that reports that it has performed nothing since a barrier is where it was there."""
        if not task.execution.step.unchanged:
            return
        execution, epoch = task.execution, task.cursor.epoch
        cut, chain = execution.checkpointing.cuts[epoch], execution.chain
        places = [(cut.inputs[each.id][0], each.delivered - each.blocked) for each in task.inputs]  # the next barrier
        places += [(cut.outputs[each.id][0], each.position) for each in execution._outputs]
        state = getattr(chain, "state", {})  # that of real operators is not looked into
        now = (state.get("chain"), state.get("timer"), len(state.get("asked", ())))
        if any(then != at for then, at in places) or self._rests.setdefault((*_life(task), epoch), now) != now:
            raise Violated(f"rest: {task.name} has performed something behind barrier {epoch} and reports nothing")

    def _note_senders(self, task: TaskProtocol, accepted: list[int]) -> None:
        """Record who sent what the task has accepted: a zombie takes elements of a zombie until it hears of another."""
        for channel, before in zip(task.inputs, accepted, strict=True):
            if channel.source != OUTSIDE and channel.next != before:
                assert isinstance(channel, Receiver)
                senders = self._senders[_life(task)][channel.id]
                while senders and senders[-1][0] >= channel.next:  # given back
                    senders.pop()
                if channel.next > before and (not senders or senders[-1][1] != channel.peer_incarnation):
                    senders.append((before, channel.peer_incarnation))

    def _note_barrier(self, task: TaskProtocol, epoch: int) -> int:
        """Record the log of an epoch if the task has ended it, and return its size in bytes, else 0."""
        if task.cursor.epoch == epoch:
            return 0
        self.steps += 1
        log, whole = (task.holdings.task, epoch), task.holdings.own.bytes_of(epoch)
        if task.incarnation >= self._passed.get(log, (0, b""))[0]:
            self._passed[log] = (task.incarnation, whole)
        return len(whole)

    def _handed_on(self, task: TaskProtocol, truth: Vector, channel: int) -> Vector:
        index, logs = task.holdings.task, task.holdings.logs
        store = self._topology.channels[channel].target == OUTSIDE
        owners = self._held_by[index] if store else self._shared_by[index]
        return {log: min(extent, logs[log[0]].extent(log[1])) for log, extent in truth.items() if log[0] in owners}

    def _learn(self, task: TaskProtocol, truth: Vector, owed: Vector, channel: int, delivered: range) -> None:
        senders, seen, from_epoch = self._senders[_life(task)][channel], None, task.holdings.own.first_epoch
        for position in delivered:
            sender = next((i for at, i in reversed(senders) if at <= position), 0)
            dependencies = self._emitted[channel].get(sender, {}).get(position)
            if dependencies is None:
                raise Violated(
                    f"delivery: {task.name} delivers position {position} of channel {channel}, which incarnation "
                    f"{sender} never put out"
                )
            if dependencies is not seen:
                seen = dependencies
                _join(truth, dependencies[0], from_epoch)
                if owed is not truth:
                    _join(owed, dependencies[1], from_epoch)

    def wrote(self, store: Store, channel: int, bundle: Bundle) -> None:
        """Rows have become visible: what they depend on must outlive their writer.

        No task replays what a complete checkpoint covers, even if the store has not heard of it: the order to truncate
        waits after bundles while the store is unavailable, and ends with its task (seed 41007869).
        """
        if not self._causal:
            return
        account = store.account
        marked = depended(account.marks) if self._partial else {}
        for position in range(bundle.first, bundle.first + bundle.count):
            truth, owed = self._emitted[channel][bundle.incarnation][position]
            for (owner, epoch), extent in owed.items():
                stored_extent = account.logs[owner].extent(epoch) if owner in account.logs else 0
                if epoch >= self.durable and stored_extent < extent and self._stable_bytes(owner, epoch) < extent:
                    raise Violated(self._short("store", store.task, owner, epoch, extent, stored_extent))
            for (owner, epoch), extent in truth.items() if self._partial else ():
                marked_extent = marked.get((owner, epoch), 0)
                if epoch >= self.durable and marked_extent < extent:
                    raise Violated(self._short("marks", store.task, owner, epoch, extent, marked_extent))

    def changed(self, epoch: int, incarnation: int) -> None:
        """The job has become its next version, which begins at that checkpoint, above that incarnation."""
        self._first_incarnation = incarnation
        self._incarnations = [max(incarnation, each) for each in self._incarnations]
        self._current.clear()
        self.performances.changed(epoch)
        self.completed(epoch)

    def fenced(self, process: Process, problem: str) -> None:
        """A process ends because a younger one has its task: the supervisor must have decided that there is one.

        Or a command has opened the stores for the next version.
        """
        if process.membership.incarnation <= self._world.changes.opened:
            return
        supervisor, name = self._world.supervisor, process.membership.name
        if supervisor is None or name is None:
            raise Violated(f"fenced: {process.slot} was never a task")
        roster = supervisor.supervision.assignments
        seat = roster.tasks[name]
        holder = roster.holder(seat)
        if process.membership.incarnation >= seat.incarnation:
            raise Violated(f"fenced: {name} ends, and {seat.incarnation} is the last that was promoted; {problem}")
        if holder is not None and holder.name == process.slot:
            raise Violated(f"fenced: {process.slot} ends, which was to be {name} again; {problem}")

    def completed(self, epoch: int) -> None:
        """The manifest of a checkpoint is on disk."""
        self.durable = epoch
        self._cuts = {}
        for task in self._topology.tasks:
            files = self._world.disk.manifests[epoch].get(task.name)
            if not files:
                raise Violated(f"checkpoint: the manifest of epoch {epoch} has no files of {task.name}")
            cut = Cut.unpack(self._world.durable(files[-1])[0])
            if cut.epoch != epoch:
                raise Violated(f"checkpoint: the files of {task.name} in manifest {epoch} are of epoch {cut.epoch}")
            self._cuts[task.index] = cut
        if not self._causal and not self._staged:
            return
        for sink, staged in self._world.staged.items():
            position = self._cuts[self._topology.channels[sink].source].outputs[sink][0]
            if staged.next_at(epoch) != position:
                raise Violated(f"pre-commit: rows up to {staged.next_at(epoch)} are staged below barrier {epoch}, "
                               f"the checkpoint was taken at {position}")  # fmt: skip
        for channel in self._topology.channels:
            if OUTSIDE not in (channel.source, channel.target):
                sent = self._cuts[channel.source].outputs[channel.id]
                taken = self._cuts[channel.target].inputs[channel.id]
                if sent != tuple(taken[:2]):
                    raise Violated(
                        f"checkpoint: channel {channel.id} was cut at {sent} and at {taken} in epoch {epoch}"
                    )
        for (index, past), (_, whole) in self._passed.items():
            if past < epoch:
                self._complete.setdefault((index, past), whole)
        self._passed = {log: passed for log, passed in self._passed.items() if log[1] >= epoch}
        self._check_replicas()

    def decided(self, record: Mapping[str, Any]) -> None:
        """The supervisor has journaled a decision."""
        if record["kind"] == "rolled_back" and not self._partial:
            raise Violated("rollback: with full sharing depth nothing can be lost")
        if record["kind"] == "rolled_back":
            back = {index for index, _, _ in record["rollback"]["retreats"]}
            connected = next(tasks for tasks in self._topology.components if record["component"] in tasks)
            if back - {*connected}:
                raise Violated(f"rollback: tasks {back} go back, of which channels connect only {connected}")

    def _check_asked(self, task: TaskProtocol, lost: list[Extent]) -> None:
        """A task is asked only about losses of tasks with which channels connect it."""
        connected = next(tasks for tasks in self._topology.components if task.holdings.task in tasks)
        if any(owner not in connected for owner, _, _ in lost):
            raise Violated(f"inquiry: {task.name} is asked about {lost}, with whose tasks no channel connects it")

    def died(self, process: Process) -> None:
        """A process has ended, or is reported to have ended."""
        if process.task is None:
            return
        index = process.task.holdings.task
        self._check_replicas()
        if self._current.get(index, (None,))[0] is process:
            del self._current[index]

    def other_code(self) -> None:
        """The job resumes with code that gives other rows."""
        self._shown += [(store, b"".join(store.rows)) for store in self._world.sinks]
        if not self._causal or self._partial or self._world.scenario.production:
            return  # else nothing visible is replayed, or it may be taken back, or not every row is another one
        for channel in self._topology.channels:
            if channel.target == OUTSIDE and not channel.carries_requests:
                cut = self._cuts.get(channel.source)
                covered = 0 if cut is None else cut.outputs[channel.id][0]
                self._must_diverge = self._must_diverge or self._world.stores[channel.id].account.next > covered

    # -- what must hold ------------------------------------------------------------------------------

    def _check_orphan(self, task: TaskProtocol, index: int, truth: Vector, owed: Vector) -> None:
        """Depend ⊆ Log: a task that depends on a determinant holds it, or declares the dependency (D4, D9)."""
        holdings = task.holdings
        first, held_by = holdings.own.first_epoch, self._held_by[index]
        for (owner, epoch), extent in owed.items():
            if epoch >= first and owner in held_by:
                held_extent = holdings.logs[owner].extent(epoch)
                if held_extent < extent:
                    raise Violated(self._short("log", task.name, owner, epoch, extent, held_extent))
        for (owner, epoch), extent in truth.items() if self._partial else ():
            if epoch >= first and owner != index:
                declared_extent = holdings._depends.get((owner, epoch), 0)
                if declared_extent < extent:
                    raise Violated(self._short("dependencies", task.name, owner, epoch, extent, declared_extent))

    def _short(self, what: str, who: str, owner: int, epoch: int, extent: int, reached: int) -> str:
        name = self._topology.tasks[owner].name
        return (
            f"always-no-orphans: {what} of {who} reach byte {reached} of {name}'s epoch {epoch}; it depends on {extent}"
        )

    def _check_kept(self, task: TaskProtocol) -> None:
        """Nothing is truncated that a task restored from the last complete checkpoint may ask for."""
        first = task.holdings.own.first_epoch
        for account in (self._truth, self._owed):
            account[_life(task)] = {log: extent for log, extent in account[_life(task)].items() if log[1] >= first}
        if task.holdings.own.first_epoch > self.durable:
            raise Violated(f"truncation: {task.name} has dropped determinants up to {task.holdings.own.first_epoch}, "
                           f"checkpoint {self.durable} is the last complete one")  # fmt: skip
        for output in task.channels.downstream.values():
            cut = self._cuts.get(output.target)
            wanted = 0 if cut is None else cut.inputs[output.id][0]
            if output.log.start > wanted:
                raise Violated(f"in-flight: {output.name} holds from {output.log.start}, {wanted} may be asked for")

    def _check_replicas(self) -> None:
        """Each replica of a log is a prefix of its owner's, once the owner has collected; skipped in an inquiry."""
        if not self._causal or (self._partial and self._unsettled()):
            return
        stores = [(f"the store of {s.task}", s.account.logs) for s in self._world.stores.values()]
        for index, (_, owner) in sorted(self._current.items()):
            if owner.recovery.state not in PERFORMS:
                continue
            holders = [(task.name, task.holdings.logs) for _, task in self._current.values()]
            for name, logs in holders + stores:
                replica = logs.get(index)
                if replica is None or replica is owner.holdings.own:
                    continue
                for epoch, extent in replica.extents().items():
                    if epoch >= owner.holdings.own.first_epoch:
                        mine, begin = owner.holdings.own.bytes_of(epoch), replica.begins.get(epoch, 0)
                        self._check_stable(name, owner, epoch, mine[:begin])
                        if bytes(replica.bytes_of(epoch)) != mine[begin:extent]:
                            raise Violated(
                                f"replicas: {name} holds {extent} bytes of {owner.name}'s epoch {epoch}, "
                                f"no prefix of its {len(mine)}"
                            )

    def _stable_bytes(self, owner: int, epoch: int) -> int:
        """Return bytes of a log that are on disk: a replay does not receive what its owner need not hold (seed
        41012085).
        """
        if owner not in self._current:
            return 0
        return len(self._world.stable_logs(owner, self._current[owner][1].incarnation).get(epoch, b""))

    def _check_stable(self, holder: str, owner: TaskProtocol, epoch: int, gone: bytes) -> None:
        """The task that takes the owner's place can read what a holder has let go of."""
        if gone:
            stored = self._world.stable_logs(owner.holdings.task, owner.incarnation).get(epoch, b"")
            if stored[: len(gone)] != gone:
                raise Violated(
                    f"stable: {holder} has let go of {len(gone)} bytes of {owner.name}'s epoch {epoch}, "
                    f"of the {len(stored)} that are on disk these are no prefix"
                )

    def _unsettled(self) -> bool:
        supervisor = self._world.supervisor
        if supervisor is None or supervisor.supervision.inquiries.open:
            return True
        decided = supervisor.supervision.inquiries.rollback_of
        return any(task.inquiry.rollback.number != decided(task.name).number for _, task in self._current.values())

    # -- the end -------------------------------------------------------------------------------------

    def end(self, status: int, reason: str) -> None:
        """The job is over: the verdict on what users saw."""
        world = self._world
        if any(store.superseded for store in world.stores.values()):
            # Whether it ended before or was refused: it must not have touched what the newer run writes.
            other_code = bool(self._shown) and "use ctx" in reason
            if status and "newer run" not in reason and not other_code:
                raise Violated(f"newer run: the older one ends for another reason: {reason}")
            return
        if self._shown:
            self._check_other_code(status, reason)
            return
        if status:
            raise Violated(f"the job fails: {reason}")
        for store in world.stores.values():
            store.check()
        if any(store.withdrawn for store in world.stores.values()) and not self._partial:
            raise Violated("withdrawn: rows or requests with full sharing depth")
        withdrawn = sum(store.withdrawn for store in world.sinks)
        reported = sum(int(world.last_reported(store.task, "withdrawn_rows")) for store in world.sinks)
        if self._causal and reported != withdrawn:
            raise Violated(f"withdrawn: {withdrawn} rows were taken back, the report says {reported}")
        if self._causal or self._staged:
            self._check_twin()
        elif world.scenario.guarantee == "at-least-once" or not world.applied:
            self._check_nothing_lost()

    def _check_other_code(self, status: int, reason: str) -> None:
        """Code that gives other rows than are visible ends the job, and no row has changed."""
        for store, before in self._shown:
            store.check()
            if not self._partial and not b"".join(store.rows).startswith(before):
                raise Violated(f"other code: rows of {store.task} that were visible have changed")
        if status and "use ctx" not in reason:
            raise Violated(f"other code: the job fails for another reason: {reason}")
        if not status and self._must_diverge:
            raise Violated("other code: rows were replayed by code that gives others, and it was not noticed")

    def final_logs(self) -> dict[tuple[int, int], bytes]:
        """Return every determinant that happened, once; where rows wait for checkpoints, of what the last one
        covers.
        """
        if self._staged:
            return self._covered_logs()
        logs = dict(self._complete)
        for index, lives in enumerate(self._lives):
            # A zombie may have ended the job before it was known for one; who still collects has no log yet (9801886).
            finished = [task for task in lives if task.finished and task.recovery.state not in NO_LOG_YET]
            if not finished:
                raise Violated(f"end: all sinks have finished, {lives[-1].name} never did")
            own = finished[-1].holdings.own
            for epoch in own.extents():
                logs.setdefault((index, epoch), own.bytes_of(epoch))
        return logs

    def _covered_logs(self) -> dict[tuple[int, int], bytes]:
        """Logs of the epochs below the last complete checkpoint: no row is visible that depends on a later one.

        What a task did after that barrier may have been rolled back without a successor that has begun, so the last
        lives of two tasks may have performed different runs of a later epoch.
        """
        unfinished = [self._topology.tasks[index].name for index, cut in self._cuts.items() if not cut.finished]
        if unfinished or not self._cuts:
            raise Violated(
                f"end: checkpoint {self.durable} is the last complete one, {unfinished or 'all'} had not finished in it"
            )
        return {log: whole for log, whole in self._complete.items() if log[1] < self.durable}

    def _check_twin(self) -> None:
        world = self._world

        def never() -> bytes:
            raise Violated("twin: asks the outside world")

        expected, requests = rows_of_twin(
            self._topology,
            self.final_logs(),
            lambda task: world.job.chain(task, never, 0),
            lambda channel: [
                world.job.make(world.partitions[channel].number, i) for i in range(world.partitions[channel].records)
            ],
        )
        for channel, store in world.stores.items():
            if b"".join(expected[channel]) != b"".join(store.rows):
                raise Violated(
                    f"twin: {store.task} shows {store.account.next} rows, {len(b''.join(store.rows))} bytes; the twin "
                    f"has {len(b''.join(expected[channel]))} bytes, or other ones"
                )
        world.service.check(requests, world.stores.values(), lossless=self._causal)

    def _check_nothing_lost(self) -> None:
        """Every record of every source is in the output at least once."""
        written: set[tuple[int, int]] = set()
        for store in self._world.sinks:
            for rows in store.rows:
                written |= identities(rows)
        for partition in self._world.partitions.values():
            lost = [i for i in range(partition.records) if (partition.number, i) not in written]
            if lost:
                raise Violated(f"lost: {len(lost)} records of partition {partition.number}, the first is {lost[0]}")
