"""Conversion between the snapshots of tasks and those of their subtasks, so that an upgrade may change the grouping.

A savepoint is converted subtask by subtask (`rescaling`), because a subtask means the same in every grouping: it has
the same name, the same operators and the same store. Only the tasks that perform the subtasks differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from causal.cut import Cut
from causal.errors import CorruptData
from causal.ids import OUTSIDE
from causal.topology import Task, Topology
from operators.engine.cell_chain import each_subtask_of_cell, of_cell


@dataclass(frozen=True, slots=True)
class Saved:
    """A task's or subtask's snapshot at the savepoint: its cut and, for each file, oldest first, the parts after it."""

    task: Task
    cut: Cut
    files: tuple[tuple[bytes, ...], ...]


def saved_subtasks(topology: Topology, saved: Sequence[Saved]) -> list[Saved]:
    """Return the snapshots of all subtasks, in the order of `topology.subtasks`.

    Raises:
        CorruptData: the snapshot of a cell does not contain one of its subtasks.
    """
    result: dict[int, Saved] = {}
    for task, each in zip(topology.tasks, saved, strict=True):
        subtasks = topology.subtasks_of(task.index)
        if len(subtasks) == 1:
            result[subtasks[0].index] = Saved(subtasks[0], _outer_cut(topology, task, each.cut), each.files)
            continue
        files: dict[str, list[tuple[bytes, ...]]] = {subtask.name: [] for subtask in subtasks}
        progress = {}
        for file in each.files:
            for name, progress_then, own in each_subtask_of_cell(file):
                progress[name] = progress_then
                files.setdefault(name, []).append(tuple(own))
        for subtask in subtasks:
            if subtask.name not in progress:
                raise CorruptData(f"the savepoint lacks the state of {subtask.name}; restore it from a copy")
            _, ended, over = progress[subtask.name]
            cut = _outer_cut(topology, task, each.cut)
            inputs: dict[int, tuple[int, int, bool]] = {
                channel.id: cut.inputs.get(channel.id, (0, 0, has_ended))
                for channel, has_ended in zip(topology.subtasks.inputs(subtask.index), ended, strict=True)
            }
            cut = Cut(cut.epoch, inputs, cut.outputs, cut.last_ns, over, places=cut.places)
            result[subtask.index] = Saved(subtask, cut, tuple(files[subtask.name]))
    return [result[subtask.index] for subtask in topology.subtasks.tasks]


def _outer_cut(topology: Topology, task: Task, cut: Cut) -> Cut:
    """Return the cut of a task with the numbers that its channels have between subtasks."""
    numbers: dict[int, int] = {
        c.id: topology.subtask_channel(c).id for c in (*topology.inputs(task.index), *topology.outputs(task.index))
    }
    return Cut(
        cut.epoch,
        {numbers[channel]: where for channel, where in cut.inputs.items()},
        {numbers[channel]: where for channel, where in cut.outputs.items()},
        cut.last_ns,
        cut.finished,
        {numbers[channel]: mark for channel, mark in cut.marks.items()},
        {numbers[channel]: place for channel, place in cut.places.items()},
    )


def grouped_cuts(topology: Topology, cuts: Mapping[str, Cut]) -> dict[str, Cut]:
    """Return the cut of each task, from the cuts of all subtasks by name."""
    result: dict[str, Cut] = {}
    for task in topology.tasks:
        own = [cuts[subtask.name] for subtask in topology.subtasks_of(task.index)]
        inputs = {channel: where for cut in own for channel, where in cut.inputs.items()}
        outputs = {channel: where for cut in own for channel, where in cut.outputs.items()}
        marks = {channel: mark for cut in own for channel, mark in cut.marks.items()}
        places = {channel: place for cut in own for channel, place in cut.places.items()}
        result[task.name] = Cut(
            own[0].epoch,
            {c.id: inputs[topology.subtask_channel(c).id] for c in topology.inputs(task.index)},
            {
                c.id: outputs[n]
                for c in topology.outputs(task.index)
                if (n := topology.subtask_channel(c).id) in outputs
            },
            max(cut.last_ns for cut in own),
            all(cut.finished for cut in own),
            {c.id: marks[n] for c in topology.inputs(task.index) if (n := topology.subtask_channel(c).id) in marks},
            {c.id: places[n] for c in topology.inputs(task.index) if (n := topology.subtask_channel(c).id) in places},
        )
    return result


def grouped_chains(
    topology: Topology, chains: Mapping[str, Sequence[bytes]], finished: Mapping[int, bool]
) -> dict[str, Sequence[bytes]]:
    """Return the snapshot of each task, from the snapshots of all subtasks by name.

    Args:
        finished: whether each subtask has processed all of its input, by its index.
    """
    result: dict[str, Sequence[bytes]] = {}
    for task in topology.tasks:
        subtasks = topology.subtasks_of(task.index)
        if len(subtasks) == 1:
            result[task.name] = chains[subtasks[0].name]
            continue
        snapshots = []
        for subtask in subtasks:
            inputs = topology.subtasks.inputs(subtask.index)
            ended = [finished[subtask.index if channel.source == OUTSIDE else channel.source] for channel in inputs]
            snapshots.append((subtask.name, ([0] * len(inputs), ended, finished[subtask.index]), chains[subtask.name]))
        result[task.name] = of_cell(snapshots)
    return result
