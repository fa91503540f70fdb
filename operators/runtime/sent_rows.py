"""Derivation of the table rows that the version which wrote a savepoint had sent, for the version that continues.

A running job derives an old value again with the code that sent it. The code is part of a run, so at an upgrade the
code of the earlier version determines what each reader had received for each row. If the new code derives a different
value, the received value is stored with the row, which is then unsettled (`operators.kinds.tables.unsettled`). All of
this happens offline, before any process is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from causal.errors import PipelineError, invariant
from causal.ports import Chain
from operators.engine.operator_chain import OperatorChain
from operators.engine.plan import Plan
from operators.graph import Node
from operators.kinds.tables.attempts import Raised, attempted
from operators.kinds.tables.readers import REVISIONS, SUPPRESS, Reader, keeps_rows, readers, received
from operators.kinds.tables.sameness import same
from operators.kinds.tables.suppressing import SuppressStage
from operators.kinds.tables.unsettled import OWN, RowStage
from operators.kinds.windows.aggregates import Aggregate
from operators.records.ownership import copy_containers

Written = Callable[[], AbstractContextManager[Plan]]
"""Loads the plan of the version that wrote the savepoint; the plan's code can be called until the plan is closed."""
Files = Sequence[Sequence[bytes]]
"""The parts of each file of a task's snapshot, oldest first."""
_NEW_NAME = "give the operator a new name and pass --allow-dropped-state"


class SentRows:
    """The values that a table's readers had received for each row at a savepoint.

    Args:
        files: the files of each task of the plan that wrote the savepoint.

    Raises:
        PipelineError: that version's code cannot be loaded, or a reader now reads the rows of another table.
    """

    def __init__(self, written: Written, files: Sequence[Files], plan: Plan) -> None:
        self._nodes = {node.name: node for node in plan.operators}
        self._rows: dict[str, dict[Any, Any]] = {}
        self._waiting: dict[str, dict[Any, list[Any]]] = {}
        """The revisions that each `suppress` holds back, by key."""
        self._facts: dict[str, dict[Any, Any]] = {}
        """The rows that each reader has received, by reader."""
        self._tables: dict[str, tuple[str, Reader]] = {}
        """The table that each reader reads."""
        self._readers: dict[str, list[Reader]] = {}
        """The readers of each table or `suppress` in the new plan."""
        nodes = [node for node in plan.operators if keeps_rows(node)]
        if nodes:
            for node in (node for node in plan.operators if keeps_rows(node) or node.kind == SUPPRESS):
                self._readers[node.name] = readers(plan.operators, node)
            with written() as before:
                self._remember(before, files)
            self._check(nodes)

    # The previous version.

    def _remember(self, before: Plan, files: Sequence[Files]) -> None:
        tasks = before.subtasks.tasks
        invariant(len(tasks) == len(files), "the plan of a savepoint has its tasks", tasks=len(tasks))
        overrides: dict[str, dict[Any, dict[str, Any]]] = {}
        for task, parts in zip(tasks, files, strict=True):
            if not any(keeps_rows(node) or node.kind == SUPPRESS for node in before.subtask_nodes(task.index)):
                continue
            for stage in _stages(_restored(before.subtask_chain(task.index), parts)):
                if isinstance(stage, RowStage):
                    sent = stage.sent()
                    overrides.setdefault(stage.name, {}).update(sent)
                    self._rows.setdefault(stage.name, {}).update(
                        (key, sent[key].get(OWN, row) if key in sent else row) for key, row in stage.rows()
                    )
                elif isinstance(stage, SuppressStage):
                    self._waiting.setdefault(stage.name, {}).update(
                        (key, waiting) for (key, _), waiting in stage.waiting.items()
                    )
        for node in (node for node in before.operators if keeps_rows(node)):
            for reader in readers(before.operators, node):
                self._tables[reader.name] = node.name, reader
                self._facts[reader.name] = dict(self._received(node.name, reader, overrides.get(node.name, {})))

    def _received(self, table: str, reader: Reader, overrides: dict[Any, dict[str, Any]]) -> Iterable[tuple[Any, Any]]:
        rows = self._rows.get(table, {})
        waiting_keys = [key for node in reader.path for key in self._waiting.get(node.name, ())]
        for key in dict.fromkeys((*rows, *waiting_keys)):  # a deleted row may still have a pending revision
            row = rows.get(key)
            waiting, place = self._holding(reader.path, key)
            sent = overrides.get(key, {}) if waiting is None else waiting[2] if len(waiting) > 2 else {}
            value = row if waiting is None else waiting[0]
            fact = sent[reader.name] if reader.name in sent else received(reader.path[place:], key, value, sent)
            if fact is not None:
                yield key, fact

    def _holding(self, path: Sequence[Node], key: Any) -> tuple[list[Any] | None, int]:
        """Return what the last `suppress` on a path that holds `key` contains, and where the path continues."""
        for place in range(len(path), 0, -1):
            node = path[place - 1]
            waiting = self._waiting.get(node.name, {}).get(key) if node.kind == SUPPRESS else None
            if waiting is not None:
                return waiting, place
        return None, 0

    # The version that continues.

    def _check(self, tables: Iterable[Node]) -> None:
        """Refuse a change after which an operator that accumulates or forwards rows could not retract earlier ones."""
        for node in tables:
            for reader in self._readers[node.name]:
                if reader.name not in self._tables or not (reader.accumulates or reader.node.kind == REVISIONS):
                    continue
                was, before = self._tables[reader.name]
                dropped = was not in self._nodes and not reader.accumulates  # possible only with --allow-dropped-state
                if was != node.name and self._facts[reader.name] and not dropped:
                    raise PipelineError(
                        f"{reader.node.where}: {reader.node.kind} {reader.node.name!r} has rows of table "
                        f"{was!r} but now reads {node.name!r}, so those rows would never be retracted; "
                        f"{_NEW_NAME if reader.accumulates else 'give the operator a new name'}"
                    )
                if reader.node.kind == "aggregate":
                    _check_retraction(before.node.subject, reader.node, self._facts[reader.name].values())

    def settle(self, chain: Chain) -> None:
        """Store the values that a restored chain's tables had sent, where the new code derives different ones."""
        for stage in _stages(chain):
            if isinstance(stage, RowStage):
                entries = ((key, self._unlike(stage.name, key, row)) for key, row in stage.rows())
                stage.settle({key: entry for key, entry in entries if entry})
            elif isinstance(stage, SuppressStage):
                for (key, _), waiting in stage.waiting.items():
                    sent = {
                        reader.name: fact
                        for reader in self._readers[stage.name]
                        if self._holding(reader.path, key)[0] is None
                        and not same(fact := self._fact(reader.name, key), self._claimed(reader, key, waiting[0]))
                    }
                    waiting[2:] = [sent] if sent else []

    def _unlike(self, table: str, key: Any, row: Any) -> dict[str, Any]:
        """Return the values that were sent for a row and that the new code would have sent differently."""
        was = self._rows.get(table, {}).get(key)
        sent: dict[str, Any] = {} if same(was, row) else {OWN: was}
        for reader in self._readers[table]:
            if self._holding(reader.path, key)[0] is None:
                fact = self._fact(reader.name, key)
                if not same(fact, self._claimed(reader, key, was)):
                    sent[reader.name] = fact
        return sent

    def _claimed(self, reader: Reader, key: Any, row: Any) -> Any:
        """Return what a reader has received for a row, according to the new code."""
        sent = {node.name: self._fact(node.name, key) for node in reader.path if node.kind == SUPPRESS}
        return received(reader.path, key, row, sent)

    def _fact(self, reader: str, key: Any) -> Any:
        return self._facts.get(reader, {}).get(key)


