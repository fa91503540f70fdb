"""A worker process on virtual time: production membership and task, with simulated peers.

Its loop does what those of `operators.runtime.worker` and `causal.shell.driver` do, in the same order.  It can be
killed between any two effects, paused, and left alive as a zombie.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from causal.commands import HighestTerm
from causal.cut import Cut
from causal.effects import Effect
from causal.errors import DEFINITE, CausalError, CorruptData, Fenced, Superseded, Unavailable
from causal.events import Event, FrameReceived, Started, Turn
from causal.logs.dissemination import NO_KNOWLEDGE, Knowledge
from causal.task.task import TaskProtocol
from causal.task.vitals import Vitals
from operators.runtime.backlog import Backlog
from operators.runtime.hot_standby import HotStandby, Promotion
from operators.runtime.membership import (
    Act,
    Begin,
    Commanded,
    Dial,
    End,
    Feed,
    Input,
    Load,
    Loaded,
    Membership,
    Place,
    Reported,
    SendReport,
    Start,
    Tick,
    rest_ms,
)
from tests.simulation.clockwork import MS
from tests.simulation.machines import Machine
from tests.simulation.peers import Violated
from tests.simulation.shell import Died, Gone, Links, Shell, SimulatedDisk
from tests.tasks import task_of

if TYPE_CHECKING:
    from tests.simulation.world import Simulation

TURNS_PER_POLL = 8

SLOW_TURN_EVERY_MS, SLOW_TURN_NS = 8, 1_000_000_000
NEVER_NS = 1 << 62


class _Image:
    """The state of a task as files restore it."""

    def __init__(self, world: Simulation, task: int, machine: Machine) -> None:
        self.task = task
        self._world = world
        self._machine = machine
        self._clear()

    def _clear(self) -> None:
        self.cut = Cut()
        self.files: list[tuple[str, int, str]] = []
        self.chain = self._world.code(self.task)

    def load(self, files: tuple[tuple[str, int, str], ...]) -> None:
        if not self._continues(files):
            self._clear()
        for file in files[len(self.files) :]:
            parts = self._read(file)
            self.cut = Cut.unpack(parts[0])
            self.chain.restore(parts[1:])
            self.files.append(file)

    def _continues(self, files: tuple[tuple[str, int, str], ...]) -> bool:
        return list(files[: len(self.files)]) == self.files

    def _read(self, file: tuple[str, int, str]) -> tuple[bytes, ...]:
        """Read a file from this machine, or else from the store that all hosts share."""
        disk = self._machine.disk
        if not self._world.several or disk.has((file,)):
            return disk.read(file)
        parts = self._world.shared.durable(file)
        if parts is None:
            raise CorruptData(f"{file[0]} is missing in the shared store; restore it from a copy")
        return parts

    def has(self, files: tuple[tuple[str, int, str], ...]) -> bool:
        """Return whether none of these files has been removed."""
        if not self._world.several:
            return self._world.disk.has(files)
        unread = files[len(self.files) :] if self._continues(files) else files
        missing = [file for file in unread if not self._machine.disk.has((file,))]
        return all(self._world.shared.durable(file) is not None for file in missing)


class Process:
    """One worker process.

    State: `living` until it ends; a `zombie` lives although it was reported to have ended.  `from_disk` are the events
    with which effects were answered later.
    """

    def __init__(self, world: Simulation, slot: str, pid: int, machine: Machine) -> None:
        self.world = world
        self.machine = machine
        self.host_incarnation = machine.incarnation
        self.slot = slot
        self.pid = pid
        self.living = True
        self.zombie = False
        self.paused_until_ns = 0
        self.mute_until_ns = 0
        """The time until which no message passes between it and the supervisor."""
        self.dies_after: int | None = None
        """Effects left to perform before SIGKILL comes."""
        self.task: TaskProtocol | None = None
        self.shell: Shell | None = None
        self.links, self.disk = Links(self), SimulatedDisk(self)
        scheme = "tcp" if world.scenario.tcp else "ipc"
        self.endpoint, self.remote = f"{scheme}://{slot}", f"tcp://{slot}" if world.several else ""
        self.membership = Membership(
            slot, pid, self.endpoint, world.topology, world.config.heartbeat_ms, self._vitals, self.remote,
            rest_ms(world.config.heartbeat_ms, world.config.heartbeat_timeout_ms),
        )  # fmt: skip
        self._image: _Image | None = None
        self._reported_epoch: int | None = None
        self._answers: list[list[bytes]] = []
        self.hot: HotStandby[_Image] | None = None
        if world.scenario.hot:
            self.hot = HotStandby(
                world.config.fingerprint(world.topology), self._shadow, self.disk.ask, self._shadow_report
            )
        self._loading: Callable[[], None] | None = None
        """The action to take once the state that is being loaded is there."""
        self._loaded_at_ns = 0
        self._fetching = False
        """The shared store, which has a part of that state, may be unavailable: the loop waits for it."""
        self._beginning: int | None = None
        """The epoch whose state is being loaded for the task to begin from."""
        self._later = Backlog()
        """Acts that wait behind it."""
        self._busy_until_ns = self._pulsed_ns = 0
        self._pending_effects: list[Effect] = []
        """Effects of the event that keeps the process busy."""
        self._control: deque[dict[str, Any]] = deque()
        self._terms = HighestTerm()
        self._inbox: deque[tuple[bytes, tuple[bytes, ...]]] = deque()
        self.from_disk: deque[Event] = deque()
        self._poked_ns = -1
        self.poke(0)

    # -- when it runs --------------------------------------------------------------------------------

    def poke(self, delay_ns: int) -> None:
        """Schedule a look in `delay_ns`, or sooner if that is asked for already."""
        at_ns = max(self.world.clock.now_ns + delay_ns, self.paused_until_ns)
        if self._poked_ns < self.world.clock.now_ns or at_ns < self._poked_ns:
            self._poked_ns = at_ns
            self.world.clock.at(at_ns, lambda: self._awake(at_ns))

    def _awake(self, at_ns: int) -> None:
        if not self.living or at_ns != self._poked_ns:
            return
        self._poked_ns = -1
        if self.world.clock.now_ns < self.paused_until_ns:
            self.poke(0)
            return
        if self._busy_until_ns:
            if self.world.clock.now_ns < self._busy_until_ns:
                self._pulse()
                return
            self._busy_until_ns = 0
        self.membership.stir(self.world.clock.now_ns)
        try:
            if self.shell is not None:
                self.shell.perform(self._taken_over())
            self._round()
        except Died:
            self.world.end(self, None)
            return
        except Superseded as problem:
            self.fail(problem)
            return
        except Gone as problem:
            self.fail(Unavailable(str(problem)))
            return
        except Fenced as problem:
            self.world.observer.fenced(self, str(problem))
            self.world.end(self, 0)
            return
        except Violated:
            raise
        except CausalError as problem:
            self.fail(problem)
            return
        if self.living:
            self.poke(self._sleep_ns())

    def _taken_over(self) -> list[Effect]:
        effects, self._pending_effects = self._pending_effects, []
        return effects

    def _pulse(self) -> None:
        """Busy in an event: only the second heartbeat speaks (`causal.process.pulse`)."""
        now_ns, every_ns = self.world.clock.now_ns, self.world.config.heartbeat_ms * MS
        if now_ns >= self.membership.beat_due_ns + every_ns and now_ns >= self._pulsed_ns + every_ns:
            self._pulsed_ns = now_ns
            self.world.report_pulse(self)
        self.poke(min(every_ns, self._busy_until_ns - now_ns))

    def fail(self, problem: CausalError) -> None:
        facts = {"task": self.membership.name, "incarnation": self.membership.incarnation}
        definite = isinstance(problem, DEFINITE)
        failure = {**facts, "error": type(problem).__name__, "message": str(problem), "definite": definite}
        self.world.note(self.slot, f"{type(problem).__name__}: {problem}")
        self.world.report(self, "failed", failure)
        self.world.end(self, 1)

    def _sleep_ns(self) -> int:
        now_ns = self.world.clock.now_ns
        if self._busy_until_ns:
            return min(self._busy_until_ns - now_ns, self.world.config.heartbeat_ms * MS)
        busy = bool(self._control or self._inbox or self.from_disk)
        busy = busy or (self.task is not None and not self.task.idle and not self._waits)
        busy = busy or (self.task is None and self.hot is not None and not self.hot.idle)
        if busy:
            return self.world.rng.randint(2_000, 60_000)
        due = [self.membership.beat_due_ns]
        due += [self._loaded_at_ns] if self._loading is not None else []
        if self._waits:
            due.append(now_ns + 5 * MS)
        elif self.task is not None and self.shell is not None:
            deadline = self.task.next_deadline_ns(now_ns)
            due += [deadline] if deadline is not None else []
            partitions, began_ns = self.world.partitions, self.world.began_ns
            due += [partitions[c].ready_ns(read.position, began_ns) for c, read in self.shell.pending.items()]
        return max(1_000, min(due) - now_ns)

    def _round(self) -> None:
        """One turn of the worker's loop (`Worker`, `TaskDriver.work`); how much it finds ready is chance."""
        rng = self.world.rng
        self._load_more()
        if self._fetching and self._busy_until_ns:
            return
        self._handle(Tick())
        while self._control:
            command = self._terms.read_command(self._control.popleft())
            if command is not None:
                self._handle(Commanded(command))
        for _ in range(rng.randint(1, 6)):
            if not self._inbox or not self.living:
                break
            link, frame = self._inbox.popleft()
            if self.task is not None:
                self._feed(FrameReceived(link, list(frame)))
            elif self.hot is not None:
                self.hot.receive(link, list(frame), self.world.clock.now_ns)
        if self.hot is not None and self.task is None:
            self._perform_hot(self.hot)
        while self.from_disk:
            answer = self.from_disk.popleft()
            if self.task is None and self.hot is not None:
                self.hot.answered(answer, self.world.clock.now_ns)
            else:
                self._feed(answer)
        if self.task is None or self.shell is None:
            return
        self.shell.read_again(NEVER_NS)
        if self.shell.waiting and not self.shell.retry():
            return
        for _ in range(rng.randint(1, TURNS_PER_POLL)):
            # Now and then a turn is said to have taken long, so that what follows is taken in small parts.
            slow = self.world.clock.now_ns // 1_000_000 % SLOW_TURN_EVERY_MS == 0
            self._feed(Turn(SLOW_TURN_NS if slow else 0))
            if self.task.idle or self._busy_until_ns:
                return

    def _shadow(self, image: _Image) -> TaskProtocol:
        """A task that is performed from the echo of another process."""
        world = self.world
        task = task_of(
            world.topology, image.task, 0, world.config, image.chain, world.live, image.cut, image.files,
            lambda line: world.note(self.slot, line),
        )  # fmt: skip
        task.replayed_per_turn = world.rng.choice((1, 3, task.replayed_per_turn))
        task.small_per_turn = min(task.small_per_turn, task.replayed_per_turn)
        self._shadow_before = world.observer.before(task)
        world.observer.performances.watch(task)
        return task

    def _shadow_report(self, line: str, blamed: bool) -> None:
        self.world.note(self.slot, line)
        self.world.observer.shadow_lost(line, blamed)
        self.from_disk.clear()
        self.disk.clear()

    def _perform_hot(self, hot: HotStandby[_Image]) -> None:
        acknowledged = hot.turn(self.world.clock.now_ns)
        if acknowledged is not None:
            self.links.reply(*acknowledged)
        for greeting in hot.greetings(self.world.clock.now_ns):
            self.links.dial(greeting.task, greeting.endpoint)
            if greeting.parts:
                self.links.send(greeting.task, greeting.parts)
        if hot.follows != self._reported_epoch and self._loading is None:
            self._reported_epoch = hot.follows
            self._handle(Loaded(hot.follows))

    @property
    def performing(self) -> TaskProtocol | None:
        """The task, or what a hot standby performs."""
        return self.task if self.task is not None or self.hot is None else self.hot._shadow.task

    @property
    def _waits(self) -> bool:
        """Whether effects of its task wait for a store."""
        return self.shell is not None and self.shell.waiting

    # -- the control plane -----------------------------------------------------------------------------

    def hear(self, message: dict[str, Any]) -> None:
        """A message of the supervisor has arrived."""
        if not self.living or self.world.clock.now_ns < self.mute_until_ns:
            return
        self._control.append(message)
        self.poke(0)

    def receive(self, link: bytes, frame: tuple[bytes, ...]) -> None:
        """A frame has arrived."""
        self._inbox.append((link, frame))
        self.poke(0)

    def report(self, event: Reported) -> None:
        """The task has a report for the supervisor."""
        self._handle(event)

    def _handle(self, event: Input) -> None:
        for act in self.membership.handle(event, self.world.clock.now_ns):
            if not self._later.takes(act, self._loading is not None):
                _ACTS[type(act)](self, act)

    def _load_more(self) -> None:
        """Loading takes a while, in which the process beats; then what was put off follows, up to the next state."""
        while self.living and (self._loading is not None or self._later):
            if self._loading is not None:
                if self.world.clock.now_ns < self._loaded_at_ns:
                    return
                if self._fetching and not self.world.shared.answers(self.machine.name):
                    self._busy_until_ns = self.world.clock.now_ns + self.world.rng.randint(20, 200) * MS
                    return
                self._fetching = False
                loaded, self._loading = self._loading, None
                loaded()
            else:
                act = self._later.next()
                _ACTS[type(act)](self, act)

    def _takes(self, loaded: Callable[[], None]) -> None:
        """Call `loaded` when the state has been read."""
        load_ms = self.world.scenario.load_ms
        if not load_ms and not self.world.several:
            loaded()
            return
        self._loading, self._fetching = loaded, self.world.several
        self._loaded_at_ns = self.world.clock.now_ns + self.world.rng.randint(0, load_ms * MS)
        if self.world.several:
            self._loaded_at_ns += self.world.shared.takes_ns()

    def _vitals(self) -> Vitals:
        if self.task is None or self.shell is None:
            shadow = None if self.hot is None else self.hot.facts
            return Vitals(shadow=shadow) if self._beginning is None else Vitals("loading", self._beginning)
        return Vitals(
            self.shell.reported_state,
            self.task.cursor.epoch,
            counters=self.task.counters(),
            first_record_ns=self.shell.first_record_ns or None,
            rollback=self.task.inquiry.rollback.number,
            lost=tuple(self.task.lost),
            committed=self.task.channels.committed,
            wanted_epoch=self.task.retention.wanted_epoch,
            unchanged=self.task.execution.step.unchanged,
        )

    def _send_report(self, act: SendReport) -> None:
        self.world.report(self, act.kind, act.facts)

    def _load(self, act: Load) -> None:
        if self.hot is not None:
            if self.hot.follow(act.incarnation, act.epoch, act.files, act.neighbours):
                return
            self._image = self.hot.take_image()
        if self._image is None or self._image.task != act.task:
            self._image = _Image(self.world, act.task, self.machine)
        image = self._image
        self._takes(lambda: self._followed(act, image))

    def _followed(self, act: Load, image: _Image) -> None:
        if not image.has(act.files):
            self._image = None  # a later checkpoint has replaced it: the supervisor says which one
            return
        image.load(act.files)
        if self.hot is not None:
            self._image, self._reported_epoch = None, image.cut.epoch
            self.hot.loaded(image, self.world.clock.now_ns)
        self._handle(Loaded(image.cut.epoch))

    def _promoted(self, hot: HotStandby[_Image], act: Begin) -> bool:
        """Become the task immediately, if the hot standby can."""
        promotion = Promotion(act.incarnation, act.epoch, act.files, act.rollback)
        task = hot.promote(promotion, self.world.clock.now_ns)
        if task is None:
            for neighbour, endpoint in hot.kept:
                self.links.dial(neighbour, endpoint)
            hot.kept.clear()
            self._image = hot.take_image()
            return False
        self._answers = hot.answers
        self.task, self.shell = task, Shell(self, task, self._handled)
        self.world.observer.took_over(self, task, act.task, hot.incarnation, self._shadow_before)
        return True

    def _begin(self, act: Begin) -> None:
        if self.hot is not None and self.task is None and self._promoted(self.hot, act):
            return
        image = self._image if self._image is not None and self._image.task == act.task else None
        image = image or _Image(self.world, act.task, self.machine)
        self._image = None
        retained = NO_KNOWLEDGE if self.task is None else self.task.retained(act.rollback)
        self.from_disk.clear()
        self.disk.clear()
        self.task, self.shell, self._beginning = None, None, act.epoch
        self._takes(lambda: self._begun(act, image, retained))

    def _begun(self, act: Begin, image: _Image, retained: Knowledge) -> None:
        self._beginning = None
        image.load(act.files)
        if image.cut.epoch != act.epoch:
            raise Violated(f"promotion: {self.slot} is promoted at epoch {act.epoch}, its files hold {image.cut.epoch}")
        task = task_of(
            self.world.topology, act.task, act.incarnation, self.world.config, image.chain, self.world.live,
            image.cut, image.files, lambda line: self.world.note(self.slot, line), act.rollback, retained,
        )  # fmt: skip
        task.replayed_per_turn = self.world.rng.choice((1, 3, task.replayed_per_turn))
        task.small_per_turn = min(task.small_per_turn, task.replayed_per_turn)
        self.world.observer.performances.watch(task)
        self._serve(task, act.task)

    def _serve(self, task: TaskProtocol, index: int) -> None:
        self.task, self.shell = task, Shell(self, task, self._handled)
        self.world.observer.began(self, task, index)

    def _start(self, act: Start) -> None:
        self._feed(Started())
        answers, self._answers = self._answers, []
        for parts in answers:
            self._feed(FrameReceived(b"", parts))
        self._handle(Tick())

    def _dial(self, act: Dial) -> None:
        if self.hot is None or self.task is not None or not self.hot.keeps(act.task, act.endpoint):
            self.links.dial(act.task, act.endpoint)

    def _place(self, act: Place) -> None:
        self.links.place(act.task, act.endpoint)

    def _fed(self, act: Feed) -> None:
        if self.task is not None:
            self._feed(act.event)

    def _end(self, act: End) -> None:
        self.world.end(self, 0)

    # -- the task ------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        if self.shell is not None and self.living:
            self.shell.feed(event)

    def _handled(self, event: Event) -> list[Effect]:
        """Make the task handle an event; the effects of one that takes a while are performed when that is over."""
        task, observer = self.task, self.world.observer
        if task is None or not self.living:
            return []
        before = observer.before(task)
        effects = task.handle(event, self.world.clock.now_ns)
        observer.after(self, task, event, before)
        self.world.trace(self, event, effects)
        spent_ns = getattr(task.execution.chain, "spent_ns", 0)
        if not spent_ns:
            return effects
        task.execution.chain.spent_ns = 0  # type: ignore[attr-defined]
        self._busy_until_ns, self._pending_effects = self.world.clock.now_ns + spent_ns, effects
        return []

    def answer_later(self, task: TaskProtocol | None, event: Event) -> None:
        """An effect of `task` is answered; the answer is lost if the task does not run here any more."""
        if self.living and self.performing is task:
            self.from_disk.append(event)
            self.poke(0)


_ACTS: dict[type[Act], Callable[[Process, Any], None]] = {
    SendReport: Process._send_report,
    Load: Process._load,
    Begin: Process._begin,
    Start: Process._start,
    Dial: Process._dial,
    Place: Process._place,
    Feed: Process._fed,
    End: Process._end,
}
