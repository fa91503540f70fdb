"""`table.join(name, other)`, in which pairs of two tables' rows with equal keys are the rows of a third table.

A revision on either side causes at most one revision of the result. A row (a, None) that is later revised to (a, b) is
correct in a table, so revisions never wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from causal.errors import CausalError, invariant
from operators.graph import LEFT, RIGHT, Node
from operators.kinds.joins.sides import Pair, apart, keeps_left, keeps_right
from operators.kinds.tables.revisions import PLAIN, Revision
from operators.kinds.tables.sameness import same
from operators.kinds.tables.unsettled import RowStage
from operators.stage.scope import Scope
from operators.state.keyed_tables import KeyedTable


class TableJoinStage(RowStage):
    """One task of a join of two tables; `<name>:left` and `<name>:right` contain their rows."""

    sides = True
    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        name, how, key_groups = node.name, node.options["how"], scope.config.key_groups
        self._fn: Pair = apart(node.subject)
        self._alone = keeps_left(how), keeps_right(how)
        self._rows = (
            KeyedTable(f"{name}:left", name, key_groups),
            KeyedTable(f"{name}:right", name, key_groups),
        )
        self._begin_settled(node, scope)

    def run_side(self, side: int, records: list[Revision], keys: list[Any] | None) -> list[Revision]:
        keys = keys or []
        invariant(len(keys) == len(records), "a table has a key for each revision", operator=self.name)
        mine, others = self._rows[side], self._rows[1 - side].values
        mine.touch(keys)
        rows, out, unsettled = mine.values, list[Revision](), self.unsettled.values
        for index, revision in enumerate(records):
            key, new = revision[0], revision[2]
            old, other = rows.get(key), others.get(key)
            if len(revision) > PLAIN and same(old, new):
                continue
            if new is None:
                rows.pop(key, None)
            else:
                rows[key] = new
            old_row = self._row(side, key, old, other, None)
            new_row = self._row(side, key, new, other, index)
            if unsettled:
                old_row = self._sent(key, old_row)
            if not same(old_row, new_row):
                out.append(self._revision(key, old_row, new_row) if unsettled else (key, old_row, new_row))
        return out

    def _row(self, side: int, key: Any, mine: Any, other: Any, index: int | None) -> Any:
        """Return the joined row, or None if there is none or the function raises (reported if `index` is not None)."""
        left, right = (mine, other) if side == LEFT else (other, mine)
        if (left is None and right is None) or (right is None and not self._alone[LEFT]):
            return None
        if left is None and not self._alone[RIGHT]:
            return None
        try:
            return self.own_row(key, self._fn(left, right))
        except CausalError:
            raise
        except Exception as problem:
            if index is not None:
                self.failed(index, {"left": left, "right": right}, problem, key)
            return None

    def tables(self) -> list[KeyedTable]:
        return [*self._rows, self.unsettled]

    def rows(self) -> Iterable[tuple[Any, Any]]:
        lefts, rights = (rows.values for rows in self._rows)
        for key in dict.fromkeys([*lefts, *rights]):
            yield key, self._row(LEFT, key, lefts.get(key), rights.get(key), None)
