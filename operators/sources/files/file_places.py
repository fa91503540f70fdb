"""Places in the files of a partition, at which a successor continues, and the storage of the place of a checkpoint.

Of local files it is in a file of the job's directory, and only saves reading: if it is missing, rows are counted from
the first file. Of objects it is in the checkpoint, as a mark (0045), so that it is on every host.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Protocol

from causal.errors import CorruptData, Unavailable
from causal.storage.files import read_parts, write_parts
from operators.source import SourceContext
from operators.sources.files.file_blocks import Mark


@dataclass(frozen=True, slots=True)
class Place:
    """A mark in a file, with its position in the partition; `listing` and `index` locate the file in the listings."""

    position: int = 0
    listing: int = 0
    index: int = 0
    mark: Mark = Mark()

    @classmethod
    def of(cls, text: str | bytes, where: str) -> Place:
        """Return the place that `text` has written.

        Raises:
            CorruptData: the text is not that of a place; the error refers to it as `where`.
        """
        try:
            position, listing, index, row, offset, line = map(int, json.loads(text))
        except (TypeError, ValueError) as problem:
            raise CorruptData(f"{where} is no place in files ({problem}); use a new --state-dir") from None
        return cls(position, listing, index, Mark(row, offset, line))

    @property
    def text(self) -> str:
        """The place as text."""
        return json.dumps([self.position, self.listing, self.index, *astuple(self.mark)])

    def next_file(self) -> Place:
        """Return the place at the beginning of the following file."""
        return Place(self.position, self.listing, self.index + 1)


class Places(Protocol):
    """The storage of the place of the last checkpoint.

    Attributes:
        in_checkpoint: whether the reader gives places as marks, which the checkpoint keeps.
    """

    in_checkpoint: bool

    def load(self) -> Place:
        """Return the place at which a successor continues."""
        ...

    def keep(self, place: Place) -> None:
        """Keep a place that a complete checkpoint covers."""
        ...


class PlaceFile:
    """The place of a partition in a file of the job's directory."""

    in_checkpoint = False

    def __init__(self, directory: Path, partition: int) -> None:
        self._path = directory / f"partition-{partition}"

    def load(self) -> Place:
        """Return the place in the file, or the beginning."""
        try:
            return Place.of(read_parts(self._path)[0], str(self._path))
        except CorruptData:  # the file is missing, or was cut short by a loss of power
            return Place()

    def keep(self, place: Place) -> None:
        """Replace the file."""
        with suppress(Unavailable):  # without the new place, a later process only reads more of the file
            write_parts(self._path, [place.text.encode()], durable=False)


class PlaceInCheckpoint:
    """The place of a partition in the mark of a checkpoint."""

    in_checkpoint = True

    def __init__(self, context: SourceContext) -> None:
        self._context = context

    def load(self) -> Place:
        """Return the place in the mark; without a mark, rows are counted from the first file."""
        mark = self._context.mark
        return Place() if mark is None else Place.of(str(mark), f"the mark of source {self._context.name!r}")

    def keep(self, place: Place) -> None:
        """Do nothing, because the checkpoint has the place."""
