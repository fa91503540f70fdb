"""Performs an upgrade in this process: a world up to a savepoint, and one of another plan from there.

Each record is given at a moment of its own, when all tasks are at rest: what a pipeline emits then follows from its
definition alone, whatever its parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import PipelineError
from causal.snapshot_files import written_name
from causal.topology import Task, Topology
from operators import Pipeline
from operators.engine.cell_chain import each_subtask_of_cell
from operators.engine.plan import Plan, plan
from operators.records.seconds import ns_of_seconds
from operators.runtime.later_changes import later_changes
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Rescaling, read, whole
from operators.runtime.sent_rows import Written
from operators.runtime.unchanged_state import converted
from operators.state.fragments import unpacked
from operators.testing.inputs import At
from operators.testing.running import result_of, world_of
from operators.testing.world import World
from tests.oracles.frame import groupings

START_S = 100.0
STEP_S = 1.0
KEY_GROUPS = 16

ALONE = "converted alone"

Channel = tuple[str, int]
"""(source, partition)"""


@dataclass(frozen=True)
class Event:
    """A record of a partition, or, without one, its end."""

    channel: Channel
    record: Any = None
    ends: bool = False


@dataclass(frozen=True)
class Scene:
    """An upgrade and its input.

    Attributes:
        before, after: build the pipelines.
        events: what happens, one event after the other; all partitions end.
        barrier: how many events come before the savepoint.
        allow_dropped: whether state without an operator may be left behind.
        shown: what it is, for people.
    """

    before: Callable[[], Pipeline]
    after: Callable[[], Pipeline]
    events: Sequence[Event]
    barrier: int
    allow_dropped: bool = False
    shown: str = ""


def moment_s(number: int) -> float:
    """Return when event `number` happens."""
    return START_S + 0.25 + STEP_S * number


@dataclass
class Outcome:
    """The rows that a scene gave, by sink: of the version before and of the one after."""

    before: Mapping[str, list[Any]] = field(default_factory=dict)
    after: Mapping[str, list[Any]] = field(default_factory=dict)
    increment: str = ""
    """Whether the later version began with changes that were converted alone; otherwise why not."""

    def both(self) -> tuple[Mapping[str, list[Any]], Mapping[str, list[Any]]]:
        """Return the rows of both versions."""
        return self.before, self.after


def performed(
    scene: Scene,
    chance: Random,
    ready: Callable[[], None] = lambda: None,
    to_the_end: bool = True,
    early: int | None = None,
) -> Outcome:
    """Run both versions.

    Args:
        ready: called at the savepoint, before the upgrade.
        to_the_end: whether all partitions end; otherwise only those end whose end is an event.
        early: after how many events the state is converted, so that only its changes are converted at the savepoint.

    Raises:
        PipelineError: the upgrade is refused.
    """
    options: dict[str, Any] = {"key_groups": KEY_GROUPS}
    first = _world(scene.before(), scene, scene.barrier, chance, options, continues=True)
    first.begin()
    earlier = None
    if early is not None:
        _until(first, moment_s(early - 1) if early else START_S)
        earlier = _checkpoint(first)
    _until(first, moment_s(scene.barrier - 1) if scene.barrier else START_S)
    saved = _checkpoint(first)
    ready()
    built = scene.after()
    second = _world(built, scene, len(scene.events), chance, options, continues=not to_the_end)
    increment = _continued(first, second, scene.allow_dropped, saved, earlier)
    second.now_ns = first.now_ns
    second.begin()
    if to_the_end:
        second.run()
        second.check_state()
    else:
        _until(second, moment_s(len(scene.events) - 1))
    return Outcome(result_of(first).rows, result_of(second).rows, increment)


def until_barrier(scene: Scene, chance: Random) -> tuple[World, list[Saved]]:
    """Return the world of the version before, at the savepoint, and the snapshots of its tasks."""
    world = _world(scene.before(), scene, scene.barrier, chance, {"key_groups": KEY_GROUPS}, continues=True)
    world.begin()
    _until(world, moment_s(scene.barrier - 1) if scene.barrier else START_S)
    return world, _checkpoint(world)


def _checkpoint(world: World) -> list[Saved]:
    epoch = world.complete
    world.checkpoint()
    world.settle()
    if world.complete != epoch + 1:
        raise AssertionError("the savepoint is not complete")
    saved = []
    for task in world.topology.tasks:
        files = [world.snapshots[task.index, name][0] for name, _, _ in world._files[task.index]]
        saved.append(Saved(task, Cut.unpack(files[-1][0]), tuple(tuple(parts[1:]) for parts in files)))
    return saved


def _until(world: World, moment: float) -> None:
    until_ns = ns_of_seconds(moment) + 1
    world.settle()
    while world.now_ns < until_ns:
        world.pass_time(until_ns)
        world.settle()


def _world(
    pipeline: Pipeline, scene: Scene, stop: int, chance: Random, options: Mapping[str, Any], continues: bool
) -> World:
    """Return the world of one version, with the events up to `stop`; partitions that end later do not end in it."""
    sources = {node.name: node.subject for node in pipeline.nodes if node.kind == "source"}
    inputs: dict[str, Any] = {
        name: [_records(scene, (name, number), stop, source.vectors) for number in range(source.partitions)]
        for name, source in sources.items()
    }
    every = chance.choice([0, 0, 3, 8]) if continues else 0
    seed = chance.randrange(10_000)
    grouping = Random(seed).choice(groupings(pipeline))  # not drawn from `chance`, so that scenes stay the same
    world = world_of(pipeline, inputs, {}, seed, START_S, every, 1, {**options, "processes": grouping})
    if continues:
        over = {event.channel for event in scene.events[:stop] if event.ends}
        for channel, partition in world.partitions.items():
            between = world.topology.subtask_channel(world.topology.channels[channel])
            subtask = world.topology.subtasks.tasks[between.target]
            partition.endless = (subtask.operators[0], between.partition) not in over
    return world


def _records(scene: Scene, channel: Channel, stop: int, plain: bool) -> list[Any]:
    records: list[Any] = []
    for number, event in enumerate(scene.events[:stop]):
        if event.channel != channel:
            continue
        if plain:
            records += [] if event.ends else [event.record]
        else:
            records.append(At(moment_s(number)) if event.ends else At(moment_s(number), event.record))
    return records


def _continued(
    first: World, second: World, allow_dropped: bool, saved: list[Saved], earlier: list[Saved] | None
) -> str:
    """Make the second world begin with a savepoint of the first; returns whether with changes since an earlier one."""
    convert = partial(_converted, first.topology, second.plan, allow_dropped, lambda: nullcontext(first.plan))
    rescaling, chains = convert(saved)
    files = [chains]
    increment = "none"
    if earlier is not None:
        files, increment = _in_two(second.plan, convert, saved, earlier, chains)
    cuts = rescaling.cuts({str(task.name): (0, 0) for task in second.topology.subtasks.tasks})
    epoch = first.complete
    for task in second.topology.tasks:
        names = [written_name("", epoch + place - len(files) + 1, 0) for place in range(len(files))]
        for name, each in zip(names, files, strict=True):
            second.snapshots[task.index, name] = [cuts[task.name].pack(), *each[task.name]], name, 0
        second._files[task.index] = tuple((name, 1, name) for name in names)
    second.asked = second.complete = epoch
    return increment


Converted = tuple[Rescaling, Mapping[str, Sequence[bytes]]]


def _converted(before: Topology, after: Plan, allow_dropped: bool, written: Written, saved: list[Saved]) -> Converted:
    """Convert a savepoint as a job does, and also by loading it; both must give the same state."""
    rescaling, chains = converted(before, saved, after, KEY_GROUPS, allow_dropped, written)
    expected = Rescaling(before, saved, after, KEY_GROUPS, allow_dropped, written).chains()
    for task in after.topology.tasks:
        _check_same(task, state_of(after, task, chains[task.name]), state_of(after, task, expected[task.name]))
    return rescaling, chains


def _in_two(
    plan: Plan,
    convert: Callable[[list[Saved]], Converted],
    saved: list[Saved],
    earlier: list[Saved],
    chains: Mapping[str, Sequence[bytes]],
) -> tuple[list[Mapping[str, Sequence[bytes]]], str]:
    """Convert the state at an earlier barrier and its changes, which have the effect of `chains`."""
    try:
        known, begun = convert(earlier)
    except PipelineError as problem:
        return [chains], str(problem)
    later = []
    for was, now in zip(earlier, saved, strict=True):
        if now.files[: len(was.files)] != was.files:
            return [chains], "a task has written a complete snapshot since then"
        later.append(replace(now, files=now.files[len(was.files) :]))
    changes = later_changes(known, later)
    if isinstance(changes, str):
        return [chains], changes
    _, increments = changes
    for task in plan.topology.tasks:
        twice = state_of(plan, task, begun[task.name], increments[task.name])
        _check_same(task, twice, state_of(plan, task, chains[task.name]))
    return [begun, increments], ALONE


def _check_same(task: Task, state: dict[str, Any], expected: dict[str, Any]) -> None:
    if state != expected:
        raise AssertionError(f"{task.name}: {state} instead of {expected}")


def state_of(plan: Plan, task: Task, *files: Sequence[bytes]) -> dict[str, Any]:
    """Return the state of a task that has loaded these snapshots, with everything in an order of its own."""
    chain = plan.chain(task.index)
    for each in files:
        chain.restore(each)
    tables = {table.name for stage in chain.stages for table in stage.tables()}
    parts = whole(chain)
    if len(plan.topology.subtasks_of(task.index)) == 1:
        return {task.name: _state_in(parts, tables)}
    return {name: (progress, _state_in(own, tables)) for name, progress, own in each_subtask_of_cell(parts)}


def _state_in(parts: Iterable[bytes], tables: Collection[str]) -> Any:
    header, groups = read(parts)
    state: dict[str, dict[Any, Any]] = {}
    for fragments_of in groups.values():
        for name, fragments in fragments_of.items():
            known = state.setdefault(name, {})
            for fragment in fragments:
                keys, values, gone = unpacked(fragment) if name in tables else ([fragment], [None], [])
                if gone:
                    raise AssertionError(f"{name}: a complete snapshot lists removed keys")
                known.update(zip(keys, values, strict=True))
    return header, state


class Invalid(Exception):
    """A pipeline that cannot run on its own, so that there is no upgrade."""


def check_plan(pipeline: Pipeline) -> None:
    """Check a pipeline as a job does before it starts.

    Raises:
        Invalid: it cannot run.
    """
    try:
        plan(pipeline, JobConfig.from_mapping({"run": "trial", "name": pipeline.name, "pipeline": "trial"}, "matrix"))
    except PipelineError as problem:
        raise Invalid(str(problem)) from problem
