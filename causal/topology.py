"""The immutable job graph: the channels between tasks, and the tasks whose determinants each task holds.

The outside world (a source's partition, a sink's store) is the far end of ordinary channels, so positions, digests and
handshakes need no separate rules for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from causal.errors import invariant
from causal.ids import OUTSIDE, ChannelId, TaskIndex, TaskName

FULL_DEPTH = 1_000_000
"""The sharing depth that covers any graph: every downstream task holds every determinant."""
DEAD_LETTERS = "dead-letters"
"""The operator that writes dead letters."""
LETTER_TASK = TaskName(f"{DEAD_LETTERS}/0")
"""The task or subtask that performs this operator."""
REQUESTS = 1
"""The value of `partition` for a channel to the outside world that carries requests."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One FIFO stream of elements from `source` to `target`; one of the two may be `OUTSIDE`.

    If `source` is OUTSIDE, `partition` is the number of the source's partition. If `target` is OUTSIDE and the elements
    are requests instead of rows, it is `REQUESTS`. Otherwise it is 0.
    """

    id: ChannelId
    source: TaskIndex
    target: TaskIndex
    partition: int = 0

    @property
    def carries_requests(self) -> bool:
        """Whether the channel carries requests instead of rows; their determinants are held by the channel's store."""
        return self.target == OUTSIDE and self.partition == REQUESTS


@dataclass(frozen=True, slots=True)
class Task:
    """One parallel instance of an operator chain, or a cell of several instances, which runs as a process.

    `ordered` states whether the inputs are delivered in an order that depends only on their content and is not logged.
    """

    index: TaskIndex
    name: TaskName
    operators: tuple[str, ...] = ()
    ordered: bool = False


Cell = tuple[str, tuple[int, ...]]
"""The name of a task, and the indices of the subtasks that it performs, in ascending order."""


