"""`table(name)`, in which the row of a key is its latest record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from causal.errors import invariant
from causal.records.values import NotCarried
from operators.graph import Node
from operators.kinds.tables.revisions import Revision
from operators.kinds.tables.sameness import same
from operators.kinds.tables.unsettled import RowStage
from operators.records.ownership import SCALARS, copy_containers
from operators.stage.scope import Scope
from operators.stage.stages import SelectingStage
from operators.state.keyed_tables import KeyedTable


class LatestStage(SelectingStage, RowStage):
    """`table(name)`, in which the row of a key is its latest record; the record None deletes the row."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._table = KeyedTable(node.name, node.name, scope.config.key_groups)
        self._begin_settled(node, scope)

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Revision]:
        keys = keys or []
        invariant(len(keys) == len(records), "a table has a key for each record", operator=self.name)
        self._table.touch(keys)
        rows, out, places = self._table.values, list[Revision](), list[int]()
        unsettled = self.unsettled.values
        self._kept = places
        for index, (key, record) in enumerate(zip(keys, records, strict=True)):
            old = rows.get(key)
            if same(old, record):
                continue
            if self.leaves and record is not None:
                try:
                    self.failures.carried_row(key, record)
                except (NotCarried, ValueError) as problem:
                    self.failed(index, record, problem, key)
                    continue
            if record is None:
                del rows[key]
            else:
                rows[key] = record
            places.append(index)
            old, new = copy_containers(old), record if type(record) in SCALARS else copy_containers(record)
            out.append(self._revision(key, old, new) if unsettled else (key, old, new))
        return out

    def tables(self) -> list[KeyedTable]:
        return [self._table, self.unsettled]

    def rows(self) -> Iterable[tuple[Any, Any]]:
        return self._table.values.items()
