"""Graphs of tasks that no pipeline describes, for what is measured or tested below the operators."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, count, pairwise

from causal.ids import OUTSIDE, ChannelId, TaskIndex, TaskName
from causal.topology import Channel, Task, Topology


def graph(names: Sequence[str], *ends: tuple[int, int], ordered: Collection[int] = ()) -> Topology:
    """Return a graph of these tasks and of channels between them; -1 is outside.

    Args:
        ends: (source, target) of each channel; partitions of sources have numbers in this order.
        ordered: the tasks whose inputs follow from content.
    """
    tasks = tuple(Task(TaskIndex(i), TaskName(name), (), i in ordered) for i, name in enumerate(names))
    partitions = count()
    channels = tuple(
        Channel(ChannelId(i), TaskIndex(source), TaskIndex(target), next(partitions) if source == OUTSIDE else 0)
        for i, (source, target) in enumerate(ends)
    )
    return Topology(tasks, channels)


def chain_of(*names: str) -> Topology:
    """Return single tasks, each sending to the next; the first reads, the last writes."""
    return graph(names, *pairwise([OUTSIDE, *range(len(names)), OUTSIDE]))


def layered(widths: Sequence[int], ordered: Collection[int] = ()) -> Topology:
    """Return layers of these widths, each task sending to every task of the next; the first read, the last write.

    Args:
        ordered: the layers whose inputs follow from content.
    """
    layers = [range(end - width, end) for width, end in zip(widths, accumulate(widths), strict=True)]
    ends: list[tuple[int, int]] = [(OUTSIDE, task) for task in layers[0]]
    ends += [(source, target) for above, below in pairwise(layers) for source in above for target in below]
    ends += [(task, OUTSIDE) for task in layers[-1]]
    names = [f"l{depth}/{i}" for depth, width in enumerate(widths) for i in range(width)]
    return graph(names, *ends, ordered=[task for depth in ordered for task in layers[depth]])
