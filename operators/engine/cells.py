"""The grouping of the subtasks of a plan into tasks: one subtask per task, or cells of several subtasks (D20, 0036).

A subtask is one instance of a group of fused operators. With `one`, all subtasks that may share a process do so; with
`stages`, the sources share one process, and everything downstream of them shares another. If groups have several
instances, they share processes in slices: slice 0 consists of the first instance of each group, and so on, as long as
no records are exchanged between slices.

Each group has a *level*, and the subtasks of one level share a task. A group is one level above an input with which it
may not share a task, so tasks never form a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.topology import Cell, Topology
from operators.engine.fusion import Group
from operators.graph import ORDERED

PER_TASK, ONE, STAGES = "per-task", "one", "stages"
_NAMES = {ONE: ("one",), STAGES: ("sources", "rest")}
"""The names of the cells at level 0 and above; cells at higher levels have the last name and a number."""


@dataclass(frozen=True, slots=True)
class Apart:
    """The reason for which an operator's tasks do not share a process with others."""

    operator: str
    reason: str


def apart(groups: Sequence[Group], mode: str, config: JobConfig) -> list[Apart]:
    """Return the operators that may not share a process with all others, with the reasons."""
    placed = len(set(map(_place, groups))) > 1
    result: list[Apart] = []
    for group in groups:
        reason = _reason(group, config)
        if not reason and placed and _place(group):
            reason = "its place admits other hosts than the places of the others"
        if not reason and mode == ONE and config.hot and group.root.kind == "source":
            reason = "sources have no hot standbys"
        if reason:
            result.append(Apart(group.name, reason))
    return result


def _reason(group: Group, config: JobConfig) -> str:
    for node in group.nodes:
        if node.name in config.hot_operators:
            return "it has a hot standby of its own"
        if node.options.get("delivery") == ORDERED:
            return 'delivery="ordered" determines the order of its input by content, not by a log'
    return ""


def cells(subtasks: Topology, groups: Sequence[Group], mode: str, config: JobConfig) -> list[Cell]:
    """Return the tasks, in topological order, with the subtasks that each performs.

    Args:
        groups: the groups of the subtasks; if `subtasks` has one more task, that task writes dead letters.
        mode: ONE or STAGES.

    Raises:
        PipelineError: with ONE, an operator has more than one task.
    """
    if mode == ONE:
        for group in groups:
            if group.parallelism > 1:
                raise PipelineError(
                    f"{group.root.where}: operator {group.root.name!r} has parallelism {group.parallelism}, and one "
                    "process performs only one task of each operator; set its parallelism to 1, or run the pipeline "
                    "with --processes stages"
                )
    levels = _levels(groups, mode, config)
    members: dict[tuple[Any, ...], list[int]] = {}
    for group in groups:
        alone = (group.name,) if _reason(group, config) else ()
        for index in range(group.parallelism):
            key = (levels[group.root.ordinal], group.parallelism, _place(group), alone, index)
            members.setdefault(key, []).append(group.first + index)
    _add_letters(subtasks, members)
    ordered = sorted(members.items(), key=lambda item: (item[0][0], item[1][0]))
    taken = {name for group in groups for name in (group.name, *(node.name for node in group.nodes))}
    return _named(subtasks, ordered, taken, mode)


def _levels(groups: Sequence[Group], mode: str, config: JobConfig) -> dict[int, int]:
    """Return the level of each group, by the ordinal of its root."""
    home = {node.ordinal: group for group in groups for node in group.nodes}
    levels: dict[int, int] = {}
    for group in groups:  # in topological order
        level = 0
        for edge in group.root.edges:
            sender = home[edge.source.ordinal]
            border = (mode == STAGES or config.hot) and sender.root.kind == "source"
            aligned = sender.parallelism == group.parallelism and (
                group.parallelism == 1 or (edge.key_of is None and not edge.broadcast)
            )
            apart = _reason(sender, config) or _reason(group, config) or _place(sender) != _place(group)
            level = max(level, levels[sender.root.ordinal] + bool(border or not aligned or apart))
        levels[group.root.ordinal] = level
    return levels


def _place(group: Group) -> tuple[Any, ...]:
    """Return the hosts on which a group may run; subtasks share a task only if these are the same."""
    places = [node.options["place"] for node in group.nodes if "place" in node.options]
    return tuple((host, tuple(sorted(labels.items()))) for host, labels in places)


def _add_letters(subtasks: Topology, members: dict[tuple[Any, ...], list[int]]) -> None:
    """Add the subtask that writes dead letters, which reads from every other subtask, to the last cell if possible.

    All other tasks keep their names, because a job may begin to write dead letters when it is resumed.
    """
    letters = len(subtasks.tasks) - 1
    if letters < sum(map(len, members.values())):
        return
    highest = max(level for level, *_ in members)
    last = [key for key in members if key[0] == highest]
    _, parallelism, place, alone, _ = last[0]
    reads_tasks = len(members) > 1  # a task reads from partitions or from tasks, not from both
    joins = len(last) == 1 and len(members[last[0]]) > 1 and parallelism == 1
    if joins and not (place or alone) and (highest > 0 or not reads_tasks):
        members[last[0]].append(letters)
    else:
        members[highest + 1, 1, (), ("",), 0] = [letters]


def _named(
    subtasks: Topology, ordered: Sequence[tuple[tuple[Any, ...], list[int]]], taken: set[str], mode: str
) -> list[Cell]:
    result: list[Cell] = []
    names: dict[tuple[Any, ...], str] = {}
    for (level, parallelism, place, alone, index), own in ordered:
        if len(own) == 1:
            result.append((subtasks.tasks[own[0]].name, tuple(own)))
            continue
        key = (level, parallelism, place, alone)
        if key not in names:
            base = _NAMES[mode][min(level, len(_NAMES[mode]) - 1)]
            name, number = base, 1
            while name in taken:
                number += 1
                name = f"{base}-{number}"
            taken.add(name)
            names[key] = name
        result.append((f"{names[key]}/{index}", tuple(sorted(own))))
    return result
