"""The rules that must hold in every state, stated outside the code under test, from what an observer sees.

Most of them are about two holders at a time; what was found about a pair is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from causal.cut import Cut
from causal.ids import OUTSIDE, TaskIndex
from causal.task.recovery import State as Phase
from causal.topology import Topology
from tests.exhaustive.cores import TICK_NS, Facts
from tests.exhaustive.state import State
from tests.exhaustive.stores import Shelf
from tests.exhaustive.witness import Fact, read_whole, token_in
from tests.exhaustive.world import World

Logs = Mapping[tuple[int, int], tuple[int, bytes]]


@dataclass(frozen=True)
class Cover:
    """The facts that the last complete checkpoint makes safe, and the positions that it restores."""

    facts: frozenset[Fact]
    inputs: Mapping[int, int]


def paths(topology: Topology) -> list[tuple[int, str, int]]:
    """Returns (partition, way through the tasks, channel to the store) of every way a record takes."""
    ways = []
    heads = [(c.target, c.partition, f"-{c.target}") for c in topology.channels if c.source == OUTSIDE]
    while heads:
        task, partition, way = heads.pop()
        for channel in topology.outputs(TaskIndex(task)):
            if channel.target == OUTSIDE:
                ways.append((partition, way, channel.id))
            else:
                heads.append((channel.target, partition, f"{way}-{channel.target}"))
    return sorted(ways)


def contradiction(one: frozenset[Fact], other: frozenset[Fact]) -> str:
    """Returns the first event on which the two disagree; empty if none."""
    known = {fact[:2]: fact for fact in one}
    for fact in sorted(other):
        if known.get(fact[:2], fact) != fact:
            return f"{known[fact[:2]][2]} and {fact[2]}"
    return ""


def divided(one: Logs, other: Logs) -> str:
    """Returns the first log of which neither copy is a prefix of the other; empty if none."""
    for where in sorted(one.keys() & other.keys()):
        (begin, mine), (its_begin, its) = one[where], other[where]
        start, end = max(begin, its_begin), min(begin + len(mine), its_begin + len(its))
        if mine[start - begin : max(start, end) - begin] != its[start - its_begin : max(start, end) - its_begin]:
            return f"the log of task {where[0]}, epoch {where[1]}: {mine.hex()} and {its.hex()}"
    return ""


def stable_in(state: State) -> dict[tuple[int, int], tuple[int, bytes]]:
    """Returns the bytes that the youngest incarnations with files of their own have written."""
    youngest: dict[int, tuple[int, tuple[tuple[int, bytes], ...]]] = {}
    for (task, incarnation), logs in state.stable:
        if incarnation <= state.incarnations[task] and incarnation > youngest.get(task, (-1, ()))[0]:
            youngest[task] = (incarnation, logs)
    return {(task, epoch): (0, log) for task, (_, logs) in youngest.items() for epoch, log in logs}


class Invariants:
    """Checks states of one world; each check gives one line per breach."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.job = world.job
        self._sound: set[object] = set()
        self._pairs: dict[tuple[str, int, str, int], str] = {}
        self._covers: dict[tuple[int, ...], Cover] = {}
        self._shelves: dict[int, list[str]] = {}
        self._alone: dict[tuple[int, tuple[int, ...]], list[str]] = {}
        self._wanted: dict[int, list[str]] = {
            channel.id: sorted(
                f"{'abcdef'[partition]}{n}{way}"
                for partition, way, to in paths(world.topology)
                if to == channel.id
                for n in range(self.job.records)
            )
            for channel in world.topology.channels
            if channel.target == OUTSIDE
        }

    def broken(self, state: State) -> list[str]:
        """Returns everything that does not hold; frames in transit do not matter for it."""
        died = self.job.crashes - state.crashes
        key = (
            state.processes, state.incarnations, state.stores, state.restore, state.ticks, state.lost, died,
            state.stable,
        )  # fmt: skip
        if key in self._sound:
            return []
        breaches = list(self._broken(state))
        if not breaches:
            self._sound.add(key)
        return breaches

    def _broken(self, state: State) -> Iterator[str]:
        if self.job.betrays >= 0:
            yield from self._stores(state)  # inside, such a job may be at odds with itself until it notices
            return
        present = [number for life, number in state.processes if life[1] == state.incarnations[life[0]]]
        cover = self.cover(state)
        yield from self._stores(state)
        yield from self._agreement(state, present, cover)
        yield from self._orphans(state, present, cover)
        yield from self._stable(state, present)
        for number in present:
            yield from self._sleeps(number, state.ticks)
            key = (number, state.restore)
            if key not in self._alone:
                self._alone[key] = [*self._truncation(self.world.cores.facts[number], state.complete, cover)]
                self._alone[key] += self._own(self.world.cores.facts[number], cover)
            yield from self._alone[key]
        yield from self._coverage(present)

    def unfinished(self, state: State) -> Iterator[str]:
        """Returns the breaches of a job that has ended: every row must be there, once."""
        if state.stopped:
            return
        for channel, number in state.stores:
            names = sorted(name for name, _ in self.world.stores.shelves[number].rows)
            if names != self._wanted[channel]:
                yield f"the job has ended with the rows {names}, {self._wanted[channel]} are wanted"

    def cover(self, state: State) -> Cover:
        """Returns what the complete checkpoint holds."""
        if state.restore not in self._covers:
            facts: set[Fact] = set()
            inputs: dict[int, int] = {}
            for parts in (self.world.cores.values[place] for place in state.restore if place >= 0):
                facts |= set(read_whole(parts[1])[2])
                inputs |= {channel: where[0] for channel, where in Cut.unpack(parts[0]).inputs.items()}
            self._covers[state.restore] = Cover(frozenset(facts), inputs)
        return self._covers[state.restore]

    def _shelf(self, number: int) -> Shelf:
        return self.world.stores.shelves[number]

    # -- what users see --------------------------------------------------------------------------------

    def _stores(self, state: State) -> Iterator[str]:
        for channel, number in state.stores:
            if number not in self._shelves:
                shelf = self._shelf(number)
                names = [name for name, _ in shelf.rows]
                breaches = [f"one writer: {shelf.broken}"] if shelf.broken else []
                if len(names) != len(set(names)) or not set(names) <= set(self._wanted[channel]):
                    breaches.append(f"exactly once: the store shows {names}")
                breaches += [f"exactly once: rows that are visible together contradict each other: {text}"
                          for text in (contradiction(frozenset(a[1]), frozenset(b[1]))
                                       for a, b in combinations(shelf.rows, 2)) if text][:1]  # fmt: skip
                if self.job.depth > self.world.topology.depth and shelf.withdrawn:
                    breaches.append(f"exactly once: {shelf.withdrawn} rows were withdrawn at full sharing depth")
                self._shelves[number] = breaches
            yield from self._shelves[number]

    # -- two holders at a time -------------------------------------------------------------------------

    def _agreement(self, state: State, present: Sequence[int], cover: Cover) -> Iterator[str]:
        if state.lost or any(self.world.cores.facts[number].lost for number in present):
            return  # orphans exist by then, and an inquiry is to find them
        holders = [("task", number) for number in present] + [("store", number) for _, number in state.stores]
        for (kind, one), (its_kind, other) in combinations(holders, 2):
            key = (kind, one, its_kind, other)
            if key not in self._pairs:
                a, b = self._seen(kind, one), self._seen(its_kind, other)
                text = contradiction(a[0], b[0])
                contradicting = (
                    f"contradiction: {self._name(kind, one)} and {self._name(its_kind, other)} depend on {text}"
                )
                parted = divided(a[1], b[1])
                breach = contradicting if text else ""
                breach = breach or (f"prefix: {parted} are no prefixes of one another" if parted else "")
                self._pairs[key] = breach
            if self._pairs[key]:
                yield self._pairs[key]
        for kind, number in holders:
            text = contradiction(cover.facts, self._seen(kind, number)[0])
            if text:
                yield f"contradiction: {self._name(kind, number)} and the complete checkpoint depend on {text}"

    def _seen(self, kind: str, number: int) -> tuple[frozenset[Fact], Logs]:
        if kind == "task":
            facts = self.world.cores.facts[number]
            return facts.facts, facts.logs
        shelf = self._shelf(number)
        return shelf.facts, shelf.logs

    def _name(self, kind: str, number: int) -> str:
        if kind == "store":
            return "the store"
        facts = self.world.cores.facts[number]
        return f"{self.world.topology.tasks[facts.task].name}, incarnation {facts.incarnation},"

    # -- determinants ----------------------------------------------------------------------------------

    def _orphans(self, state: State, present: Sequence[int], cover: Cover) -> Iterator[str]:
        """Every fact that a task or a store depends on is held, while no more have died than the depth covers."""
        together = max((len(host) for host in self.job.hosts), default=1)
        if together * (self.job.crashes - state.crashes) > self.job.depth:
            return
        seen = [self._seen("task", n) for n in present] + [self._seen("store", n) for _, n in state.stores]
        seen.append((frozenset(), stable_in(state)))
        for fact in sorted(frozenset().union(*(facts for facts, _ in seen)) - cover.facts):
            token = token_in(fact)
            if not any(owner == fact[0] and token in log for _, logs in seen for (owner, _), (_, log) in logs.items()):
                yield f"no orphans: {fact[2]} of task {fact[0]} is depended on, and no task or store holds it"
        if self.job.depth <= self.world.topology.depth:
            return
        for _, number in state.stores:
            shelf = self._shelf(number)
            all_logs = [*shelf.logs.items(), *stable_in(state).items()]
            for fact in sorted(shelf.facts - cover.facts):
                if not any(owner == fact[0] and token_in(fact) in log for (owner, _), (_, log) in all_logs):
                    yield f"no orphans: a row depends on {fact[2]} of task {fact[0]}, which its store does not hold"

    def _stable(self, state: State, present: Sequence[int]) -> Iterator[str]:
        """Every byte that was let go of is on disk; the file of a task that performs is a prefix of its log."""
        if not self.job.flush or state.lost or any(self.world.cores.facts[number].lost for number in present):
            return
        stable = stable_in(state)
        seen = [self._seen("task", n)[1] for n in present] + [self._seen("store", n)[1] for _, n in state.stores]
        for logs in seen:
            for where, (begin, _) in logs.items():
                stable_extent = len(stable.get(where, (0, b""))[1])
                if stable_extent < begin:
                    there = f"{stable_extent} are on disk"
                    yield f"stable: {begin} bytes of the log of task {where[0]} are let go of, {there}"
        for number in present:
            facts = self.world.cores.facts[number]
            performs = facts.phase in (Phase.REPLAYING, Phase.RUNNING)
            for where, (_, file) in stable.items() if performs else ():
                if where[0] == facts.task and where in facts.logs and not facts.logs[where][1].startswith(file):
                    yield f"stable: the file of task {where[0]} is no prefix of its log"

    def _own(self, facts: Facts, cover: Cover) -> list[str]:
        """Within the sharing depth a task holds itself what it depends on."""
        near = self.world.topology.held_by(TaskIndex(facts.task), self.job.depth)
        name = self.world.topology.tasks[facts.task].name
        return [
            f"no orphans: {name} depends on {fact[2]} of task {fact[0]}, and does not hold it"
            for fact in sorted(facts.facts - cover.facts)
            if fact[0] in near and not facts.holds(fact) and not self.job.flush
        ]

    def _sleeps(self, number: int, tick: int) -> Iterator[str]:
        """A task that says that a turn would find nothing to do is not wrong: its process sleeps then."""
        facts = self.world.cores.facts[number]
        if not facts.idle or (facts.due_ns is not None and facts.due_ns <= tick * TICK_NS):
            return
        after, effects = self.world.cores.step(number, ("turn",), tick)
        if after != number or effects:
            yield f"idle: {self.world.topology.tasks[facts.task].name} sleeps although it would do this: {effects}"

    def _truncation(self, facts: Facts, complete: int, cover: Cover) -> list[str]:
        """Nothing is forgotten that a restart from the complete checkpoint would ask for."""
        name = self.world.topology.tasks[facts.task].name
        breaches = [
            f"truncation: {name} has forgotten the log of task {owner} below epoch {first}, {complete} is complete"
            for owner, first in facts.first_epochs.items()
            if first > complete
        ]
        for channel, (start, _) in facts.outputs.items():
            wanted = cover.inputs.get(channel, 0)
            if start > wanted:
                breaches.append(f"truncation: {name} keeps channel {channel} from {start}, a restart wants {wanted}")
        return breaches

    def _coverage(self, present: Sequence[int]) -> Iterator[str]:
        """Every position that a living neighbour may ask for can be sent again, or will be generated again."""
        wanted: dict[int, int] = {}
        for number in present:
            wanted |= self.world.cores.facts[number].inputs
        for number in present:
            facts = self.world.cores.facts[number]
            for channel, (start, end) in facts.outputs.items():
                position = wanted.get(channel)
                if position is None:
                    continue
                if position < start:
                    yield f"in flight: channel {channel} is kept from {start}, its receiver wants {position}"
                if position > end and facts.phase is Phase.RUNNING:
                    yield f"in flight: channel {channel} ends at {end}, its receiver has {position}"
