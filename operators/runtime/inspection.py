"""The inspection of one key's state, or of an operator's keys, in the files of a checkpoint, for `causal state`.

A new chain for the task that owns the key is loaded with the parts for the key's group and with increments that are not
divided by key group. It is then inspected like a running chain. As in a standby, only the pipeline file is executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
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
from operators.records.keys import Unroutable, canonical_key, key_group, task_of_group

BEGINNINGS = ('"', "[", "{")
"""The beginnings of JSON other than a number or constant; plain text that begins like this needs double quotes."""
LOADED_BYTES_MAX = 64 << 20
"""The approximate limit on the bytes of snapshots loaded to list keys; a larger state is sampled by key group."""


def key_of(text: str) -> Any:
    """Parse a key: plain text, or JSON in which a list stands for a tuple and an object for a type that JSON lacks.

    Raises:
        PipelineError: the text is empty, looks like JSON but is not valid JSON, or is not a key.
    """
    try:
        if _plain(text):
            return text
        return canonical_key(_meant(json.loads(text)))
    except (ValueError, ArithmeticError, RecursionError) as problem:
        fix = "use text, a number, or other JSON: a string in double quotes, a list for a tuple"
        raise PipelineError(f"the key {text:.80} cannot be used ({problem}); {fix}") from None


def text_of_key(key: Any) -> str:
    """Return a text that `key_of` parses as this key: the key itself if it is plain text, otherwise JSON."""
    if type(key) is str and _plain(key):
        return key
    return json.dumps(_spelled(key), ensure_ascii=False)


def _plain(text: str) -> bool:
    """Return whether a text neither is JSON nor looks as if it was meant to be JSON."""
    if not text.strip() or text.lstrip().startswith(BEGINNINGS):
        return False
    try:
        json.loads(text, parse_constant=_refused)
    except ValueError:
        return True
    return False


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_KINDS: Mapping[str, Callable[[str], Any]] = {
    "bytes": bytes.fromhex,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
}
"""Parsers for the kinds of keys that JSON lacks, as in `{"decimal": "1.1"}`."""


def _meant(value: Any) -> Any:
    if type(value) is list:
        return tuple(map(_meant, value))
    if type(value) is dict:
        [(kind, text)] = value.items() if len(value) == 1 else [("", "")]
        if kind not in _KINDS or type(text) is not str:
            raise Unroutable(f"the value of an object must be a string, after one of {', '.join(_KINDS)}")
        return _KINDS[kind](text)
    return value


def _spelled(value: Any) -> Any:
    """Return `value` in its JSON form; this is the inverse of `_meant`."""
    if isinstance(value, tuple):
        return list(map(_spelled, value))
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    return value


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
