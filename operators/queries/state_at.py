"""The keyed state of a job at one checkpoint, which a process holds in memory as a standby does, to answer questions.

`advance` moves all tasks to the next checkpoint. In between, the state is of no single moment and answers nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causal.commands import Files
from causal.errors import PipelineError, Unavailable
from causal.topology import Task
from operators.builder.pipeline import Pipeline
from operators.engine.plan import Plan
from operators.graph import Node
from operators.queries.key_order import KeyRange, OrderedKeys
from operators.queries.stored_state import by_table
from operators.records.keys import key_group, task_of_group
from operators.runtime.image import Image

IN_PLACE_BYTES_MAX = 4 << 20
"""The size of a task's files up to which its state is read again in place, while answers wait."""
NEVER = 0
"""The epoch of a state that is of no single checkpoint."""


class NoSuchState(PipelineError):
    """There is no such operator, or it keeps nothing of the kind that was asked for."""


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """The state that one task keeps for a key, by table; table names are without the operator's name."""

    task: str
    state: Mapping[str, Any]


class Operators:
    """The operators of a version of a job, and the tasks that perform them."""

    def __init__(self, pipeline: Pipeline, plan: Plan, key_groups: int) -> None:
        self._nodes: dict[str, Node] = {node.name: node for node in pipeline.nodes}
        self._tasks = {name: [task for task in plan.topology.tasks if name in task.operators] for name in self._nodes}
        self._key_groups = key_groups

    def keyed(self, operator: str) -> bool:
        """Return whether an operator follows key_by."""
        return bool(self._node(operator).keyed)

    def tasks(self, operator: str) -> Sequence[Task]:
        """Return the tasks of an operator.

        Raises:
            NoSuchState: there is no such operator.
        """
        self._node(operator)
        return self._tasks[operator]

    def owners(self, operator: str, key: Any) -> Sequence[Task]:
        """Return the tasks that may keep state for a key: one task after key_by, otherwise all tasks of the operator.

        Raises:
            NoSuchState: there is no such operator.
        """
        tasks = self.tasks(operator)
        if not self.keyed(operator):
            return tasks
        return [tasks[task_of_group(key_group(key, self._key_groups), len(tasks), self._key_groups)]]

    def _node(self, operator: str) -> Node:
        node = self._nodes.get(operator)
        if node is None:
            known = ", ".join(name for name, each in self._nodes.items() if each.kind not in ("source", "sink"))
            raise NoSuchState(f"operator {operator!r} does not exist; the operators are {known or 'none'}")
        return node


