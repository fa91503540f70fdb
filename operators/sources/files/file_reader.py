"""The reader of one partition of files: a position is a row number across the partition's files, in order.

Marks record the positions at which files and blocks begin, so that any position since the last checkpoint can be read
again from the nearest mark. The place of the last checkpoint is kept for the successor of this process (`Places`).
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

from causal.errors import DeterminantsLost
from causal.records.unreadable import Unreadable
from operators.source import Read
from operators.sources.files.file_blocks import Blocks, Mark
from operators.sources.files.file_places import Place, Places
from operators.sources.files.listed import RESTORE, Listed
from operators.sources.files.listing import FileJournal, Listing

POLL_S = 0.5
"""The pause between two looks for new files, while there is nothing to read."""
FOLDER = "file-listings"
"""The folder of a job's directory that holds the listings of its sources."""
MARKS_MAX = 4096
"""The most marks that are kept; of more, every second is let go."""

Open = Callable[[Listed, Mark], Blocks]


class FileReader:
    """A `PartitionReader` of files.

    Args:
        source: the name of the source, for messages.
        places: where the place of the last checkpoint is kept.
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
        places: Places,
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
        self._kept = places
        self._listing: tuple[int, Listing | None] = (-1, None)
        self._blocks: Blocks | None = None
        self._rows: list[Any] = []
        begins = places.load()
        self._next = begins  # the place at which reading continues after `_rows`
        self._first = begins.position  # the position of the first of `_rows`
        self._block = begins  # the place of the block of `_rows`
        self._places = [begins]
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
        rows = self._rows[start : start + count_max]
        return Read(rows, time.monotonic_ns(), marks=self._marks(start, len(rows)))

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
        self._kept.keep(self._places[0])

    def close(self) -> None:
        if self._blocks is not None:
            self._blocks.close()
            self._blocks = None

    # ----------------------------------------------------------------------------------------------------------

    def _marks(self, start: int, count: int) -> list[str]:
        """Return the mark of each of these rows: that of the row's block, and after the last row that of the next."""
        if not self._kept.in_checkpoint:
            return []
        marks = [self._block.text] * count
        if start + count == len(self._rows):
            marks[-1] = self._next.text
        return marks

    def _return_to(self, position: int) -> None:
        if position < self._places[0].position:  # the position comes from an older savepoint
            self._places.insert(0, Place())
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
            self._step(Place(place.position, place.listing + 1))
            return None
        file = listing.files[place.index]
        if file.number % self._partitions != self._partition:
            self._next = place.next_file()
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
            self._step(place.next_file())
            return None
        rows, lines = block
        if self._located:
            shown = file.shown
            rows = [
                row if type(row) is Unreadable else {"file": shown, "line": line, "value": row}
                for row, line in zip(rows, lines, strict=True)
            ]
        self._first, self._rows, self._block = place.position, rows, place
        after = Place(place.position + len(rows), place.listing, place.index, self._blocks.mark)
        if self._blocks.ended:
            self.close()
            after = after.next_file()
        self._step(after)
        return None

    def _step(self, place: Place) -> None:
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


def _position(place: Place) -> int:
    return place.position


def directory_of(job_directory: Path, name: str) -> Path:
    """Return the directory that contains the journal of the source named `name`."""
    return job_directory / FOLDER / name
