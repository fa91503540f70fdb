"""A command that changes a running job to its next version, on virtual time, and the directory `change/`.

The command is simulated as a whole: its promises are those of `deploy.changes`.  Its next version has the same graph,
so it converts state by copying files.  It may die or be suspended at any step, and its requests and their answers may
be late, lost or repeated.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from causal.commands import Files
from causal.cut import Cut
from causal.errors import CausalError, Unavailable
from causal.ports import Bundle
from causal.records.values import encode
from standby.network.control import pack
from standby.supervision.effects import Record
from standby.supervision.next_version import CANCEL, COMMIT, FACTS, FOLLOW, PREPARE, RENEW, STAND
from tests.simulation.change_faults import CANCELS, COMMIT_DIES, DIES, SLEEP_MS_MAX, SLEEPS, Change
from tests.simulation.clockwork import MS, SECOND
from tests.simulation.scenario import Fault

if TYPE_CHECKING:
    from tests.simulation.world import Simulation

LATER = 1000
RENEW_NS = AGAIN_NS = SECOND
WITHIN_NS = {FACTS: 10 * SECOND, COMMIT: 10 * SECOND, CANCEL: 10 * SECOND}
WITHIN_NS_MAX = 60 * SECOND
"""The time for an answer to any other request."""
TRIES_MAX = 60
PASSING = ("not completed a checkpoint", "another change")
"""Parts of refusals after which the user repeats the command."""
TRY_AGAIN_NS = 150 * MS
TWICE, LATE, LATE_NS_MAX = 0.1, 0.05, 1500 * MS
"""The chances that a request arrives twice, and late."""


class Refused(Exception):
    """The change cannot be carried out, or has ended."""


@dataclass(slots=True)
class Prepared:
    """The content of `change/`: the journal of the next version, its first checkpoint, and whether it is final."""

    epoch: int
    incarnation: int
    files: dict[str, Files]
    journal: list[bytes]
    ready: bool = False

    def append(self, records: list[Record]) -> None:
        """Journal decisions of the next version."""
        self.journal += [encode(dict(record)) for record in records]


@dataclass(slots=True)
class Changes:
    """All changes of one run.

    Attributes:
        prepared: what is in `change/`.
        opened: the highest incarnation with which a command has opened a store.
        incarnation: that with which the present version began.
        committed: the number of changes that were carried out.
        ended: the number of commands that have ended otherwise.
        commit_dies: the number of steps of a commit after which the supervisor dies; None if it does not.
    """

    world: Simulation
    prepared: Prepared | None = None
    opened: int = 0
    incarnation: int = 0
    committed: int = 0
    ended: int = 0
    commit_dies: int | None = None
    command: Command | None = None
    _commands: int = 0
    _asked: list[tuple[Change, int]] = field(default_factory=list)

    def start(self) -> None:
        """Schedule the commands of the scenario."""
        for change in self.world.scenario.changes:
            self.world.clock.after(change.at_ns, lambda change=change: self.run(change))  # type: ignore[misc]

    def run(self, change: Change, tries: int = 0) -> None:
        """Run a command, once the one before has ended."""
        self._asked.append((change, tries))
        self.next()

    def next(self) -> None:
        """Run the next command if none is running."""
        if self._asked and self.command is None and self.world.ended is None:
            self._commands += 1
            change, tries = self._asked.pop(0)
            self.command = Command(self.world, change, tries, self._commands)
            self.command.begin()

    def hear(self, to: str, body: Mapping[str, Any]) -> None:
        """An answer of the supervisor has arrived."""
        if self.command is not None and to == self.command.who:
            self.command.hear(dict(body))

    def carry_out(self) -> None:
        """Move the change into place if it is final (`standby.storage.prepared_change`)."""
        prepared, world = self.prepared, self.world
        if prepared is None or not prepared.ready:
            return
        self.prepared = None
        self.incarnation = prepared.incarnation
        world.replace_journal(prepared.journal)
        world.disk.manifests[prepared.epoch] = {task: tuple(files) for task, files in prepared.files.items()}
        world.stable.begun.clear()
        self.committed += 1
        world.observer.changed(prepared.epoch, prepared.incarnation)

    def commit_step(self) -> bool:
        """One more step of a commit; return whether the supervisor dies after it."""
        if self.commit_dies is None:
            return False
        self.commit_dies -= 1
        if self.commit_dies >= 0:
            return False
        self.commit_dies = None
        self.world.kill_supervisor()
        return True


@dataclass(frozen=True, slots=True)
class _Ask:
    """A request, and the facts with it."""

    step: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Pause:
    """The command has come to a step."""

    step: str


class Command:
    """One process of the command."""

    def __init__(self, world: Simulation, change: Change, tries: int, number: int) -> None:
        self.world = world
        self.change = change
        self.living = True
        self.asleep_until_ns = 0
        self.who = f"admin-{number}"
        self._tries = tries
        self._token = f"t{number}"
        self.loaded: dict[str, Files] = {}
        """The files that the processes of the next version have loaded."""
        self.stands = False
        """The current version has ended."""
        self._written: list[str] = []
        self._incarnation = 0
        self._cancelled = False
        """The supervisor has answered that the change cannot be committed any more."""
        self._procedure = self._upgrade()
        self._asking: tuple[_Ask, int, int] | None = None
        """The request that waits for an answer, the number of the wait, and when the command gives up."""
        self._waits = 0
        self._ending = self._troubled = False

    def begin(self) -> None:
        """Start the command, and its thread that renews the change."""
        self.world.add_to_story("world", f"change {self.who}")
        self._renew()
        self._continue(None)

    def hear(self, answer: dict[str, Any]) -> None:
        """An answer has arrived; one to an earlier request is ignored."""
        if not self.living or self._asking is None:
            return
        if self._asleep(lambda: self.hear(answer)):
            return
        ask = self._asking[0]
        if answer.get("step", ask.step) != ask.step:
            return
        self._asking = None
        if answer.get("ok"):
            self._continue(answer)
        else:
            self._continue(Refused(str(answer.get("error"))))

    # -- the procedure (`deploy.changes.next_version.upgrade`) ---------------------------------------------------

    def _upgrade(self) -> Generator[_Ask | _Pause, Any, None]:
        world = self.world
        yield _Pause("facts")
        facts = yield _Ask(FACTS)
        incarnation = self._incarnation = int(facts["incarnation"]) + LATER
        yield _Pause("prepare")
        tasks = [task.name for task in world.topology.tasks]
        yield _Ask(PREPARE, {"tasks": tasks, "rollback": "", "incarnation": incarnation})
        for step in ("follow", "follow again"):
            yield _Pause(step)
            epoch = max(world.disk.manifests, default=0)
            if not epoch:
                raise Refused("the job has not completed a checkpoint yet")
            files = self._copied(epoch, incarnation)
            lists = {task: [list(file) for file in each] for task, each in files.items()}
            yield _Ask(FOLLOW, {"epoch": epoch, "files": lists})
            self.loaded = files
        yield _Pause("stand")
        answer = yield _Ask(STAND)
        if int(answer["incarnation"]) >= incarnation:
            raise Refused("its tasks have failed too often meanwhile")
        self.stands = True
        yield _Pause("stores")
        epoch = max(world.disk.manifests)
        yield from self._open_stores(epoch, incarnation)
        yield _Pause("files")
        world.changes.prepared = self._prepared(epoch, incarnation)
        yield _Pause("commit")
        try:
            yield _Ask(COMMIT)
        except Refused:
            if not self._committed:  # otherwise, the supervisor has answered a request that was repeated
                raise
        yield _Pause("over")

    def _copied(self, epoch: int, incarnation: int) -> dict[str, Files]:
        """Return copies of the files of a checkpoint as files of the next version."""
        disk, copied = self.world.disk, dict[str, Files]()
        manifest = disk.manifests.get(epoch)
        if manifest is None or any(name not in disk.files for files in manifest.values() for name, _, _ in files):
            raise Refused(f"checkpoint {epoch} is not there any more")
        for task, files in manifest.items():
            copies = []
            for name, _, _ in files:
                copy = f"{name.rpartition('-i')[0]}-i{incarnation}.snap"
                copies.append(disk.write(copy, disk.files[name], self.world.clock.now_ns))
                self._written.append(copy)
            copied[task] = tuple(copies)
        return copied

    def _open_stores(self, epoch: int, incarnation: int) -> Generator[_Ask | _Pause, Any, None]:
        """Open the stores for the next version (`deploy.savepoints.upgrading.open_stores`)."""
        world = self.world
        for channel, store in world.stores.items():
            if not store.reachable(world.clock.now_ns):
                raise Unavailable(f"the store of {store.task}")
            self.world.changes.opened = max(self.world.changes.opened, incarnation)
            state = store.open(incarnation)
            source = world.topology.tasks[world.topology.channels[channel].source]
            cut = Cut.unpack(world.durable(world.disk.manifests[epoch][source.name][-1])[0])
            if not store.requests and state.next != cut.outputs[channel][0]:
                raise Refused(f"the store of {store.task} has {state.next} rows, not {cut.outputs[channel][0]}")
            yield _Pause("")
        for store in world.stores.values():
            store.truncate(epoch, incarnation)
            if not store.requests:
                account = store.account
                store.write(Bundle(account.next, 0, b"", account.digest, epoch, incarnation, (), depends=()))
            yield _Pause("")

    def _prepared(self, epoch: int, incarnation: int) -> Prepared:
        """Return what belongs into `change/` (`deploy.savepoints.upgrading.prepare`)."""
        files = self._copied(epoch, incarnation)
        lists = {task: [list(file) for file in each] for task, each in files.items()}
        prepared = Prepared(epoch, incarnation, files, [])
        prepared.append([
            {"kind": "changed", "incarnation": incarnation, "savepoint": f"{epoch}-run", "stores": {}, "left": {}},
            {"kind": "savepoint", "epoch": epoch, "final": True},
            {"kind": "checkpoint", "count": 0, "epoch": epoch, "files": lists, "took_ms": 0.0},
        ])  # fmt: skip
        return prepared

    # -- its process --------------------------------------------------------------------------------------

    def _continue(self, answer: Any) -> None:
        """Perform the procedure up to its next request or pause."""
        if not self.living or self.world.ended is not None:
            return
        try:
            refused = isinstance(answer, Refused)
            request = self._procedure.throw(answer) if refused else self._procedure.send(answer)
        except StopIteration:
            self.end()
        except (Refused, CausalError) as problem:
            self._fail(problem)
        else:
            if isinstance(request, _Ask):
                self._ask(request)
            else:
                self._come_to(request.step)

    def _come_to(self, step: str) -> None:
        """Pause before a step, at which something may go wrong."""
        world, change = self.world, self.change
        pause_ns = world.rng.randint(0, change.pause_ms * MS)
        if change.trouble and change.step == step:
            world.clock.after(change.after_ms * MS, self._trouble)
        world.clock.after(pause_ns, lambda: self._awake(lambda: self._continue(None)))

    def _awake(self, then: Any) -> None:
        if not self._asleep(lambda: self._awake(then)):
            then()

    def _asleep(self, then: Any) -> bool:
        """Return whether the process is suspended; `then` is called when it continues."""
        if self.asleep_until_ns <= self.world.clock.now_ns:
            return False
        self.world.clock.at(self.asleep_until_ns, then)
        return True

    def _trouble(self) -> None:
        world, change, trouble = self.world, self.change, self.change.trouble
        if world.ended is not None or not self.living:
            return
        self._troubled = True
        world.applied[f"change {trouble}"] += 1
        world.add_to_story("world", f"{trouble} at {change.step}")
        if trouble == DIES:
            self.die()
        elif trouble == SLEEPS:
            self.asleep_until_ns = world.clock.now_ns + change.extent * SLEEP_MS_MAX * MS // 400
        elif trouble == CANCELS:
            self._fail(Refused("Ctrl-C"))
        elif trouble == COMMIT_DIES:
            world.changes.commit_dies = change.extent % 5
        elif trouble == "next":
            idle = [p for p in world.processes.values() if p.living and p.task is None and world.is_of_next(p.slot)]
            for process in idle[change.who % max(1, len(idle)) :][: 1 + change.extent % 2]:
                world.end(process, None)
        else:
            kind = "kill" if trouble == "task" else trouble
            world.apply(Fault(kind, 0, change.who, change.extent))

    def die(self) -> None:
        """Its process is killed: nothing is cancelled or removed."""
        if self.living:
            self.living = False
            self.world.changes.ended += 1
            self._next()

    def _next(self) -> None:
        changes = self.world.changes
        if changes.command is self:
            changes.command = None
            changes.next()

    def _fail(self, problem: Exception) -> None:
        """Cancel what has not been committed, and end."""
        self.world.note(self.who, f"{problem}")
        self._procedure.close()
        if self._ending:
            self.end()
            return
        self._ending = True
        again = any(passing in str(problem) for passing in PASSING) and self._tries < TRIES_MAX
        if again:
            change, tries = replace(self.change, trouble="" if self._troubled else self.change.trouble), self._tries + 1
            self.world.clock.after(TRY_AGAIN_NS, lambda: self.world.changes.run(change, tries))
        self._procedure = self._cancel()
        self._continue(None)

    def _cancel(self) -> Generator[_Ask | _Pause, Any, None]:
        with suppress(Refused):
            yield _Ask(CANCEL)
        self._cancelled = True

    def end(self) -> None:
        """End the process, after files were removed that no version needs."""
        world = self.world
        if self._ending and self.may_remove():
            world.changes.prepared = None
            for name in self._written:
                world.disk.files.pop(name, None)
        self.living = False
        world.changes.ended += self._ending
        self._next()

    def may_remove(self) -> bool:
        """Return whether the change was not committed, and cannot be any more."""
        return self._cancelled and not self._committed

    @property
    def _committed(self) -> bool:
        return self._incarnation > 0 and self.world.changes.incarnation == self._incarnation

    # -- its requests ---------------------------------------------------------------------------------------

    def _ask(self, ask: _Ask) -> None:
        self._waits += 1
        gives_up_ns = self.world.clock.now_ns + WITHIN_NS.get(ask.step, WITHIN_NS_MAX)
        self._asking = (ask, self._waits, gives_up_ns)
        self._send_again(self._waits)

    def _send_again(self, wait: int) -> None:
        """Send the request, and once more if there is no answer."""
        if not self.living or self._asking is None or self._asking[1] != wait or self.world.ended is not None:
            return
        if self._asleep(lambda: self._send_again(wait)):
            return
        ask, _, gives_up_ns = self._asking
        if self.world.clock.now_ns >= gives_up_ns:
            self._asking = None
            self._fail(Unavailable(f"no answer to {ask.step}"))
            return
        self._send(self.who, ask.step, ask.facts)
        self.world.clock.after(AGAIN_NS, lambda: self._send_again(wait))

    def _renew(self) -> None:
        if not self.living or self.world.ended is not None:
            return
        if not self._asleep(self._renew):
            self._send(f"{self.who}-renewing", RENEW, {})
            self.world.clock.after(RENEW_NS, self._renew)

    def _send(self, sender: str, step: str, facts: Mapping[str, Any]) -> None:
        rng, data = (
            self.world.rng,
            pack("admin", verb="change", arguments={"step": step, "change": self._token, **facts}),
        )
        late_ns = rng.randint(0, LATE_NS_MAX) if rng.random() < LATE else 0
        for _ in range(1 + (rng.random() < TWICE)):
            self.world.to_supervisor(sender, data, late_ns)
