"""Traces a record that has failed back through the stages to the record that was delivered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from causal.records.batch import encode_records
from causal.records.rows import listed
from causal.records.values import NotCarried, encode
from operators.stage.branch import Branch
from operators.stage.failures import NO_KEY, Failures


class Tracing:
    """A tracer that blames records that have no route, or cannot be carried, on the operator that gave them.

    Attributes:
        keys: of the records that were delivered, where there are any; the chain sets it in each event.
    """

    def __init__(self, failures: Failures, record_bytes_max: int) -> None:
        self.keys: Sequence[Any] = ()
        self._failures = failures
        self._record_bytes_max = record_bytes_max

    def unroutable(self, branch: Branch, target: str, index: int, key: Any, problem: Exception) -> None:
        """Handle output `index` of the branch, which has no route to the operator `target`."""
        came_from, _ = self._came_from(branch, index)
        self._failures.failed(f"key_by before {target}", key, came_from, listed(branch.output)[index], problem)

    def travels(self, branch: Branch, record: Any, places: Iterator[tuple[int, Any]]) -> bool:
        """Whether a record can be carried; one that cannot has failed.

        Args:
            places: what the branch made, from where the record before was found.
        """
        index = next((index for index, output in places if output is record), None)
        try:
            size = len(encode(record))
            if size <= self._record_bytes_max:
                encode_records([record])  # lists are around it then, and count
                return True
            raise ValueError(
                f"it is {size} bytes, record_bytes_max allows {self._record_bytes_max}; raise it, or split the record"
            )
        except (NotCarried, ValueError) as problem:
            came_from, key = self._came_from(branch, index)
            self._failures.failed(branch.stage.name, key, came_from, record, problem)
        return False

    def _came_from(self, branch: Branch, index: int | None) -> tuple[int | None, Any]:
        """Returns (index, key) of the delivered record that led to the stage's output, where it is known."""
        if index is None or not self._failures.delivers or not branch.stage.traces:
            return None, NO_KEY
        came_from = branch.stage.root_index(branch.stage.source_of(index))
        return came_from, self.keys[came_from] if self.keys and came_from is not None else NO_KEY