@dataclass(frozen=True)
class Topology:
    """All tasks and channels of a job.

    `tasks` are in topological order (an upstream task has the lower index), so cycles cannot be expressed. Each
    channel's id is its index: `channels[i].id == i`. The inputs and outputs of a task are always in the order of their
    ids.

    A *cell* is a task that performs several subtasks. In the topology `subtasks`, each subtask is a task. Channels
    between the subtasks of one cell are not channels of this topology, because both ends are lost together (D20).
    """

    tasks: tuple[Task, ...]
    channels: tuple[Channel, ...]
    cells: tuple[Cell, ...] = field(default=(), repr=False)
    """The subtasks of each task; empty if every task is its only subtask."""
    _subtasks: Topology | None = field(default=None, repr=False)
    _inputs: dict[int, tuple[Channel, ...]] = field(init=False, repr=False, compare=False)
    _outputs: dict[int, tuple[Channel, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for place, task in enumerate(self.tasks):
            invariant(task.index == place, "a task's index is its place", task=task.name)
        for place, channel in enumerate(self.channels):
            invariant(channel.id == place, "a channel's id is its place", channel=channel)
            invariant(
                OUTSIDE in (channel.source, channel.target) or channel.source < channel.target,
                "tasks are in topological order",
                channel=channel,
            )
        object.__setattr__(self, "_inputs", self._by(lambda channel: channel.target))
        object.__setattr__(self, "_outputs", self._by(lambda channel: channel.source))

    def _by(self, end: Callable[[Channel], TaskIndex]) -> dict[int, tuple[Channel, ...]]:
        groups: dict[int, list[Channel]] = {task.index: [] for task in self.tasks}
        for channel in self.channels:
            if end(channel) != OUTSIDE:
                groups[end(channel)].append(channel)
        return {index: tuple(group) for index, group in groups.items()}

    @classmethod
    def grouped(cls, subtasks: Topology, cells: Sequence[Cell]) -> Topology:
        """Return the topology whose tasks perform these subtasks; their channels keep their order.

        Args:
            cells: the tasks in topological order; each subtask belongs to exactly one of them.
        """
        invariant(
            sorted(subtask for _, members in cells for subtask in members) == list(range(len(subtasks.tasks))),
            "each subtask belongs to one task",
            cells=cells,
        )
        owner = {subtask: TaskIndex(place) for place, (_, members) in enumerate(cells) for subtask in members}
        owner[OUTSIDE] = OUTSIDE
        tasks = [
            Task(TaskIndex(place), TaskName(name), _operators(own), len(own) == 1 and own[0].ordered)
            for place, (name, members) in enumerate(cells)
            for own in [[subtasks.tasks[subtask] for subtask in members]]
        ]
        between = [c for c in subtasks.channels if owner[c.source] != owner[c.target]]
        channels = [
            Channel(ChannelId(place), owner[c.source], owner[c.target], c.partition) for place, c in enumerate(between)
        ]
        return cls(tuple(tasks), tuple(channels), tuple(cells), subtasks)

    # Subtasks.

    @property
    def subtasks(self) -> Topology:
        """The topology in which each subtask is a task; the topology itself if it has no cells."""
        return self if self._subtasks is None else self._subtasks

    @cached_property
    def _subtask_channels(self) -> tuple[Channel, ...]:
        if self._subtasks is None:
            return self.channels
        owner = {subtask: place for place, (_, members) in enumerate(self.cells) for subtask in members}
        return tuple(c for c in self._subtasks.channels if owner.get(c.source) != owner.get(c.target))

    def subtasks_of(self, task: int) -> tuple[Task, ...]:
        """Return the subtasks that a task performs, in topological order; the task itself if it is not a cell."""
        if self._subtasks is None:
            return (self.tasks[task],)
        return tuple(self._subtasks.tasks[subtask] for subtask in self.cells[task][1])

    def subtask_channel(self, channel: Channel) -> Channel:
        """Return a channel of this topology as a channel between subtasks."""
        return self._subtask_channels[channel.id]

    def account(self, channel: Channel) -> str:
        """Return the name under which a store knows the writer of a channel: that of the subtask, in every grouping."""
        return self.subtasks.tasks[self.subtask_channel(channel).source].name

    def performer(self, name: str) -> Task | None:
        """Return the task that has this name or performs the subtask with this name; None if there is none."""
        task = self.named(name)
        if task is None and self._subtasks is not None:
            subtask = self._subtasks.named(name)
            places = [place for place, (_, members) in enumerate(self.cells) if subtask and subtask.index in members]
            task = self.tasks[places[0]] if places else None
        return task

    # Neighbours.

    def inputs(self, task: TaskIndex) -> tuple[Channel, ...]:
        return self._inputs[task]

    def outputs(self, task: TaskIndex) -> tuple[Channel, ...]:
        return self._outputs[task]

    def upstream(self, task: TaskIndex) -> tuple[TaskIndex, ...]:
        """Return the tasks that send to `task` in ascending order, without the outside world."""
        return tuple(sorted({c.source for c in self.inputs(task)} - {OUTSIDE}))

    def downstream(self, task: TaskIndex) -> tuple[TaskIndex, ...]:
        """Return the tasks to which `task` sends in ascending order, without the outside world."""
        return tuple(sorted({c.target for c in self.outputs(task)} - {OUTSIDE}))

    def is_source(self, task: TaskIndex) -> bool:
        return any(channel.source == OUTSIDE for channel in self.inputs(task))

    def is_sink(self, task: TaskIndex) -> bool:
        return any(c.target == OUTSIDE and not c.carries_requests for c in self.outputs(task))

    def named(self, name: str) -> Task | None:
        return self._names.get(name)

    @cached_property
    def _names(self) -> dict[str, Task]:
        return {task.name: task for task in self.tasks}

    @cached_property
    def components(self) -> tuple[tuple[TaskIndex, ...], ...]:
        """The connected components, by first task: each is a set of tasks that channels connect in either direction.

        An external store or partition does not connect tasks, because no determinant passes through it.
        """
        first = [task.index for task in self.tasks]  # the lowest index known to be connected to each task

        def root(task: TaskIndex) -> TaskIndex:
            while first[task] != task:
                first[task] = task = first[first[task]]
            return task

        for channel in self.channels:
            if OUTSIDE not in (channel.source, channel.target):
                low, high = sorted((root(channel.source), root(channel.target)))
                first[high] = low
        groups: dict[TaskIndex, list[TaskIndex]] = {}
        for task in self.tasks:
            groups.setdefault(root(task.index), []).append(task.index)
        return tuple(tuple(group) for group in groups.values())

    def ancestors(self, task: TaskIndex) -> dict[TaskIndex, int]:
        """Return every task upstream of `task` with its shortest distance in hops (1 for a direct neighbour)."""
        distance: dict[TaskIndex, int] = {}
        frontier: Iterable[TaskIndex] = self.upstream(task)
        hops = 1
        while frontier:
            fresh = sorted({t for t in frontier if t not in distance})
            distance.update(dict.fromkeys(fresh, hops))
            frontier = [up for t in fresh for up in self.upstream(t)]
            hops += 1
        return distance

    @cached_property
    def depth(self) -> int:
        """A sharing depth that covers the entire job, so that no task depends on a log that it does not hold.

        A task that passes on elements must also pass on every log on which they depend. This applies even if its
        neighbour is closer to the log's owner by another path, because that path may be slower (detected by the
        simulator, seed 4).
        """
        return max(
            (
                hops + bool(self.downstream(task.index))
                for task in self.tasks
                for hops in (0, *self.ancestors(task.index).values())
            ),
            default=0,
        )

    def held_by(self, task: TaskIndex, sharing_depth: int) -> tuple[TaskIndex, ...]:
        """Return the tasks whose logs `task` holds: itself, and its ancestors up to the sharing depth (D3)."""
        return tuple(sorted([task, *(t for t, hops in self.ancestors(task).items() if hops <= sharing_depth)]))

    def shared_by(self, task: TaskIndex, sharing_depth: int) -> tuple[TaskIndex, ...]:
        """Return the tasks whose logs `task` passes on: itself, and its ancestors closer than the sharing depth (D3).

        A log therefore reaches the tasks up to `sharing_depth` hops downstream of its owner.
        """
        if sharing_depth < 1:
            return ()
        near = [t for t, hops in self.ancestors(task).items() if hops < sharing_depth]
        return tuple(sorted([task, *near]))


def _operators(subtasks: Sequence[Task]) -> tuple[str, ...]:
    """Return the operators of several subtasks, each operator once."""
    return tuple(dict.fromkeys(name for subtask in subtasks for name in subtask.operators))
