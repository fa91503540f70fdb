"""The inspection of one key's state, or of an operator's keys, in the files of a checkpoint, for `causal state`.

A new chain for the task that owns the key is loaded with the parts for the key's group and with increments that are not
divided by key group. It is then inspected like a running chain. As in a standby, only the pipeline file is executed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, PipelineError
from causal.snapshot_files import SnapshotFile
from causal.storage.files import read_parts
from causal.topology import Task
from operators.builder.pipeline import Pipeline
from operators.engine.operator_chain import OperatorChain
from operators.engine.plan import Plan
from operators.graph import Node
from operators.records.keys import key_group, task_of_group

LOADED_BYTES_MAX = 64 << 20
"""The approximate limit on the bytes of snapshots loaded to list keys; a larger state is sampled by key group."""


def owners(pipeline: Pipeline, plan: Plan, operator: str, key: Any, key_groups: int) -> list[Task]:
    """Return the tasks that may have state for the key: one task after key_by, otherwise all tasks of the operator.

    Raises:
        PipelineError: there is no such operator.
    """
    tasks = all_tasks(pipeline, plan, operator)
    if not _node(pipeline, operator).keyed:
        return tasks
    return [tasks[task_of_group(key_group(key, key_groups), len(tasks), key_groups)]]


def all_tasks(pipeline: Pipeline, plan: Plan, operator: str) -> list[Task]:
    """Return the tasks of an operator.

    Raises:
        PipelineError: there is no such operator.
    """
    _node(pipeline, operator)
    return [task for task in plan.topology.tasks if operator in task.operators]


def _node(pipeline: Pipeline, operator: str) -> Node:
    for node in pipeline.nodes:
        if node.name == operator:
            return node
    known = ", ".join(node.name for node in pipeline.nodes if node.kind not in ("source", "sink"))
    raise PipelineError(f"operator {operator!r} does not exist; the operators are {known or 'none'}")


def as_of(
    plan: Plan, task: Task, files: Sequence[SnapshotFile], job: Path, operator: str, key: Any, key_groups: int
) -> Mapping[str, Any]:
    """Return the key's state by table, as of the checkpoint with the given files.

    Raises:
        CorruptData: a file is missing, or is not the file that the checkpoint names.
        PipelineError: the pipeline file is not the one that the job uses.
    """
    chain = _restored(plan, task, files, job, {key_group(key, key_groups)})
    return {} if chain is None else chain.inspect(operator, key)


def keys_as_of(
    plan: Plan, task: Task, files: Sequence[SnapshotFile], job: Path, operator: str, key_groups: int
) -> tuple[set[Any], bool]:
    """Return (keys, whether all are included) for which an operator has state in the checkpoint with the given files.

    Raises:
        CorruptData: a file is missing, or is not the file that the checkpoint names.
        PipelineError: the pipeline file is not the one that the job uses.
    """
    step = max(1, -(-sum(size for _, size, _ in files) // LOADED_BYTES_MAX))
    groups = {*range(0, key_groups, step), key_group(None, key_groups)}
    chain = _restored(plan, task, files, job, groups)
    if chain is None:
        return set(), True
    keys = set(chain.kept_keys(operator))
    return (keys if step == 1 else {key for key in keys if key_group(key, key_groups) in groups}), step == 1


def _restored(
    plan: Plan, task: Task, files: Sequence[SnapshotFile], job: Path, groups: Collection[int]
) -> OperatorChain | None:
    """Return a task's chain with some key groups of a checkpoint; None for a sink, which has no keyed state."""
    chain = plan.chain(task.index)
    if not chain.stages:
        return None
    for path, _, digest in files:
        parts = read_parts(job / path, digest)
        if not parts:
            raise CorruptData(f"{path} does not contain the parts of a snapshot")
        chain.restore_groups(parts[1:], groups)
    return chain
