"""Reads the rows that versions before 0031 staged in a directory: `e<epoch>.rows`, a record per bundle.

Their `owner` named the process that might write them, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from causal.errors import CausalError, CorruptData
from causal.ports import Bundle
from causal.records.values import decode
from causal.storage.framing import bodies
from causal.storage.lock import outside


class EarlierRows:
    """The rows in the directory of one sink task; see `operators.sinks.staging.staged_store.Earlier`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def bundles(self) -> Iterator[Bundle]:
        """Yield the bundles in order, of one epoch in memory at a time; a torn tail is left out.

        Raises:
            CorruptData: a file is damaged.
        """
        for path in self._files():
            with outside(path):
                stored = path.read_bytes()
            for body in bodies(stored, path)[0]:
                try:
                    first, count, rows, digest, epoch = decode(body)
                    bundle = Bundle(int(first), int(count), bytes(rows), int(digest), int(epoch), -1, ())
                except (CausalError, TypeError, ValueError) as problem:
                    raise CorruptData(
                        f"{path} has a record that is not a staged bundle ({problem}); restore the file"
                    ) from None
                yield bundle

    def remove(self) -> None:
        """Remove the files."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self._directory.glob("e*.rows"))
