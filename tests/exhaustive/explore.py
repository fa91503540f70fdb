"""Breadth first through all states of a world: the first breach that is met has no shorter path to it."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.exhaustive.frozen import digest_of
from tests.exhaustive.invariants import Invariants
from tests.exhaustive.state import State
from tests.exhaustive.world import Action, Job, World

TICKS_MAX = 6
"""The clock moves when nothing else can happen; a job that needs more of that does not end."""


@dataclass
class Breach:
    """A list of what does not hold, and the shortest path of actions that leads there."""

    what: list[str]
    path: list[Action]


@dataclass
class Outcome:
    """The outcome of one exploration."""

    job: Job
    states: int = 0
    transitions: int = 0
    depth: int = 0
    ended: int = 0
    stopped: int = 0
    """Ends in which the job said that user code is nondeterministic."""
    core_states: int = 0
    core_steps: int = 0
    audited: int = 0
    withdrawn: int = 0
    """The most rows that a store had taken back in any state."""
    whole: bool = True
    breach: Breach | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    """The number of times that each kind of action was taken."""


@dataclass
class Graph:
    """States by number: how each was first reached, and the steps between them."""

    parents: array[int] = field(default_factory=lambda: array("l"))
    actions: list[Action] = field(default_factory=list)
    sources: array[int] = field(default_factory=lambda: array("l"))
    targets: array[int] = field(default_factory=lambda: array("l"))

    def path(self, number: int) -> list[Action]:
        taken: list[Action] = []
        while self.parents[number] >= 0:
            taken.append(self.actions[number])
            number = self.parents[number]
        return taken[::-1]

    def stuck(self, ends: list[int]) -> int:
        """Return the first state from which no fair action leads to any of `ends`, whatever follows; -1 if there is
        none.
        """
        before: dict[int, list[int]] = {}
        for source, target in zip(self.sources, self.targets, strict=True):
            before.setdefault(target, []).append(source)
        reached = bytearray(len(self.parents))
        todo = list(ends)
        for number in ends:
            reached[number] = 1
        while todo:
            for source in before.get(todo.pop(), ()):
                if not reached[source]:
                    reached[source] = 1
                    todo.append(source)
        return reached.find(0)


class Exploration:
    """One run through one world.

    Args:
        states_max: stop there, and say so.
        progress: called with the depth and the number of states now and then.
    """

    def __init__(
        self, job: Job, states_max: int, audit: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.world = World(job, audit)
        self.outcome = Outcome(job)
        self._invariants = Invariants(self.world)
        self._graph = Graph()
        self._numbers: dict[bytes, int] = {}
        self._ends: list[int] = []
        self._states_max = states_max
        self._progress = progress

    def run(self) -> Outcome:
        first = self.world.first()
        self._number(first, -1, ())
        frontier = [(0, first)]
        while frontier and self.outcome.breach is None and self.outcome.whole:
            self.outcome.depth += 1
            frontier = self._level(frontier)
        outcome = self.outcome
        outcome.states = len(self._numbers)
        if outcome.breach is None and outcome.whole:
            stuck = self._graph.stuck(self._ends)
            if stuck >= 0:
                outcome.breach = Breach(["liveness: from here the job can never end"], self._graph.path(stuck))
        outcome.ended = len(self._ends)
        outcome.core_states, outcome.core_steps = len(self.world.cores.facts), len(self.world.cores.steps)
        outcome.withdrawn = max(shelf.withdrawn for shelf in self.world.stores.shelves)
        outcome.audited = self.world.cores.audited
        return outcome

    def follow(self, choices: Sequence[int]) -> Outcome:
        """Take one path instead, up to the breach: in each state the action of that number."""
        state, path = self.world.first(), list[Action]()
        for choice in choices:
            path.append(list(self.world.actions(state))[choice][0])
            state, wrong = self.world.after(state, path[-1])
            wrong = wrong or self._invariants.broken(state)
            if wrong:
                self.outcome.breach = Breach(wrong, path)
                break
        return self.outcome

    def choices(self, path: Sequence[Action]) -> list[int]:
        """Return the numbers by which `follow` takes a path."""
        state, numbers = self.world.first(), list[int]()
        for action in path:
            numbers.append([each for each, _ in self.world.actions(state)].index(action))
            state, _ = self.world.after(state, action)
        return numbers

    def _level(self, frontier: list[tuple[int, State]]) -> list[tuple[int, State]]:
        following: list[tuple[int, State]] = []
        for number, state in frontier:
            if self.world.done(state):
                self._ends.append(number)
                self.outcome.stopped += state.stopped
                if self._breach(number, None, list(self._invariants.unfinished(state))):
                    return []
                continue
            for action, fair in self.world.actions(state):
                after, wrong = self.world.after(state, action)
                self.outcome.transitions += 1
                self.outcome.kinds[action[0]] += 1
                if after.ticks > TICKS_MAX:
                    wrong = ["liveness: nothing can happen any more, and the job has not ended"]
                known = len(self._numbers)
                its_number = self._number(after, number, action)
                if fair:
                    self._graph.sources.append(number)
                    self._graph.targets.append(its_number)
                if its_number == known:
                    wrong = wrong or self._invariants.broken(after)
                    following.append((its_number, after))
                if wrong and self._breach(number, action, wrong):
                    return []
            if len(self._numbers) > self._states_max:
                self.outcome.whole = False
                return []
        if self._progress is not None:
            self._progress(self.outcome.depth, len(self._numbers))
        return following

    def _breach(self, number: int, action: Action | None, wrong: list[str]) -> bool:
        if not wrong:
            return False
        path = self._graph.path(number)
        self.outcome.breach = Breach(wrong, path if action is None else [*path, action])
        return True

    def _number(self, state: State, parent: int, action: Action) -> int:
        form = digest_of(tuple(state))
        number = self._numbers.get(form)
        if number is None:
            number = self._numbers[form] = len(self._numbers)
            self._graph.parents.append(parent)
            self._graph.actions.append(action)
        return number
