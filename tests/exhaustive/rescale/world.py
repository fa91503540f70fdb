"""A job that is rescaled or rolled back, in every order of its records, of the steps of the change and of deaths.

The supervisor and its journal are those that ship (`standby.supervision`).  It may die between any two of its effects
and of the steps of a commit.  Processes come up, and their deaths are reported, in the order of their names.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from causal.errors import CausalError
from causal.records.values import encode
from tests.exhaustive.explore import Graph
from tests.exhaustive.rescale.command import next_item
from tests.exhaustive.rescale.draft import Draft
from tests.exhaustive.rescale.state import COUNTS, NONE, OLD, OUT, READ, TASKS, Process, State, form_of, owner
from tests.exhaustive.rescale.supervisors import Supervisors

Action = tuple[Any, ...]

TICKS_MAX = 20
"""The clock moves when nothing else can happen; a job that needs more of that does not end."""


@dataclass(frozen=True, slots=True)
class Job:
    """The bounds of a world.

    Attributes:
        records: how many there are; the first is visible, and covered by a checkpoint, when the change begins.
        widths: how many tasks count before and after the change; returns: whether that is a rollback.
        crashes: how many deaths there may be, of processes, of the supervisor, of the command, or of all together.
    """

    name: str
    records: int = 3
    crashes: int = 1
    widths: tuple[int, int] = (1, 2)
    returns: bool = False


class World:
    """The rules of one job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.supervisors = Supervisors()

    def first(self) -> State:
        """Return the state in which all tasks of the old version run, and its first checkpoint is complete."""
        draft = Draft(self.supervisors, State(self.job.widths, self.job.returns, rows=(0,), crashes=self.job.crashes))
        files = {task: draft.write(task, 1, 1, 1) for task in TASKS[self.job.widths[OLD]]}
        lists = {task: [[path, 1, "d"]] for task, path in files.items()}
        checkpoint = {"kind": "checkpoint", "count": 1, "epoch": 1, "files": lists, "took_ms": 0.0}
        draft.manifests[1] = files
        draft.change(journal=(encode(checkpoint),))
        draft.begin()
        for _ in range(3):
            for slot in list(draft.processes):
                draft.beat(slot)
        assert self.supervisors.at_rest(draft.supervisor), "all tasks run"
        return draft.state()

    def done(self, state: State) -> bool:
        """Return whether all rows are visible, the change has come to its end, and every task is ready for more."""
        return (
            len(state.rows) == self.job.records
            and state.supervisor != NONE
            and self.supervisors.at_rest(state.supervisor)
            and next_item(state) is None
            and not state.intent
            and not any(process.dead or process.stands for process in state.processes)
        )

    def actions(self, state: State) -> Iterator[tuple[Action, bool]]:
        """Yield each action, and whether it must happen some time if it stays possible."""
        fair = False
        for action in self._progress(state):
            fair = True
            yield action, True
        if not fair:
            yield ("wait",), True
        if state.crashes:
            yield from ((action, False) for action in (("command dies",), ("all die", True)))
            if state.supervisor != NONE:
                yield ("supervisor dies",), False
            if (
                not state.returns
            ):  # a command that survives the machine is suspended, and finds other owners of the store
                yield ("all die", False), False
            yield from ((("dies", process.slot), False) for process in state.processes if not process.dead)

    def _progress(self, state: State) -> Iterator[Action]:
        if state.ended is not None:
            yield ("resume", False)
            return
        if state.supervisor == NONE:
            yield ("begin",)
        if next_item(state) is not None and not (state.waiting or state.supervisor == NONE):
            yield ("command",)
        tasks = {(process.version, process.task): process for process in state.processes if process.task}
        starting = [process.slot for process in state.processes if not process.up and not process.dead]
        if starting:
            yield ("up", starting[0])
        dead = [process.slot for process in state.processes if process.dead]
        if dead and state.supervisor != NONE:
            yield ("reap", dead[0])
        for process in state.processes:
            if process.task and not process.stands:
                yield from (("work", process.slot, record) for record in self._ready(state, process, tasks))
                if _meets_barrier(state, process, tasks):
                    yield ("barrier", process.slot)

    def _ready(self, state: State, process: Process, tasks: Mapping[tuple[int, str], Process]) -> list[int]:
        """Return the records that a task can take now."""
        epoch, position, _ = state.barrier
        limit = position if process.task != READ and epoch > process.epoch else self.job.records
        if process.task == READ:
            return list(range(process.at, limit))[:1]
        shown = (*range(process.restored), *state.rows[state.started :])
        width, ready, taken = state.widths[process.version], [], shown if process.task == OUT else range(process.at)
        for name in _above(state, process):
            sender, counts = tasks.get((process.version, name)), name if process.task == OUT else process.task
            records = range(min(sender.at, limit)) if sender is not None else ()
            ready += [each for each in records if owner(width, each) == counts and each not in taken][:1]
        return ready

    def after(self, state: State, action: Action, dies_after: int = NONE) -> tuple[State, list[str], bool]:
        """Return (the next state, what went wrong, whether the supervisor has died in it)."""
        draft = Draft(self.supervisors, state, dies_after)
        kind, *rest = action
        if kind in _DEATHS:
            draft.change(crashes=state.crashes - 1)
        try:
            _ACTIONS[kind](draft, *rest)
        except (CausalError, AssertionError, LookupError) as problem:
            draft.broken.append(f"{type(problem).__name__}: {problem}")
        if draft.died:
            draft.change(crashes=state.crashes - 1)
        if draft.ended is not None and "--rollback" not in draft.ended[1]:
            draft.broken.append(f"the job ends with {draft.ended}")
        return draft.state(), draft.broken, draft.died


