"""The steps of a performance: the input of a job from one checkpoint to a later one, in one order (0042).

A checkpoint contains positions, and not the order in which partitions were read. Their elements are therefore divided
evenly over the time between two checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from causal.cut import Cut
from causal.ids import OUTSIDE
from causal.topology import Topology
from operators.replay.performance import Step

ELEMENTS_MAX = 256
"""The most elements of a step; a step is what the report of a differing row names."""

Positions = Mapping[tuple[str, int], tuple[int, bool]]
"""(source, partition) → the number of elements that have been read, and whether the partition has ended."""


def positions_in(topology: Topology, cuts: Mapping[str, Cut]) -> Positions:
    """Return the positions of all partitions at a checkpoint.

    Args:
        cuts: the cuts of the tasks that read partitions, by task.
    """
    positions: dict[tuple[str, int], tuple[int, bool]] = {}
    for channel in topology.channels:
        if channel.source == OUTSIDE:
            reader = topology.subtasks.tasks[topology.subtask_channel(channel).target]
            position, _, ended = cuts[topology.tasks[channel.target].name].inputs[channel.id]
            positions[reader.operators[0], channel.partition] = position - ended, ended  # an end is an element
    return positions


def count(before: Positions, after: Positions) -> int:
    """Return the number of elements between two checkpoints."""
    return sum(stop - before.get(partition, (0, False))[0] for partition, (stop, _) in after.items())


def steps_between(before: Positions, after: Positions, began_ns: int, ended_ns: int) -> Iterator[Step]:
    """Yield the steps from one checkpoint to a later one.

    Args:
        began_ns, ended_ns: the wall-clock times of the two.
    """
    starts = {partition: before.get(partition, (0, False))[0] for partition in after}
    most = max((stop - starts[partition] for partition, (stop, _) in after.items()), default=0)
    slices = max(1, -(-most // ELEMENTS_MAX))
    for number in range(1, slices + 1):
        at_ns = began_ns + (ended_ns - began_ns) * number // slices
        for (source, partition), (stop, ended) in sorted(after.items()):
            first = starts[source, partition]
            own = [first + (stop - first) * each // slices for each in (number - 1, number)]
            ends = number == slices and ended and not before.get((source, partition), (0, False))[1]
            if own[0] < own[1] or ends:
                yield Step(at_ns, source, partition, own[0], own[1], ends)
