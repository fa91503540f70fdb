"""Counts how often in a row user code has failed in one micro-batch, in a file beside the driver's own."""

from __future__ import annotations

from pathlib import Path

from causal.errors import CorruptData
from operators.sources.ingest_contract import seal, unseal


class Failures:
    """The failures of the driver's query in the batch that is next, on this host."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "failures.json"

    def count(self, batch: int) -> int:
        """Count a failure of the user's code in this batch; returns how many there were since a batch was published."""
        try:
            failures = unseal(self._path.read_bytes(), str(self._path))
            count = int(failures["count"]) + 1 if failures["batch"] == batch else 1
        except (FileNotFoundError, CorruptData, KeyError, TypeError, ValueError):
            count = 1
        fresh = self._path.with_name(f".{self._path.name}")
        fresh.write_bytes(seal({"batch": batch, "count": count}))
        fresh.rename(self._path)
        return count

    def forget(self) -> None:
        """Reset the count: the code may have been corrected."""
        self._path.unlink(missing_ok=True)
