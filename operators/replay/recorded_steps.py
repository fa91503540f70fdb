"""The steps of a recorded epoch: what its sources delivered, in the recorded order and at the recorded times (0056).

A log has the order of one task's reads, and clock readings where the task took some. A read without a reading of its
own is placed evenly between its neighbours. The reads of several tasks are merged by time. The order of partitions and
the times are exact to `JOINED_NS`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from causal.determinants import USER_FIRST, USER_LAST, Clock, DeterminantCodec, Order, Timer
from causal.errors import CorruptData, PeerViolation
from causal.ids import OUTSIDE
from causal.records.varints import read_varint
from causal.topology import Topology
from operators.replay.input_steps import ELEMENTS_MAX, Positions, steps_between
from operators.replay.performance import Step

JOINED_NS = 50_000_000
"""The time within which the reads of a partition are one step; steps of few elements cost most of a comparison."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A task that reads partitions, in one epoch.

    Attributes:
        log: the determinants of the epoch.
        partitions: input ordinal → (source, partition).
    """

    name: str
    log: bytes
    partitions: Mapping[int, tuple[str, int]]


def partitions_of(topology: Topology) -> dict[str, dict[int, tuple[str, int]]]:
    """Return the partitions of each task that reads some: task → input ordinal → (source, partition)."""
    tasks: dict[str, dict[int, tuple[str, int]]] = {}
    for task in topology.tasks:
        for ordinal, channel in enumerate(topology.inputs(task.index)):
            if channel.source == OUTSIDE:
                subtask = topology.subtasks.tasks[topology.subtask_channel(channel).target]
                tasks.setdefault(task.name, {})[ordinal] = subtask.operators[0], channel.partition
    return tasks


def recorded_steps(
    readers: Sequence[Reader], before: Positions, after: Positions, began_ns: int, ended_ns: int
) -> Iterator[Step]:
    """Yield the steps of one epoch.

    Args:
        before, after: the positions of all partitions at its two barriers.
        began_ns, ended_ns: the wall-clock times of the two.

    Raises:
        CorruptData: a log cannot be read, or delivers other elements than the positions state.
    """
    reads = [list(_reads(reader, before, after, began_ns, ended_ns)) for reader in readers]
    moved = any(stop > before.get(partition, (0, False))[0] for partition, (stop, _) in after.items())
    if moved and not any(reads):
        yield from steps_between(before, after, began_ns, ended_ns)
        return
    reached = {partition: before.get(partition, (0, False)) for partition in after}
    for step in _joined(heapq.merge(*reads, key=lambda step: step.at_ns)):
        _, ended = reached[step.source, step.partition]
        reached[step.source, step.partition] = step.stop, ended or step.ends
        yield step
    for (source, partition), (stop, ended) in after.items():
        if reached[source, partition] != (stop, ended):
            raise CorruptData(
                f"the recorded log of source {source!r} leads to position {reached[source, partition][0]} of partition "
                f"{partition}, and the checkpoint after it has {stop}"
            )


def _reads(reader: Reader, before: Positions, after: Positions, began_ns: int, ended_ns: int) -> Iterator[Step]:
    orders, readings = _decoded(reader)
    total = sum(order.count for order in orders)
    times = _Times(readings, began_ns, ended_ns, total)
    at = {partition: before.get(partition, (0, False))[0] for partition in reader.partitions.values()}
    performed = 0
    for order in orders:
        partition = reader.partitions.get(order.input)
        if partition is None or partition not in after:
            raise CorruptData(f"the recorded log of {reader.name} names input {order.input}, which is no partition")
        start, (last, ended) = at[partition], after[partition]
        at[partition] = stop = start + order.count
        ends = ended and stop == last + 1  # an end is an element
        yield Step(times.at(performed), *partition, start, stop - ends, ends)
        performed += order.count


def _decoded(reader: Reader) -> tuple[list[Order], list[tuple[int, int]]]:
    """Return the deliveries of a log, and its clock: (elements delivered before, time in ns), in order."""
    codec, log, place = DeterminantCodec(), reader.log, 0
    orders: list[Order] = []
    readings: list[tuple[int, int]] = []
    delivered = latest = 0
    fresh = False
    """Whether the last event has not read the clock yet."""
    try:
        while place < len(log):
            if USER_FIRST <= log[place] <= USER_LAST:  # its kind need not be registered in this process
                length, place = read_varint(log, place + 1)
                place += length
                continue
            entry, place = codec.decode(log, place)
            if type(entry) is Order:
                orders.append(entry)
                latest, delivered, fresh = delivered, delivered + entry.count, True
            elif type(entry) is Timer:
                readings.append((delivered, entry.due_ns))
                fresh = False
            elif type(entry) is Clock and fresh:
                readings.append((latest, entry.time_ns))
                fresh = False
    except PeerViolation as problem:
        raise CorruptData(f"the recorded log of {reader.name} cannot be read: {problem}") from None
    return orders, readings


class _Times:
    """The time of each element, from some readings in between; times never decrease."""

    def __init__(self, readings: Iterable[tuple[int, int]], began_ns: int, ended_ns: int, total: int) -> None:
        self._known = [(0, began_ns)]
        for place, time_ns in readings:
            self._known.append((place, max(time_ns, self._known[-1][1])))
        self._known.append((total, max(ended_ns, self._known[-1][1])))
        self._next = 1

    def at(self, place: int) -> int:
        """Return the time of the element at `place`; the places must not decrease."""
        while self._known[self._next][0] <= place and self._next < len(self._known) - 1:
            self._next += 1
        (first, earlier), (last, later) = self._known[self._next - 1], self._known[self._next]
        return earlier if last <= first else earlier + (later - earlier) * (place - first) // (last - first)


def _joined(steps: Iterable[Step]) -> Iterator[Step]:
    """Join the reads of each partition that lie within `JOINED_NS`, at the time of the first of them."""
    pending: dict[tuple[str, int], Step] = {}
    since_ns = 0
    for step in steps:
        partition = step.source, step.partition
        before = pending.get(partition)
        if pending and (step.at_ns >= since_ns + JOINED_NS or (before is not None and not _joins(before, step))):
            yield from pending.values()
            pending.clear()
            before = None
        if not pending:
            since_ns = step.at_ns
        pending[partition] = step if before is None else replace(before, stop=step.stop, ends=step.ends)
    yield from pending.values()


def _joins(before: Step, step: Step) -> bool:
    return before.stop == step.start and step.stop - before.start <= ELEMENTS_MAX and not before.ends