def _above(state: State, process: Process) -> tuple[str, ...]:
    """Return the tasks from which a task receives."""
    return COUNTS[state.widths[process.version]] if process.task == OUT else (READ,)


def _meets_barrier(state: State, process: Process, tasks: Mapping[tuple[int, str], Process]) -> bool:
    """Return whether a barrier is the next thing in the input of a task."""
    if process.task == READ:
        return process.asked[0] > process.epoch
    epoch, position, _ = state.barrier
    width = state.widths[process.version]
    left = (
        []
        if process.task == OUT
        else [each for each in range(process.at, position) if owner(width, each) == process.task]
    )
    if process.task == OUT and process.at != position or left:
        return False
    above = [tasks.get((process.version, name)) for name in _above(state, process)]
    passed = all(sender is not None and sender.epoch >= epoch for sender in above)
    return process.epoch < epoch and passed


_DEATHS = ("supervisor dies", "command dies", "all die", "dies")

_ACTIONS: dict[str, Callable[..., None]] = {
    "begin": Draft.begin,
    "command": Draft.proceed,
    "reap": Draft.report_death,
    "up": Draft.beat,
    "work": Draft.work,
    "barrier": Draft.pass_barrier,
    "wait": Draft.wait,
    "supervisor dies": Draft.kill_supervisor,
    "command dies": lambda draft: draft.change(answers=None, waiting=False),
    "all die": Draft.kill_everything,
    "resume": Draft.kill_everything,
    "dies": Draft.kill,
}


@dataclass
class Verdict:
    """The result of an exploration.

    Attributes:
        ends: version → the states in which the job has come to its end as that version.
        deaths: how many deaths were tried.
    """

    states: int = 0
    transitions: int = 0
    ends: Counter[int] = field(default_factory=Counter)
    deaths: int = 0
    whole: bool = True
    breach: str = ""
    path: list[Action] = field(default_factory=list)


def explore(job: Job, states_max: int = 1_000_000) -> Verdict:
    """Visit all states, breadth first."""
    world, graph, verdict = World(job), Graph(), Verdict()
    first = world.first()
    numbers, ends, waiting = {form_of(first): 0}, list[int](), deque([(0, first)])
    graph.parents.append(NONE)
    graph.actions.append(())
    while waiting and not verdict.breach and verdict.whole:
        number, state = waiting.popleft()
        if world.done(state):
            ends.append(number)
            verdict.ends[state.version] += 1
            continue
        for action, fair, after, broken in _steps(world, state):
            verdict.transitions += 1
            verdict.deaths += after.crashes < state.crashes
            form = form_of(after)
            if form not in numbers:
                numbers[form] = len(numbers)
                graph.parents.append(number)
                graph.actions.append(action)
                waiting.append((numbers[form], after))
            if fair:
                graph.sources.append(number)
                graph.targets.append(numbers[form])
            if after.ticks > TICKS_MAX:
                broken = ["liveness: nothing can happen any more, and the job has not ended"]
            if broken:
                verdict.breach, verdict.path = broken[0], [*graph.path(number), action]
                break
        verdict.whole = len(numbers) <= states_max
    verdict.states = len(numbers)
    if not verdict.breach and verdict.whole and (stuck := graph.stuck(ends)) >= 0:
        verdict.breach, verdict.path = "liveness: from here the job can never end", graph.path(stuck)
    return verdict


def _steps(world: World, state: State) -> Iterator[tuple[Action, bool, State, list[str]]]:
    """Yield each action with what follows, also if the supervisor dies in the middle of it."""
    for action, fair in world.actions(state):
        after, broken, _ = world.after(state, action)
        yield action, fair, after, broken
        died = state.crashes > 0 and fair
        effects = 0
        while died:
            after, broken, died = world.after(state, action, effects)
            if died:
                yield (*action, f"and the supervisor dies before effect {effects}"), False, after, broken
            effects += 1
