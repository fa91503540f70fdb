"""The tiny jobs that are explored, by name."""

from __future__ import annotations

from causal.ids import OUTSIDE, ChannelId, TaskIndex, TaskName
from causal.topology import Channel, Task, Topology
from tests.exhaustive.world import Job


def graph(names: str, *ends: tuple[int, int]) -> Topology:
    """Tasks by name, channels by their ends; -1 is outside."""
    tasks = tuple(Task(TaskIndex(i), TaskName(name)) for i, name in enumerate(names.split()))
    channels = []
    for place, (source, target) in enumerate(ends):
        partition = sum(1 for before in ends[:place] if before[0] == OUTSIDE)
        channels.append(
            Channel(ChannelId(place), TaskIndex(source), TaskIndex(target), partition if source == OUTSIDE else 0)
        )
    return Topology(tasks, tuple(channels))


PAIR = graph("source sink", (-1, 0), (0, 1), (1, -1))
CHAIN = graph("source middle sink", (-1, 0), (0, 1), (1, 2), (2, -1))
MERGE = graph("left right sink", (-1, 0), (-1, 1), (0, 2), (1, 2), (2, -1))
TRIANGLE = graph("source middle join", (-1, 0), (0, 1), (0, 2), (1, 2), (2, -1))

JOBS = {job.name: job for job in (Job("pair", PAIR, records=3, crashes=2, asks=1),)}
