"""Reads the state of one key of an operator from the files of a checkpoint, for `causal state`.

A new chain of the task that owns the key is loaded with the parts of the key's group, and with increments that are not
divided by key group; then it is inspected as a running one.  As in a standby, only the pipeline's file is executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, PipelineError
from causal.shell.files import read_parts
from causal.task.checkpointing import SnapshotFile
from causal.topology import Task
from operators.builder.pipeline import Pipeline
from operators.engine.chain import FusedChain
from operators.engine.plan import Plan
from operators.graph import Node
from operators.records.keys import Unroutable, canonical_key, key_group, task_of_group


def key_of(text: str) -> Any:
    """Parses a key from JSON: a list is a tuple, an object is a kind that JSON does not have.

    Raises:
        PipelineError: it is not JSON, or not a key.
    """
    try:
        key = canonical_key(_meant(json.loads(text)))
    except (ValueError, ArithmeticError, RecursionError) as problem:
        fix = "it is JSON: a text in double quotes, a number, or a list for a tuple"
        raise PipelineError(f"the key {text:.80} cannot be used ({problem}); {fix}") from None
    return key


_KINDS: Mapping[str, Callable[[str], Any]] = {
    "bytes": bytes.fromhex,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
}
"""Parsers of the kinds of keys that JSON does not have: `{"decimal": "1.1"}`."""


def _meant(value: Any) -> Any:
    if type(value) is list:
        return tuple(map(_meant, value))
    if type(value) is dict:
        [(kind, text)] = value.items() if len(value) == 1 else [("", "")]
        if kind not in _KINDS or type(text) is not str:
            raise Unroutable(f"an object is a text behind one of {', '.join(_KINDS)}")
        return _KINDS[kind](text)
    return value


def owners(pipeline: Pipeline, plan: Plan, operator: str, key: Any, key_groups: int) -> list[Task]:
    """Returns the tasks that may have state of the key: one after key_by, otherwise all of the operator.

    Raises:
        PipelineError: there is no such operator.
    """
    node = _node(pipeline, operator)
    tasks = [task for task in plan.topology.tasks if operator in task.operators]
    if not node.keyed:
        return tasks
    return [tasks[task_of_group(key_group(key, key_groups), len(tasks), key_groups)]]


def _node(pipeline: Pipeline, operator: str) -> Node:
    for node in pipeline.nodes:
        if node.name == operator:
            return node
    known = ", ".join(node.name for node in pipeline.nodes if node.kind not in ("source", "sink"))
    raise PipelineError(f"there is no operator {operator!r}; operators are {known or 'none'}")


def as_of(
    plan: Plan, task: Task, files: Sequence[SnapshotFile], job: Path, operator: str, key: Any, key_groups: int
) -> Mapping[str, Any]:
    """Returns the state of the key, by table, in the checkpoint that names the files.

    Raises:
        CorruptData: a file is missing, or is not the one that the checkpoint names.
        PipelineError: the pipeline's file is not the one that the job runs with.
    """
    group = key_group(key, key_groups)
    chain = plan.chain(task.index)
    if not isinstance(chain, FusedChain):  # a sink keeps nothing by key
        return {}
    for path, _, digest in files:
        parts = read_parts(job / path, digest)
        if not parts:
            raise CorruptData(f"{path} holds no parts")
        chain.restore_group(parts[1:], group)
    return chain.inspect(operator, key)
