"""The reader of one partition of files: a position is a row number across the partition's files, in order.

Marks record the positions at which files and blocks begin, so that any position since the last checkpoint can be read
again from the nearest mark. The mark at the last checkpoint is stored in the job directory for the successor of this
process. It only saves reading: if it is missing, the successor counts rows from the first file.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, DeterminantsLost, Unavailable
from causal.records.unreadable import Unreadable
from causal.storage.files import read_parts, write_parts
from operators.source import Read
from operators.sources.files.file_blocks import Blocks, Mark
from operators.sources.files.listing import RESTORE, FileJournal, Listed, Listing

POLL_S = 0.5
"""The pause between two looks for new files, while there is nothing to read."""
FOLDER = "file-listings"
"""The folder of a job's directory that holds the listings of its sources."""
MARKS_MAX = 4096
"""The most marks that are kept; of more, every second is let go."""

Open = Callable[[Listed, Mark], Blocks]


@dataclass(frozen=True, slots=True)
class _Place:
    """A mark in a file, with its position; `listing` and `index` locate the file in the listings."""

    position: int
    listing: int
    index: int
    mark: Mark


class FileReader:
    """A `PartitionReader` of files.

    Args:
        source: the name of the source, for messages.
        open_blocks: opens a file in the source's format.
        located: whether each record is a dict of file, line and value.
        poll_s: the interval between two searches for new files; 0 for no pause.
    """

    def __init__(
        self,
        journal: FileJournal,
        partition: int,
        partitions: int,
        source: str,
        open_blocks: Open,
        located: bool = False,
        poll_s: float = POLL_S,
    ) -> None:
        self._journal = journal
        self._partition = partition
        self._partitions = partitions
        self._name = f"source {source!r}, partition {partition}"
        self._open = open_blocks
        self._located = located
        self._poll_s = poll_s
        self._path = journal.directory / f"partition-{partition}"
        self._listing: tuple[int, Listing | None] = (-1, None)
        self._blocks: Blocks | None = None
        self._rows: list[Any] = []
        self._stored = self._load()
        self._next = self._stored  # the place at which reading continues after `_rows`
        self._first = self._stored.position  # the position of the first of `_rows`
        self._places = [self._stored]
        self._look_at_s = 0.0

    def read(self, position: int, count_max: int) -> Read | None:
        """Return up to `count_max` rows of one block, or None if there is no file to read.

        Raises:
            DeterminantsLost: a file has changed or was removed.
            CorruptData: a file is damaged.
            OperatorFailed: a file cannot be read.
            Unavailable: the read can be retried later.
        """
        if position < self._first or position > self._next.position:
            self._return_to(position)
        while position >= self._first + len(self._rows):
            state = self._advance()
            if state is not None:
                if position > self._next.position:
                    raise DeterminantsLost(
                        f"{self._name}: the job has read up to row {position}, but its files end at "
                        f"{self._next.position}; {RESTORE}"
                    )
                return Read([], time.monotonic_ns(), ended=True) if state == "ended" else None
        start = position - self._first
        return Read(self._rows[start : start + count_max], time.monotonic_ns())

    def ready_in_s(self, position: int) -> float:
        """Return 0 if the rows at `position` are in memory, or else the interval between two searches for files."""
        return 0.0 if self._first <= position < self._first + len(self._rows) else self._poll_s

    def measured(self, position: int) -> tuple[int, int] | None:
        """Return the approximate number of file bytes read and their total, or None if files may still be added."""
        listing, place = self._listing[1], self._next
        if listing is None or not listing.last:
            return None
        sizes = [file.size if file.number % self._partitions == self._partition else 0 for file in listing.files]
        read = sum(sizes[: place.index])
        if place.index < len(sizes):
            read += min(place.mark.offset, sizes[place.index])
        return read, sum(sizes)

    def completed(self, position: int) -> None:
        """Discard marks that will not be needed again, and store the mark at which the next process begins."""
        at = bisect_right(self._places, position, key=_position) - 1
        if at <= 0:
            return
        del self._places[:at]
        body = [
            self._places[0].position,
            self._places[0].listing,
            self._places[0].index,
            *astuple(self._places[0].mark),
        ]
        with suppress(Unavailable):  # without the new mark, a later process only reads more of the file
            write_parts(self._path, [json.dumps(body).encode()], durable=False)

    def close(self) -> None:
        if self._blocks is not None:
            self._blocks.close()
            self._blocks = None

    # ----------------------------------------------------------------------------------------------------------

    def _load(self) -> _Place:
        try:
            position, listing, index, *mark = json.loads(read_parts(self._path)[0])
            return _Place(position, listing, index, Mark(*mark))
        except CorruptData:  # the file is missing, or was cut short by a loss of power
            return _Place(0, 0, 0, Mark())

    def _return_to(self, position: int) -> None:
        if position < self._places[0].position:  # the position comes from an older savepoint
            self._places.insert(0, _Place(0, 0, 0, Mark()))
        at = bisect_right(self._places, position, key=_position) - 1
        self.close()
        self._next = self._places[at]
        self._first, self._rows = self._next.position, []

    def _advance(self) -> str | None:
        """Load the next block into memory and return None, or return "waits" or "ended" if there is no block."""
        place = self._next
        listing = self._listing_of(place.listing)
        if listing is None:
            return "waits"
        if place.index >= len(listing.files):
            if listing.last:
                return "ended"
            self._step(_Place(place.position, place.listing + 1, 0, Mark()))
            return None
        file = listing.files[place.index]
        if file.number % self._partitions != self._partition:
            self._next = _Place(place.position, place.listing, place.index + 1, Mark())
            return None
        try:
            if self._blocks is None:
                self._blocks = self._open(file, place.mark)
            block = self._blocks.next()
        except BaseException:
            self.close()
            raise
        if block is None:
            self.close()
            self._step(_Place(place.position, place.listing, place.index + 1, Mark()))
            return None
        rows, lines = block
        if self._located:
            shown = file.shown
            rows = [
                row if type(row) is Unreadable else {"file": shown, "line": line, "value": row}
                for row, line in zip(rows, lines, strict=True)
            ]
        self._first, self._rows = place.position, rows
        self._step(_Place(place.position + len(rows), place.listing, place.index, self._blocks.mark))
        return None

    def _step(self, place: _Place) -> None:
        self._next = place
        if place.position < self._places[-1].position:
            return  # this part of the file was read before, so its marks exist
        if place.position == self._places[-1].position:
            self._places[-1] = place
            return
        self._places.append(place)
        if len(self._places) > MARKS_MAX:
            del self._places[1::2]

    def _listing_of(self, number: int) -> Listing | None:
        if self._listing[0] != number or self._listing[1] is None:
            listing = self._journal.listing(number)
            now_s = time.monotonic()
            if listing is None and now_s >= self._look_at_s:
                if self._journal.look(number):
                    listing = self._journal.listing(number)
                took_s = time.monotonic() - now_s  # a large directory is searched less often
                self._look_at_s = now_s + (max(self._poll_s, 10 * took_s) if self._poll_s else 0.0)
            self._listing = (number, listing)
        return self._listing[1]


def _position(place: _Place) -> int:
    return place.position


def directory_of(job_directory: Path, name: str) -> Path:
    """Return the directory that contains the journal of the source named `name`."""
    return job_directory / FOLDER / name
