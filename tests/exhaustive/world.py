"""The actions that can happen in a tiny job, as steps between states: deliveries, turns, disk, supervisor, faults.

Everything is immediate but what is an action here; so an order of actions is an order of everything that matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from causal.config import JobConfig
from causal.ids import OUTSIDE, TaskIndex
from causal.logs.dissemination import NO_KNOWLEDGE, Knowledge
from causal.logs.rollback import NO_ROLLBACK, OrphanAnswer, Rollback, TaskRollback, decide
from causal.topology import FULL_DEPTH, Topology
from tests.exhaustive.cores import Cores, EffectValue, EventValue
from tests.exhaustive.state import Draft, End, Life, State, Written
from tests.exhaustive.stores import Stores

Action = tuple[Any, ...]


@dataclass(frozen=True)
class Job:
    """A tiny job, and how much may go wrong.

    Attributes:
        records: per partition.
        batch: elements that one event may take.
        crashes: processes that may die, of the tasks in `mortal` (empty: of all).
        zombies: instead of dying they may be replaced while they still run.
        hosts: tasks that share a host: a crash is the death of one host, with all its tasks in the same instant.
        losses: frames that may be lost; asks: checkpoints that may be asked for.
        hurries: how often the clock may run ahead of frames that are on their way, so that they are asked for again.
        travelling: what the supervisor says to a process takes time, like frames.
        timers: operators set one; betrays: the task whose operator is nondeterministic behind the runtime's back;
            marks: operators give watermarks.
        flush: determinants go to stable storage in the background.
    """

    name: str
    topology: Topology
    records: int = 2
    depth: int = FULL_DEPTH
    batch: int = 2
    crashes: int = 1
    mortal: tuple[int, ...] = ()
    zombies: bool = False
    hosts: tuple[tuple[int, ...], ...] = ()
    losses: int = 0
    asks: int = 0
    hurries: int = 0
    travelling: bool = False
    timers: bool = False
    betrays: int = -1
    marks: bool = False
    flush: bool = False


class World:
    """The rules of one tiny job."""

    def __init__(self, job: Job, audit: bool = False) -> None:
        self.job = job
        self.topology = job.topology
        config = JobConfig(
            run="r", name="w", pipeline="p", sharing_depth=job.depth, channel_window_bytes=1 << 16,
            batch_elements_max=job.batch, determinant_flush="background" if job.flush else "off",
        )  # fmt: skip
        self.cores = Cores(job.topology, config, job.betrays, job.timers, job.marks, audit)
        self.stores = Stores()
        self.tasks = [TaskIndex(index) for index in range(len(job.topology.tasks))]
        self.sinks = [task for task in self.tasks if self.topology.is_sink(task)]
        self.up = {task: self.topology.upstream(task) for task in self.tasks}
        self.down = {task: self.topology.downstream(task) for task in self.tasks}
        self.partition: dict[int, int] = {c.id: c.partition for c in self.topology.channels if c.source == OUTSIDE}
        self._no_rollback = self._rollback_number(NO_ROLLBACK)

    def _rollback_number(self, rollback: Rollback) -> int:
        for number, value in enumerate(self.cores.values):
            if value == rollback:
                return number
        self.cores.values.append(rollback)
        return len(self.cores.values) - 1

    def first(self) -> State:
        """Return the state in which all tasks have just been started."""
        count = len(self.tasks)
        outside = [c for c in self.topology.channels if c.target == OUTSIDE]
        stores = tuple((c.id, self.stores.empty(self.topology.tasks[c.source].name)) for c in outside)
        no_snapshots = (-1,) * count
        draft = Draft(
            State((), (0,) * count, (), (), stores, (), no_snapshots, no_snapshots, 0, 0, self.job.crashes,
                  self.job.losses, self.job.asks, self.job.hurries, 0, rollback=self._no_rollback)
        )  # fmt: skip
        for task in self.tasks:
            self._promote(draft, task)
        return draft.state()

    def done(self, state: State) -> bool:
        """Return whether every sink task has reported that it has finished, or the job has stopped with the right
        error.
        """
        if state.stopped:
            return True
        present = dict(state.processes)
        if any((task, state.incarnations[task]) not in present for task in self.tasks):
            return False
        return all(self.cores.facts[present[task, state.incarnations[task]]].finished for task in self.sinks)

    # -- what can happen -------------------------------------------------------------------------------

    def actions(self, state: State) -> Iterator[tuple[Action, bool]]:
        """Yield each action, and whether it must happen some time if it stays possible."""
        fair = False
        for action, must in self._progress(state):
            fair = fair or must
            yield action, must
        if not fair:
            yield ("wait",), True
        yield from ((action, False) for action in self._faults(state))

    def _progress(self, state: State) -> Iterator[tuple[Action, bool]]:
        present = {(task, state.incarnations[task]) for task in self.tasks}
        living = {life for life, _ in state.processes}
        for end, _ in state.links:
            yield ("deliver", end), end[:2] in present & living and end[2:] in present
        for life, number in state.processes:
            after, effects = self.cores.step(number, ("turn",), state.ticks)
            if after != number or effects:
                yield ("turn", life), life in present
        for life, _ in state.orders:
            yield ("read", life), life in present
        for each in state.writing:
            yield ("disk", each[:3]), each[:2] in present
        for task, incarnation, _ in state.flushing:
            yield ("flush", (task, incarnation)), (task, incarnation) in present
        for life in sorted(present - living):
            yield ("promote", life[0]), True
        if state.asked > state.complete and -1 not in state.acks:
            yield ("complete",), True
        if state.asks and state.asked == state.complete:
            yield ("ask",), False
        yield from self._supervision(state, present <= living)

    def _supervision(self, state: State, all_live: bool) -> Iterator[tuple[Action, bool]]:
        lost = self._lost(state)
        if lost and lost != state.lost:
            yield ("inquire",), True
        answered = {task for task, incarnation, _ in state.findings if incarnation == state.incarnations[task]}
        if state.lost and all_live and len(answered) == len(self.tasks):
            yield ("decide",), True

    def _lost(self, state: State) -> tuple[Any, ...]:
        present = [number for life, number in state.processes if life[1] == state.incarnations[life[0]]]
        return tuple(sorted({each for number in present for each in self.cores.facts[number].lost}))

    def _faults(self, state: State) -> Iterator[Action]:
        if state.crashes:
            yield from self._losses_of_hosts(state)
            for life, number in state.processes if not self.job.hosts else ():
                if life[1] != state.incarnations[life[0]] or life[0] not in (self.job.mortal or self.tasks):
                    continue
                yield ("crash", life)
                if self.job.zombies:
                    yield ("usurp", life[0])
                _, effects = self.cores.step(number, ("turn",), state.ticks)
                for place in _cuts(effects):
                    yield ("turn", life, place)
        if state.hurries:
            yield ("hurry",)
        if state.losses:
            yield from (("lose", end) for end, _ in state.links)

    def _losses_of_hosts(self, state: State) -> Iterator[Action]:
        present = {life[0] for life, _ in state.processes if life[1] == state.incarnations[life[0]]}
        for host in self.job.hosts:
            if present.intersection(host):
                yield ("host", host)
                if self.job.zombies:
                    yield ("cut-off", host)

    # -- what it makes of a state ----------------------------------------------------------------------

    def after(self, state: State, action: Action) -> tuple[State, list[str]]:
        """Return (the next state, what went wrong on the way)."""
        draft = Draft(state)
        _ACTIONS[action[0]](self, draft, *action[1:])
        self._forget_dead_letters(draft)
        return draft.state(), draft.broken

    def _deliver(self, draft: Draft, end: End) -> None:
        frame, *rest = draft.links[end]
        draft.links[end] = tuple(rest)
        self._feed(draft, end[2:], self._frame(end, frame))

    def _frame(self, end: End, frame: int) -> EventValue:
        link = f"{end[0]}/{end[1]}".encode() if end[0] in self.up[TaskIndex(end[2])] else b""
        return ("frame", link, frame)

    def _lose(self, draft: Draft, end: End) -> None:
        draft.links[end] = draft.links[end][1:]
        draft.changes["losses"] = draft.base.losses - 1

    def _turn(self, draft: Draft, life: Life, dies_before: int = -1) -> None:
        self._feed(draft, life, ("turn",), dies_before)
        if dies_before >= 0:
            self._spend_crash(draft)
            self._report_death(draft, life)

    def _read(self, draft: Draft, life: Life) -> None:
        event, *rest = draft.orders[life]
        draft.orders[life] = tuple(rest)
        self._feed(draft, life, event)

    def _disk(self, draft: Draft, writing: tuple[int, int, int]) -> None:
        task, incarnation, epoch = writing
        parts = next(each[3] for each in draft.writing if each[:3] == writing)
        draft.writing.remove((*writing, parts))
        _, effects = self.cores.step(draft.processes[task, incarnation], ("written", epoch), draft.base.ticks)
        present = incarnation == draft.incarnations[task]
        if present and ("ready", epoch) in effects and epoch == draft.base.complete + 1:
            draft.acks[task] = parts
        self._feed(draft, (task, incarnation), ("written", epoch))

    def _flush(self, draft: Draft, life: Life) -> None:
        """A write that was asked for is on disk.

        A directory that a younger incarnation has removed takes it, and nothing reads it.
        """
        asked = next(each for each in draft.flushing if each[:2] == life)
        draft.flushing.remove(asked)
        if life in draft.stable:
            files = dict(draft.stable[life])
            for _, epoch, _, written in asked[2]:
                files[epoch] = files.get(epoch, b"") + written
            draft.stable[life] = tuple(sorted(files.items()))
        self._feed(draft, life, ("stable-written", _ends(asked[2])))

    def _keep_stable(self, draft: Draft, life: Life, effect: EffectValue, waiting: list[EventValue]) -> None:
        task, incarnation = life
        if effect[0] == "stable-append":
            draft.flushing.append((*life, effect[1]))
        elif effect[0] == "stable-begin":
            draft.stable = {key: files for key, files in draft.stable.items() if key[0] != task or key[1] > incarnation}
            draft.stable[life] = tuple((epoch, content) for _, epoch, _, content in effect[1])
            waiting.append(("stable-written", _ends(effect[1])))
        else:
            begun = [key for key in draft.stable if key[0] == task and key[1] <= incarnation]
            files = draft.stable[max(begun)] if begun else ()
            waiting.append(("stable-read", tuple((task, epoch, 0, each) for epoch, each in files)))

    def _complete(self, draft: Draft) -> None:
        epoch = draft.base.asked
        draft.restore, draft.acks = draft.acks, [-1] * len(self.tasks)
        draft.changes["complete"] = epoch
        for task in self.tasks:
            self._order(draft, task, ("completed", epoch))

    def _ask(self, draft: Draft) -> None:
        epoch = draft.base.complete + 1
        draft.changes |= {"asked": epoch, "asks": draft.base.asks - 1}
        for task in self.tasks:
            if self.topology.is_source(task):
                self._order(draft, task, ("ask", epoch))

    def _wait(self, draft: Draft) -> None:
        draft.changes["ticks"] = draft.base.ticks + 1

    def _hurry(self, draft: Draft) -> None:
        self._wait(draft)
        draft.changes["hurries"] = draft.base.hurries - 1

    def _spend_crash(self, draft: Draft) -> None:
        draft.changes["crashes"] = draft.base.crashes - 1

    def _crash(self, draft: Draft, life: Life) -> None:
        draft.end(life)
        self._spend_crash(draft)
        self._report_death(draft, life)

    def _host_dies(self, draft: Draft, host: tuple[int, ...]) -> None:
        lives = [life for life in map(draft.present, host) if life is not None]
        for life in lives:
            draft.end(life)
        self._spend_crash(draft)
        for life in lives:
            self._report_death(draft, life)

    def _cut_off(self, draft: Draft, host: tuple[int, ...]) -> None:
        """Its tasks are promoted elsewhere; those that it has still run."""
        self._spend_crash(draft)
        for task in map(TaskIndex, host):
            if draft.present(task) is not None:
                self._promote(draft, task)

    def _report_death(self, draft: Draft, life: Life) -> None:
        for other in self.up[TaskIndex(life[0])]:
            self._order(draft, other, ("down", *life))

    def _usurp(self, draft: Draft, task: TaskIndex) -> None:
        self._spend_crash(draft)
        self._promote(draft, task)

    def _promote(self, draft: Draft, task: TaskIndex, retained: Knowledge = NO_KNOWLEDGE) -> None:
        draft.incarnations[task] += 1
        draft.acks[task] = -1
        draft.findings.pop(task, None)
        life = (int(task), draft.incarnations[task])
        rollback = draft.changes.get("rollback", draft.base.rollback)
        draft.processes[life] = self.cores.begin(*life, draft.restore[task], rollback, retained)
        neighbours = [other for other in (*self.up[task], *self.down[task]) if draft.present(other)]
        for other in neighbours:
            self._feed(draft, life, ("peer", other, draft.incarnations[other]))
        self._feed(draft, life, ("started",))
        for other in neighbours:
            self._order(draft, other, ("peer", *life))
        if draft.base.asked > draft.base.complete and self.topology.is_source(task):
            self._order(draft, task, ("ask", draft.base.asked))
        lost = draft.changes.get("lost", draft.base.lost)
        if lost:
            self._order(draft, task, ("inquired", draft.base.inquiry, lost))

    def _inquire(self, draft: Draft) -> None:
        lost, number = self._lost(draft.base), draft.base.inquiry + 1
        draft.changes |= {"lost": lost, "inquiry": number}
        draft.findings = {}
        for task in self.tasks:
            self._order(draft, task, ("inquired", number, lost))

    def _decide(self, draft: Draft) -> None:
        """Roll tasks back, each in its process and with its knowledge (D9)."""
        state = draft.base
        findings: dict[int, OrphanAnswer] = {task: self.cores.values[finding] for task, _, finding in state.findings}
        stands = decide(findings)
        retreats = {task: TaskRollback(state.incarnations[task] + 1, stands[task]) for task in stands}
        before = tuple(each for each in self.cores.values[state.rollback].lost if each[2] >= state.complete)
        rollback = Rollback(state.inquiry, (*before, *((state.inquiry, *each) for each in state.lost)), retreats)
        number = self._rollback_number(rollback)
        draft.changes |= {"rollback": number, "lost": ()}
        draft.findings = {}
        for task in self.tasks:
            if task not in retreats:
                self._order(draft, task, ("kept", number))
        for back in sorted(retreats):
            life = (back, state.incarnations[back])
            retained = self.cores.retained(draft.processes[life], rollback)
            draft.end(life)
            self._promote(draft, TaskIndex(back), retained)

    # -- within one action -----------------------------------------------------------------------------

    def _order(self, draft: Draft, task: TaskIndex, event: EventValue) -> None:
        """The supervisor says something to a task, if it lives."""
        life = draft.present(task)
        if life is None:
            return
        if self.job.travelling:
            draft.orders[life] = (*draft.orders.get(life, ()), event)
        else:
            self._feed(draft, life, event)

    def _feed(self, draft: Draft, life: Life, event: EventValue, dies_before: int = -1) -> None:
        """Perform one event, and the events with which the outside answers immediately."""
        waiting = [event]
        while waiting and life in draft.processes:
            number, effects = self.cores.step(draft.processes[life], waiting.pop(0), draft.base.ticks)
            draft.processes[life] = number
            for place, effect in enumerate(effects):
                if place == dies_before:
                    draft.end(life)
                if life not in draft.processes:
                    return
                self._perform(draft, life, effect, waiting)

    def _perform(self, draft: Draft, life: Life, effect: EffectValue, waiting: list[EventValue]) -> None:
        kind = effect[0]
        if kind == "send":
            _, target, frame = effect
            known = self.cores.facts[draft.processes[life]].peers[target]
            if (target, known) in draft.processes:
                draft.send((*life, target, known), frame)
        elif kind == "reply":
            task, incarnation = map(int, effect[1].split(b"/"))
            if (task, incarnation) in draft.processes:
                draft.send((*life, task, incarnation), effect[2])
        elif kind == "read":
            waiting.append(self._records(effect[1], effect[2]))
        elif kind == "snapshot":
            draft.writing.append((*life, effect[1], effect[2]))
        elif kind.startswith("stable"):
            self._keep_stable(draft, life, effect, waiting)
        elif kind == "found":
            draft.findings[life[0]] = (*life, effect[2])
        elif kind == "error":
            self._stop(draft, life, effect[1], f"{effect[1]}: {effect[2]}")
        elif kind != "ready":
            self._outside(draft, life, effect, waiting)

    def _records(self, channel: int, position: int) -> EventValue:
        """One record at a time: what has arrived by then differs from run to run."""
        count = self.job.records
        names = (f"{'abcdef'[self.partition[channel]]}{position}",) if position < count else ()
        return ("read", channel, position, names, position + 1 >= count)

    def _outside(self, draft: Draft, life: Life, effect: EffectValue, waiting: list[EventValue]) -> None:
        kind, channel, *rest = effect
        number, incarnation = draft.stores[channel], life[1]
        if kind == "open":
            after, answer = self.stores.open(number, incarnation)
        elif kind == "write":
            after, answer = self.stores.write(number, rest[0])
        elif kind == "truncate":
            after, answer = self.stores.truncate(number, incarnation, rest[0])
        else:
            after, answer = self.stores.withdraw(number, incarnation, rest[0])
        draft.stores[channel] = after
        if isinstance(answer, str):
            self._stop(draft, life, answer.split(":")[0], answer)
        elif answer is not None:
            waiting.append(("opened", channel, answer))

    def _stop(self, draft: Draft, life: Life, family: str, text: str) -> None:
        """End a process that cannot continue: right for a fenced zombie, a failure of any other."""
        draft.end(life)
        if family == "ReplayDivergence" and self.job.betrays >= 0:
            draft.changes["stopped"] = True
        elif family != "Fenced" or life[1] == draft.incarnations[life[0]]:
            draft.broken.append(f"{self.topology.tasks[life[0]].name} stops with {text}")

    def _forget_dead_letters(self, draft: Draft) -> None:
        """Drop frames of a dead process that have come to mean nothing: the page says why that is forever."""
        for end, frames in list(draft.links.items()):
            if end[:2] in draft.processes or end[2:] not in draft.processes:
                continue
            number = draft.processes[end[2:]]
            if self.cores.facts[number].peers[end[0]] <= end[1]:
                continue
            steps = [self.cores.step(number, self._frame(end, frame), draft.base.ticks) for frame in frames]
            if all(after == number and {each[0] for each in effects} <= {"reply"} for after, effects in steps):
                del draft.links[end]


def _cuts(effects: tuple[EffectValue, ...]) -> Iterator[int]:
    """Yield the places at which a death between two effects of one step differs from a death before or after it.

    A frame that was sent may never arrive, so only what a store takes counts.
    """
    for place, effect in enumerate(effects):
        if place and effect[0] in ("write", "open", "truncate", "withdraw"):
            yield place


def _ends(logs: Written) -> tuple[tuple[int, int, int], ...]:
    return tuple((task, epoch, offset + len(content)) for task, epoch, offset, content in logs)


_ACTIONS: dict[str, Any] = {
    "deliver": World._deliver,
    "lose": World._lose,
    "turn": World._turn,
    "read": World._read,
    "disk": World._disk,
    "flush": World._flush,
    "complete": World._complete,
    "ask": World._ask,
    "wait": World._wait,
    "hurry": World._hurry,
    "crash": World._crash,
    "host": World._host_dies,
    "cut-off": World._cut_off,
    "usurp": World._usurp,
    "promote": World._promote,
    "inquire": World._inquire,
    "decide": World._decide,
}