def _restored(chain: Chain, files: Files) -> Chain:
    for parts in files:
        chain.restore(parts)
    return chain


def _stages(chain: Chain) -> Sequence[Any]:
    return chain.stages if isinstance(chain, OperatorChain) else ()


def _check_retraction(before: Aggregate[Any, Any], node: Node, facts: Iterable[Sequence[Any]]) -> None:
    """Refuse an aggregate that would not retract a value as the previous one would, because rows would stay wrong.

    Each of the two retracts each value of a group from an accumulator that the previous aggregate created.

    Raises:
        PipelineError: the results differ.
    """
    for group, value in facts:
        accumulator = attempted(_added, before, value)
        if type(accumulator) is Raised:  # the group had refused the value
            continue
        if not same(_taken(before, accumulator, value), _taken(node.subject, accumulator, value)):
            raise PipelineError(
                f"{node.where}: aggregate {node.name!r} does not retract {_shown(value)} from group {_shown(group)} as "
                f"the aggregate that added it would, so its rows would stay wrong; {_NEW_NAME}"
            )


def _added(aggregate: Aggregate[Any, Any], value: Any) -> Any:
    """Return an accumulator to which `value` was added twice."""
    return aggregate.add(aggregate.add(aggregate.initial(), copy_containers(value)), copy_containers(value))


def _taken(aggregate: Aggregate[Any, Any], accumulator: Any, value: Any) -> Any:
    """Return the accumulator after the value has been subtracted, or `Raised` if that fails."""
    subtract = aggregate.subtract
    invariant(subtract is not None, "an aggregate of a table can subtract")
    result = attempted(subtract, copy_containers(accumulator), copy_containers(value))  # type: ignore[arg-type]
    return Raised if type(result) is Raised else result


def _shown(value: object) -> str:
    return " ".join(repr(value)[:100].split())
