"""Unsettled rows: an earlier version of the job sent them differently from what the current code would send.

A row is derived again with the code of the run when it is retracted, so that nothing is stored twice. At an upgrade the
value sent by the earlier version is stored wherever the new code derives another (`operators.runtime.sent_rows`), by
row: {name of a reader: what it received last, None for nothing}, and under `OWN` the row itself. The first revision of
such a row carries that with it to all its readers, `(key, old, new, sent)`, and then the row is settled: no operator
between them leaves the revision out, and each reader takes back what it received.
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
"""The place of the row itself among what was sent of it; no operator has that name."""


class RowStage(Stage, ABC):
    """Base of stages that keep the rows of a table and send revisions of them."""

    unsettled: KeyedTable
    """Key of a row -> what was sent of it."""

    def _begin_settled(self, node: Node, scope: Scope, group_of: Callable[[Any], Any] | None = None) -> None:
        """Prepare for unsettled rows; called by the constructor.

        Args:
            group_of: the part of the key of a row that decides its key group.
        """
        self.unsettled = KeyedTable(f"{node.name}:sent", node.name, scope.config.key_groups, group_of=group_of)

    @abstractmethod
    def rows(self) -> Iterable[tuple[Any, Any]]:
        """Return (key, row) of each row, as this version sends it."""

    def sent(self) -> dict[Any, dict[str, Any]]:
        """Return what was sent of unsettled rows, by the keys of their revisions."""
        return self.unsettled.values

    def settle(self, sent: dict[Any, dict[str, Any]]) -> None:
        """Store the values sent of unsettled rows, by the keys of their revisions; all other rows are settled from then
        on.
        """
        self.unsettled.clear()
        self.unsettled.values.update(sent)

    def _sent(self, key: Any, row: Any) -> Any:
        """Return the row as it was sent, which this version would have sent as `row`."""
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
        """Forget unsettled rows that have no revision any more."""
        entries = self.unsettled.values
        if entries:
            gone = [key for key in keys if key in entries]
            self.unsettled.touch(gone)
            for key in gone:
                del entries[key]
