"""The reader of rows that versions before 0031 staged in a directory, in files `e<epoch>.rows`.

Such a file contains one record per bundle. The `owner` file of these versions contained only the name of the process
that was allowed to write them.
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
        """Yield the bundles in order, reading one file at a time; an incomplete last record is left out.

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
        """Remove the files that contain the rows."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self._directory.glob("e*.rows"))
