"""JSON lines in objects of a shared store; see `operators.sinks.objects.object_rows`."""

from __future__ import annotations

from collections.abc import Sequence

from causal.errors import invariant
from causal.ports import Bundle
from operators.sinks.journaled.ledger import Entry, Ledger
from operators.sinks.objects.object_rows import ObjectRows

SUFFIX = "jsonl"


class ObjectLines(ObjectRows):
    """The outside world of one sink task, in objects of lines."""

    def _fitted(self, ledger: Ledger, bundle: Bundle) -> None:
        facts = {"task": self._task, "first": bundle.first}
        invariant(not bundle.refused, "a line is never refused", **facts)
        invariant(bundle.rows.count(b"\n") == bundle.count, "one line per row", **facts)

    def _packed(self, entries: Sequence[Entry], first: int, next_: int) -> bytes:
        return b"".join([entry.bundle.rows for entry in entries])