class StateAt:
    """The state of all tasks with state, at the checkpoint of `epoch`.

    State: `epoch` is that of the last `advance`; `NEVER` before the first one, during one, and after one that failed.

    Args:
        only: the operators whose tasks are held; all operators if it is empty.
    """

    def __init__(self, operators: Operators, plan: Plan, directory: Path, only: Iterable[str] = ()) -> None:
        self.operators = operators
        self.epoch = NEVER
        self._plan = plan
        self._directory = directory
        self._advances = 0
        self._ordered: dict[str, tuple[int, OrderedKeys]] = {}
        """Operator → its keys in order, and the number of the `advance` after which they were listed."""
        self._keeping: dict[str, bool] = {}
        """Operator → whether it keeps state by key."""
        wanted = frozenset(only)
        self._images: dict[str, Image] = {}
        for task in plan.topology.tasks:
            if not wanted or wanted.intersection(task.operators):
                image = Image(plan, task.index, directory)
                for stage in image.chain.stages:
                    keeps = bool(stage.loaders())
                    self._keeping[stage.shown_as] = self._keeping.get(stage.shown_as, False) or keeps
                self._images[task.name] = image

    @property
    def keeping(self) -> list[str]:
        """The held operators that keep state, in the order of the tasks."""
        return [operator for operator, keeps in self._keeping.items() if keeps]

    def prepared(self, files: Mapping[str, Files]) -> dict[str, Image]:
        """Return new images of tasks whose state would take long to read again in place; this changes no state.

        Raises:
            CorruptData: a file is missing, or is not the file that the checkpoint names.
        """
        fresh: dict[str, Image] = {}
        for name, image in self._images.items():
            own = files.get(name, ())
            if not image.covers(own) and sum(size for _, size, _ in own) > IN_PLACE_BYTES_MAX:
                fresh[name] = Image(self._plan, image.task, self._directory)
                fresh[name].load(own)
                _index(fresh[name])
        return fresh

    def advance(self, epoch: int, files: Mapping[str, Files], fresh: Mapping[str, Image]) -> None:
        """Move to a checkpoint; if this fails, the state answers nothing until another `advance` succeeds.

        Args:
            fresh: what `prepared` returned for these files.

        Raises:
            CorruptData: a file is missing, or is not the file that the checkpoint names.
        """
        self.epoch = NEVER
        for name, image in self._images.items():
            if name in fresh:
                image.chain.release()
                self._images[name] = fresh[name]
            else:
                image.load(files.get(name, ()))
                _index(image)
        self._advances += 1
        self.epoch = epoch

    def release(self) -> None:
        """Free the state and its files."""
        self.epoch = NEVER
        for image in self._images.values():
            image.chain.release()

    # Questions.

    def check(self, operator: str) -> None:
        """Check that questions about an operator can be answered.

        Raises:
            NoSuchState: there is no such operator, or it keeps no state by key.
            Unavailable: the state is of no single checkpoint.
        """
        if self.epoch == NEVER:
            raise Unavailable("the checkpoint is being read; repeat the request in a moment")
        tasks = self.operators.tasks(operator)
        if not self._keeping.get(operator) or any(task.name not in self._images for task in tasks):
            kept = ", ".join(self.keeping) or "none"
            raise NoSuchState(f"operator {operator!r} keeps no state that is served; those that do are {kept}")

    def get(self, operator: str, key: Any) -> list[TaskAnswer]:
        """Return what each task that may keep state for a key keeps for it.

        Raises:
            NoSuchState: there is no such operator, or it keeps no state by key.
            Unavailable: the state is of no single checkpoint.
        """
        self.check(operator)
        return [
            TaskAnswer(task.name, by_table(self._images[task.name].chain.inspect(operator, key), operator))
            for task in self.operators.owners(operator, key)
        ]

    def windows(self, operator: str, key: Any) -> list[tuple[str, float, float | None, Any]]:
        """Return (task, start, end, content) of each open window of a key.

        Raises:
            NoSuchState: there is no such operator, or it has no windows.
            Unavailable: the state is of no single checkpoint.
        """
        self.check(operator)
        open_windows = [
            (task.name, stage.windows(key))
            for task in self.operators.owners(operator, key)
            for stage in self._images[task.name].chain.stages
            if stage.shown_as == operator
        ]
        if all(windows is None for _, windows in open_windows):
            raise NoSuchState(f"operator {operator!r} has no windows by key; ask for its state instead")
        return [(task, *window) for task, windows in open_windows for window in windows or ()]

    def scan(self, operator: str, keys: KeyRange) -> tuple[Sequence[Any], int, int]:
        """Return (all keys of an operator in order, start, stop): the keys from `start` to `stop` are in the range.

        Raises:
            NoSuchState: there is no such operator, or it keeps no state by key.
            Unavailable: the state is of no single checkpoint.
        """
        self.check(operator)
        listed, ordered = self._ordered.get(operator, (0, OrderedKeys()))
        if listed != self._advances:
            chains = [self._images[task.name].chain for task in self.operators.tasks(operator)]
            ordered.update({key for chain in chains for key in chain.kept_keys(operator)})
            self._ordered[operator] = self._advances, ordered
        return ordered.keys, *keys.bounds(ordered.keys)


def _index(image: Image) -> None:
    """Index the slots in the tables of an image, which only loads snapshots."""
    for stage in image.chain.stages:
        for table in stage.tables():
            if table.slot_index is None:
                table.index_slots()
