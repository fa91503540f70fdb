"""Unsettled rows, which an earlier version of the job sent with other values than the current code derives.

A row is derived again with the code of the run when it is retracted, so that nothing is stored twice. At an upgrade,
the values that the earlier version sent are stored for each row for which the new code derives different ones
(`operators.runtime.sent_rows`): {name of a reader: the value that it last received, None for no row}, with the row
itself under `OWN`. The first revision of such a row carries these values to all its readers as `(key, old, new, sent)`;
then the row is settled. No operator between them drops the revision, and each reader retracts the value that it
received.
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
"""The key of the row itself among the values sent for it; no operator has this name."""


class RowStage(Stage, ABC):
    """The base class of stages that keep the rows of a table and send revisions of them."""

    unsettled: KeyedTable
    """Key of a row -> the values that were sent for it."""

    def _begin_settled(self, node: Node, scope: Scope, group_of: Callable[[Any], Any] | None = None) -> None:
        """Prepare for unsettled rows; called by the constructor.

        Args:
            group_of: returns the part of a row's key that determines its key group.
        """
        self.unsettled = KeyedTable(f"{node.name}:sent", node.name, scope.config.key_groups, group_of=group_of)

    @abstractmethod
    def rows(self) -> Iterable[tuple[Any, Any]]:
        """Return (key, row) of each row, as this version of the job sends it."""

    def sent(self) -> dict[Any, dict[str, Any]]:
        """Return the values sent for unsettled rows, by the keys of their revisions."""
        return self.unsettled.values

    def settle(self, sent: dict[Any, dict[str, Any]]) -> None:
        """Store the values sent for unsettled rows, by the keys of their revisions; all other rows become settled."""
        self.unsettled.clear()
        self.unsettled.values.update(sent)

    def _sent(self, key: Any, row: Any) -> Any:
        """Return the row that was sent in place of `row`, which this version would have sent."""
        entries = self.unsettled.values
        return entries[key].get(OWN, row) if entries and key in entries else row

    def _revision(self, key: Any, old: Any, new: Any) -> Revision:
        """Return the revision of a row, which settles it."""
        entries = self.unsettled.values
        if not entries or key not in entries:
            return key, old, new
        self.unsettled.touch((key,))
        return key, old, new, entries.pop(key)

    def _forget_sent(self, keys: Iterable[Any]) -> None:
        """Remove unsettled rows that will have no further revision."""
        entries = self.unsettled.values
        if entries:
            gone = [key for key in keys if key in entries]
            self.unsettled.touch(gone)
            for key in gone:
                del entries[key]
