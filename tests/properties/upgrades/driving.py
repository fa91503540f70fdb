"""Performs an upgrade in this process: a world up to a savepoint, and one of another plan from there.

Each record is given at a moment of its own, when all tasks are at rest: what a pipeline emits then follows from its
definition alone, whatever its parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import PipelineError
from causal.snapshot_files import written_name
from operators import Pipeline
from operators.engine.plan import plan
from operators.records.seconds import ns_of_seconds
from operators.runtime.regrouping import Saved
from operators.runtime.rescaling import Rescaling
from operators.testing.inputs import At
from operators.testing.running import result_of, world_of
from operators.testing.world import World
from tests.oracles.frame import groupings

START_S = 100.0
STEP_S = 1.0
KEY_GROUPS = 16

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

    def both(self) -> tuple[Mapping[str, list[Any]], Mapping[str, list[Any]]]:
        """Return the rows of both versions."""
        return self.before, self.after


def performed(
    scene: Scene, chance: Random, ready: Callable[[], None] = lambda: None, to_the_end: bool = True
) -> Outcome:
    """Run both versions.

    Args:
        ready: called at the savepoint, before the upgrade.
        to_the_end: whether all partitions end; otherwise only those end whose end is an event.

    Raises:
        PipelineError: the upgrade is refused.
    """
    options: dict[str, Any] = {"key_groups": KEY_GROUPS}
    first = _world(scene.before(), scene, scene.barrier, chance, options, continues=True)
    first.begin()
    _until(first, moment_s(scene.barrier - 1) if scene.barrier else START_S)
    epoch = first.complete
    first.checkpoint()
    first.settle()
    if first.complete != epoch + 1:
        raise AssertionError("the savepoint is not complete")
    ready()
    built = scene.after()
    second = _world(built, scene, len(scene.events), chance, options, continues=not to_the_end)
    _continued(first, second, scene.allow_dropped)
    second.now_ns = first.now_ns
    second.begin()
    if to_the_end:
        second.run()
        second.check_state()
    else:
        _until(second, moment_s(len(scene.events) - 1))
    return Outcome(result_of(first).rows, result_of(second).rows)


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


def _continued(first: World, second: World, allow_dropped: bool) -> None:
    """Make the second world begin with the last checkpoint of the first."""
    saved = []
    for task in first.topology.tasks:
        files = [first.snapshots[task.index, name][0] for name, _, _ in first._files[task.index]]
        saved.append(Saved(task, Cut.unpack(files[-1][0]), tuple(tuple(parts[1:]) for parts in files)))
    rescaling = Rescaling(
        first.topology, saved, second.plan, KEY_GROUPS, allow_dropped, lambda: nullcontext(first.plan)
    )
    chains = rescaling.chains()
    cuts = rescaling.cuts({str(task.name): (0, 0) for task in second.topology.subtasks.tasks})
    epoch = first.complete
    for task in second.topology.tasks:
        parts = [cuts[task.name].pack(), *chains[task.name]]
        name = written_name("", epoch, 0)
        second.snapshots[task.index, name] = parts, name, 0
        second._files[task.index] = ((name, sum(map(len, parts)), name),)
    second.asked = second.complete = epoch


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
