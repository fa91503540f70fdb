"""Performs one action on a state, with all that follows: steps of the supervisor, its processes and the command.

Messages arrive immediately, or are lost with who receives them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from causal.records.values import decode, encode
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.effects import Record
from standby.supervision.next_version import COMMIT, RENEW
from tests.exhaustive.rescale.command import LATER, Ask, Do, next_item
from tests.exhaustive.rescale.state import NEW, NONE, OUT, READ, TASKS, Prepared, Process, State, owner
from tests.exhaustive.rescale.supervisors import Supervisors

USER, RENEWER = "admin", "admin-renews"


class Draft:
    """A state that is being changed by one action.

    Args:
        dies_after: the number of effects of the supervisor, and of steps of a commit, after which it dies.
    """

    def __init__(self, supervisors: Supervisors, state: State, dies_after: int = NONE) -> None:
        self._supervisors = supervisors
        self.processes = {process.slot: process for process in state.processes}
        self.snapshots = dict(state.snapshots)
        self.manifests = {epoch: dict(files) for epoch, files in state.manifests}
        self.fields = state._asdict()
        self.broken: list[str] = []
        self.died = False
        """Whether the supervisor has died after that number of effects."""
        self._left = dies_after
        self._events: deque[events.Event] = deque()

    def state(self) -> State:
        """Return the state that it has become."""
        parts = {
            "processes": tuple(sorted(self.processes.values())),
            "snapshots": tuple(sorted(self.snapshots.items())),
            "manifests": tuple(
                (epoch, tuple(sorted(self.manifests[epoch].items()))) for epoch in sorted(self.manifests)
            ),
        }
        return State(**{**self.fields, **parts})

    def __getattr__(self, name: str) -> Any:
        return self.fields[name]

    @property
    def width(self) -> int:
        """The number of tasks that count in the present version."""
        return int(self.widths[self.version])

    def change(self, **fields: Any) -> None:
        """Change fields of the state."""
        self.fields.update(fields)

    # -- the supervisor ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A supervisor begins with what is on disk, and hears the agent."""
        self._carry_out()
        self._restore()
        self.agent_beats()

    def _restore(self) -> None:
        newest = max(self.manifests)
        manifest = (newest, {task: ((path, 1, "d"),) for task, path in self.manifests[newest].items()})
        restored = events.Restored(tuple(map(decode, self.journal)), manifest)
        self._supervise(*self._supervisors.begin(self.width, restored, self.ticks))
        self._hear()

    def deliver(self, event: events.Event) -> None:
        """An event reaches the supervisor, if it lives; so do the reports that follow from it immediately."""
        self._events.append(event)
        self._hear()

    def _hear(self) -> None:
        while self._events:
            event = self._events.popleft()
            if self.supervisor != NONE:
                self._supervise(*self._supervisors.step(self.supervisor, event, self.ticks))

    def _supervise(self, number: int, effects: list[fx.Effect]) -> None:
        self.change(supervisor=number)
        records = [encode(dict(effect.record)) for effect in effects if isinstance(effect, fx.Journal)]
        self.change(journal=(*self.journal, *records))
        for effect in effects:
            if isinstance(effect, fx.Journal | fx.Note | fx.RemoveFiles):
                continue
            if self._dies():
                return
            self._perform(effect)

    def _dies(self) -> bool:
        """Return whether the supervisor dies here; its other effects are lost."""
        if self._left == 0:
            self.died = True
            self.kill_supervisor()
        self._left -= 1
        return bool(self.supervisor == NONE)

    def kill_supervisor(self) -> None:
        """Kill the supervisor; a request that it has not answered is repeated."""
        self._events.clear()
        self.change(supervisor=NONE, waiting=False)

    def _perform(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Send(slot, message) if slot in self.processes and not self.processes[slot].dead:
                self._obey(self.processes[slot], message)
            case fx.StartProcess(slot, _):
                self.processes.setdefault(slot, Process(slot))
            case fx.KillProcess(slot) if slot in self.processes:
                self.kill(slot)
            case fx.WriteManifest(epoch, files):
                self.manifests[epoch] = {task: each[0][0] for task, each in files.items()}
                if len({self.snapshots[path] for path in self.manifests[epoch].values()}) > 1:
                    self.broken.append(f"a consistent cut: {self.manifests[epoch]} have different positions")
                self._events.append(events.ManifestWritten(epoch))
            case fx.Answer(to, body) if to == USER:
                self.answer(body)
            case fx.CommitChange():
                self._commit(effect)
            case fx.EndJob(status, reason):
                self.change(ended=(status, reason))

    def _commit(self, change: fx.CommitChange) -> None:
        """`standby.daemon.Daemon._commit`."""
        prepared = self.prepared
        if prepared is None:
            self.answer({"ok": False, "error": "change/ has no change"})
            return
        beats = self._supervisors.of(self.supervisor).next_version.beats
        records: list[Record] = [{"kind": "resumed", "at_ns": 1}, *change.processes]
        self.change(prepared=prepared._replace(journal=(*prepared.journal, *(encode(dict(r)) for r in records))))
        if self._dies():
            return
        self.change(prepared=self.prepared._replace(ready=True))
        if self._dies():
            return
        self._carry_out()
        if self._dies():
            return
        self._events.clear()
        self._restore()
        for beat in beats:
            self._events.append(beat)
        self._hear()
        if self.supervisor != NONE and not self._dies():
            self.answer({"ok": True, "step": COMMIT})

    def _carry_out(self) -> None:
        """`standby.storage.prepared_change.carry_out`."""
        prepared: Prepared | None = self.prepared
        if prepared is not None and prepared.ready:
            self.manifests[prepared.epoch] = dict(prepared.files)
            self.change(prepared=None, version=NEW, journal=prepared.journal, started=prepared.started, intent=False)

    # -- processes -------------------------------------------------------------------------------------------------

    def beat(self, slot: str) -> None:
        """A process reports its state."""
        self._report(self.processes[slot])
        self._hear()

    def _report(self, process: Process) -> None:
        """A process has changed, and its report follows."""
        self.processes[process.slot] = process._replace(up=True)
        slot, (epoch, path) = process.slot, process.acked
        self._events.append(
            events.Beat(
                slot=slot, pid=_pid(slot), endpoint=f"ipc://{slot}", task=process.task or None,
                incarnation=process.incarnation, state="running" if process.task else "standby", epoch=process.epoch,
                followed=None if process.followed == NONE else process.followed,
                acked=(epoch, ((path, 1, "d"),)) if epoch else None,
            )
        )  # fmt: skip

    def kill(self, slot: str) -> None:
        """A process ends; the agent reports that later."""
        self.processes[slot] = Process(slot, dead=True)

    def report_death(self, slot: str) -> None:
        """The agent reports that a process has ended."""
        del self.processes[slot]
        self.deliver(events.Exited(slot, _pid(slot), 1, None))

    def agent_beats(self) -> None:
        """The agent reports which processes live, and which have ended."""
        if self.supervisor != NONE:
            living = {process.slot: _pid(process.slot) for process in self.processes.values() if not process.dead}
            dead = {process.slot: None for process in self.processes.values() if process.dead}
            self.deliver(events.AgentBeat(living, dead))
            self.processes = {slot: process for slot, process in self.processes.items() if slot not in dead}

    def _obey(self, process: Process, message: Mapping[str, Any]) -> None:
        kind = message["kind"]
        if kind == "stop":
            self.kill(process.slot)
        elif kind == "follow" and not process.task:
            self._report(process._replace(followed=message["epoch"]))
        elif kind == "checkpoint" and process.task == READ and message["epoch"] > process.epoch:
            asked = (message["epoch"], message.get("final", False))
            self.processes[process.slot] = process._replace(asked=asked)
        elif kind == "promote" and not process.task:
            self._promote(process, message)

    def _promote(self, process: Process, message: Mapping[str, Any]) -> None:
        """A task begins at its snapshot, and continues where others know its last incarnation to have been."""
        task, incarnation, epoch = message["task"], message["incarnation"], message["epoch"]
        path = next((path for path, _, _ in message["files"]), "")
        if path not in self.snapshots:
            self.broken.append(f"files: {task} is promoted at checkpoint {epoch} without {path or 'a file'}")
            return
        at, rows = self.snapshots[path], self.rows
        others = [each for each in self.processes.values() if each.task and each.version == self.version]
        if any(other.task == task for other in others):
            self.broken.append(f"one process: {task} is promoted, and another process is that task")
        begun = process._replace(
            task=task, incarnation=incarnation, epoch=epoch, restored=at, version=self.version
        )  # fmt: skip
        if task == OUT:
            if incarnation < self.opened:
                self.kill(process.slot)  # fenced
                return
            self.change(opened=incarnation)
            begun = begun._replace(at=len(rows) if len(rows) > self.started else at)
        elif task == READ:
            shown = len(rows) if len(rows) > self.started else 0
            begun = begun._replace(at=max(at, shown, *(other.at for other in others)))
            last, position, final = self.barrier
            if last > epoch and any(other.epoch >= last for other in others):
                acked = (last, self.write(task, last, incarnation, position))
                begun = begun._replace(at=position, epoch=last, stands=final, acked=acked)
            elif last > epoch:
                self.change(barrier=(0, 0, False))  # it is not known any more
        else:
            mine = [row for row in rows[self.started :] if owner(self.width, row) == task]
            begun = begun._replace(at=max(at, 1 + max(mine, default=NONE)))
        self._report(begun)

    def write(self, task: str, epoch: int, incarnation: int, at: int) -> str:
        """Write a snapshot, and return the name of its file."""
        path = f"checkpoints/{task}/e{epoch:08}-i{incarnation}.snap"
        self.snapshots[path] = at
        return path

    def work(self, slot: str, record: int) -> None:
        """A task takes a record."""
        process = self.processes[slot]
        if process.task != OUT:
            self.processes[slot] = process._replace(at=record + 1)
            return
        if process.incarnation < self.opened:
            self.kill(slot)  # fenced
            return
        if process.at != len(self.rows) or record in self.rows:
            self.broken.append(f"exactly once: {record} is written as row {process.at} after the rows {self.rows}")
        self.processes[slot] = process._replace(at=process.at + 1)
        self.change(rows=(*self.rows, record))

    def pass_barrier(self, slot: str) -> None:
        """A task passes a barrier, and its snapshot is on disk."""
        process = self.processes[slot]
        if process.task == READ:
            self.change(barrier=(process.asked[0], process.at, process.asked[1]))
        epoch, position, final = self.barrier
        acked = (epoch, self.write(process.task, epoch, process.incarnation, position))
        self._report(process._replace(epoch=epoch, at=position, stands=final, acked=acked, asked=(0, False)))
        self._hear()

    # -- the command -----------------------------------------------------------------------------------------------

    def answer(self, body: Mapping[str, Any]) -> None:
        """The supervisor answers the command."""
        item = next_item(self.state())
        if self.answers is None or not self.waiting or not isinstance(item, Ask):
            return
        if body.get("step", item.step) == item.step:
            facts = {name: value for name, value in body.items() if name in ("epoch", "incarnation")}
            self.change(answers=(*self.answers, (bool(body["ok"]), encode(facts))), waiting=False)

    def proceed(self) -> None:
        """The command takes its next step."""
        item = next_item(self.state())
        if isinstance(item, Ask):
            self.change(waiting=True)
            self.deliver(events.Admin(USER, "change", {"step": item.step, "change": "t", **item.facts}))
        elif item is not None:
            ok, answer = self._done(item)
            self.change(answers=(*self.answers, (ok, encode(answer))))

    def renew(self) -> None:
        """The command renews the change."""
        if next_item(self.state()) is not None:
            self.deliver(events.Admin(RENEWER, "change", {"step": RENEW, "change": "t"}))

    @property
    def committed(self) -> bool:
        """Whether the job is the new version."""
        return bool(self.version == NEW)

    def _done(self, item: Do) -> tuple[bool, Any]:
        """Perform a step of the command on the files or on the store; return whether it succeeds, and its result."""
        incarnation = item.incarnation
        if item.what == "look":
            return True, self.committed
        if item.what == "remove":
            self._remove(incarnation)
        elif item.what == "intend":
            self.change(intent=True)
        elif item.what in ("open", "withdraw"):
            return self._use_store(item), None
        else:
            files, at = self._converted(item)
            if item.what == "convert":
                return True, {"epoch": item.epoch or max(self.manifests), "files": _listed(files)}
            self._prepare(item, files, at)
        return True, None

    def _remove(self, incarnation: int) -> None:
        if not self.committed:
            self.change(prepared=None)
            for path in [path for path in self.snapshots if path.endswith(f"-i{incarnation}.snap")]:
                del self.snapshots[path]

    def _use_store(self, item: Do) -> bool:
        """Open the store for the new version, or withdraw its rows; return whether it accepts that."""
        if self.opened > item.incarnation:
            return False
        self.change(opened=item.incarnation)
        at = self.snapshots[self.manifests[1 if self.returns else max(self.manifests)][OUT]]
        if item.what == "withdraw":
            self.change(rows=self.rows[:at], withdrawn=self.withdrawn + len(self.rows) - at)
        return bool(self.returns or len(self.rows) == at)

    def _converted(self, item: Do) -> tuple[dict[str, str], int]:
        """Return the files of the new version, and the position that they restore."""
        epoch = 1 if self.returns else max(self.manifests)
        at = self.snapshots[self.manifests[epoch][OUT]]
        tasks = TASKS[self.widths[NEW]]
        return {task: self.write(task, item.epoch or epoch, item.incarnation, at) for task in tasks}, at

    def _prepare(self, item: Do, files: Mapping[str, str], at: int) -> None:
        epoch = item.epoch or max(self.manifests)
        begins = {"incarnation": item.incarnation, "savepoint": f"{epoch}-r", "stores": {}, "left": {}}
        records: list[Record] = [
            {"kind": "changed", **begins},
            {"kind": "savepoint", "epoch": epoch, "final": True},
            {"kind": "checkpoint", "count": 0, "epoch": epoch, "files": _listed(files), "took_ms": 0.0},
        ]
        journal = tuple(encode(dict(record)) for record in records)
        self.change(prepared=Prepared(epoch, item.incarnation, at, tuple(sorted(files.items())), journal))

    def kill_everything(self, command_too: bool) -> None:
        """The machine fails, and the job is resumed; if rows may be withdrawn, by the same rollback."""
        self.kill_supervisor()
        self.processes = {}
        self._carry_out()
        self.change(barrier=(0, 0, False), ended=None)
        if command_too:
            self.change(answers=None)
        if self.intent:  # `causal run --resume --rollback`
            item = Do("withdraw", self.opened + LATER, max(self.manifests) + LATER)
            self._use_store(item)
            self._prepare(item, *self._converted(item))
            self.change(prepared=self.prepared._replace(ready=True))
            self._carry_out()
        self.change(journal=(*self.journal, encode({"kind": "resumed", "at_ns": 1})))

    def wait(self) -> None:
        """Nothing happens for a while: everything reports, and the command repeats its request."""
        self.change(ticks=self.ticks + 1, waiting=False)
        self.renew()
        for slot in [process.slot for process in self.processes.values() if process.up and not process.dead]:
            if slot in self.processes and not self.processes[slot].dead:
                self.beat(slot)
        self.agent_beats()
        self.deliver(events.Tick())


def _pid(slot: str) -> int:
    return 100 + int(slot[1:])


def _listed(files: Mapping[str, str]) -> dict[str, list[list[Any]]]:
    return {task: [[path, 1, "d"]] for task, path in files.items()}
