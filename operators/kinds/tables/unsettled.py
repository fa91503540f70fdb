"""Unsettled rows: rows that an earlier version of the job sent with other values than the current code derives.

A row is not stored as it was sent: when it is retracted, the current code of the run derives it again. At an upgrade,
the new code may derive a different value for a row than the earlier version sent. For each such row, the values that
were sent are stored (`operators.runtime.sent_rows`): {name of a reader: the value that it last received, None for no
row}, with the row itself under `OWN`. The first revision of such a row carries these values to all of its readers as
`(key, old, new, sent)`; then the row is settled. Operators between the table and its readers never drop this revision,
and each reader retracts the value that it received.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from operators.graph import Node
from operators.kinds.tables.revisions import Revision
from operators.stage.scope import Scope
from operators.stage.stages import Stage
from operators.state.keyed_tables import KeyedTable

OWN = ""
"""The key under which the row itself is stored among the values sent for it; no operator has this name."""


class RowStage(Stage, ABC):
    """The base class of stages that keep the rows of a table and send revisions of these rows."""

    unsettled: KeyedTable
    """Row key -> the values that were sent for the row."""

    def _begin_settled(self, node: Node, scope: Scope, group_of: Callable[[Any], Any] | None = None) -> None:
        """Prepare for unsettled rows; the constructor calls this method.

        Args:
            group_of: returns the part of a row's key that determines its key group.
        """
        self.unsettled = KeyedTable(f"{node.name}:sent", node.name, scope.config.key_groups, group_of=group_of)

    @abstractmethod
    def rows(self) -> Iterable[tuple[Any, Any]]:
        """Return (key, row) for each row as this version of the job sends it."""

    def sent(self) -> dict[Any, dict[str, Any]]:
        """Return the values sent for unsettled rows, keyed by revision key."""
        return self.unsettled.values

    def settle(self, sent: dict[Any, dict[str, Any]]) -> None:
        """Store the values sent for unsettled rows, keyed by revision key; all other rows become settled."""
        self.unsettled.clear()
        self.unsettled.values.update(sent)

    def _sent(self, key: Any, row: Any) -> Any:
        """Return the row that an earlier version sent, or `row`, which this version sends, if the row is settled."""
        entries = self.unsettled.values
        return entries[key].get(OWN, row) if entries and key in entries else row

    def _revision(self, key: Any, old: Any, new: Any) -> Revision:
        """Return the revision of a row; if the row was unsettled, the revision settles it."""
        entries = self.unsettled.values
        if not entries or key not in entries:
            return key, old, new
        self.unsettled.touch((key,))
        return key, old, new, entries.pop(key)

    def _forget_sent(self, keys: Iterable[Any]) -> None:
        """Remove the unsettled rows with these keys, which will not be revised any more."""
        entries = self.unsettled.values
        if entries:
            gone = [key for key in keys if key in entries]
            self.unsettled.touch(gone)
            for key in gone:
                del entries[key]
