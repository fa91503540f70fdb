"""The reader of an ingest log's channel as a partition: positions 0, 1, 2 … over (batch, Spark partition, row).

The reader keeps an index of the manifests that no complete checkpoint covers yet, and the current segment. While it
waits, it checks for a single file name, that of the next manifest.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from causal.errors import CorruptData, DeterminantsLost, OperatorFailed, Unavailable, invariant
from causal.records.values import NotCarried
from operators.ingest.contract import RESTORE, ReadableLog, Segment
from operators.records.arrow_rows import Unheld, rows_of, vectors_of
from operators.records.seconds import seconds_of
from operators.source import Read

if TYPE_CHECKING:
    import pyarrow as pa

POLL_S = 0.005
LOOKS_PER_CHECK = 100
"""The number of looks in vain for the next manifest after which the reader checks that it can still come."""


class IngestReader:
    """A `PartitionReader` that reads published rows in order and releases those that checkpoints cover.

    Args:
        log: the ingest log, which may not exist yet.
        channel: the channel of the log to read.
        source: the name of the source, for messages.
        vectors: whether rows are read as vectors instead of dicts.
        checkpoints: whether the job takes checkpoints; without them, a batch is no longer needed once it has been read.
    """

    def __init__(
        self, log: ReadableLog, channel: int, source: str, vectors: bool = False, checkpoints: bool = True
    ) -> None:
        invariant(0 <= channel < log.channels, "a reader reads a channel of its log", channel=channel)
        self._log = log
        self._channel = channel
        self._rows_of: Callable[[Any, int, int], Any] = self._vectors_of if vectors else self._dicts_of
        self._place = f"source {source!r}, partition {channel}"
        self._begun = False
        self._next_batch = 0
        self._first = 0  # the position at which the index begins
        self._end = 0  # the position at which the index ends
        self._batches: list[tuple[int, int]] = []  # (batch, position after it) of all uncovered batches, ascending
        self._starts: list[int] = []  # the position of the first row of each element of `_pieces`
        self._pieces: list[tuple[Segment, int]] = []  # segments with rows, and their publication times
        self._loaded: tuple[str, pa.Table] | None = None
        self._fetching = False
        """Whether the segment requested last is still being fetched."""
        self._ended = False
        self._checkpoints = checkpoints
        self._looks = 0
        """The number of looks in vain for the next manifest."""
        self._done = 0
        """The batch below which all are done with, as last noted in the log."""
        self.note = ""
        """The note that was published with the last batch that this reader knows."""

    def read(self, position: int, count_max: int) -> Read | None:
        """Return up to `count_max` rows of one segment, or None if there are none yet.

        Raises:
            CorruptData: a manifest or segment does not match its digest.
            DeterminantsLost: the position was released, or the log is not the one that the job has read.
            Unavailable: the log cannot be read at the moment.
        """
        try:
            while (self._end <= position or self._is_short(position)) and self._advance(position):
                pass
        except OSError as problem:
            raise Unavailable(f"{self._place}: {problem}") from problem
        if not self._checkpoints:
            self._note_done(position)
        if position < self._first:
            raise DeterminantsLost(
                f"{self._place}: position {position} was already released: {self._log.where} begins at {self._first}"
            )
        if position > self._end and not self._log.caught_up:
            return None
        if position > self._end:
            raise DeterminantsLost(
                f"{self._place}: the job has read up to {position}, but {self._log.where} ends at {self._end}: "
                f"the log was removed or replaced; {RESTORE}"
            )
        if position == self._end:
            return Read([], time.monotonic_ns(), ended=True) if self._ended else None
        return self._rows(position, count_max)

    def ready_in_s(self, position: int) -> float:
        """Return 0 if the next published row is available, or else the interval between two checks of the log."""
        return 0.0 if self._first <= position < self._end and not self._fetching else POLL_S

    def completed(self, position: int) -> None:
        """Release batches that are entirely below `position`; files are removed when no channel needs them."""
        covered = 0
        while covered < len(self._batches) - 1 and self._batches[covered][1] <= position:
            covered += 1
        if not covered:
            self._note_done(position)
            return
        self._first = self._batches[covered - 1][1]
        del self._batches[:covered]
        pieces = bisect_right(self._starts, self._first - 1)
        del self._starts[:pieces]
        del self._pieces[:pieces]
        self._done = self._behind(position)
        self._log.release(self._channel, self._batches[0][0], self._done)

    def _behind(self, position: int) -> int:
        """Return the first batch that has a row at or after `position`."""
        place = bisect_right(self._batches, position, key=itemgetter(1))
        return self._batches[place][0] if place < len(self._batches) else self._next_batch

    def _note_done(self, position: int) -> None:
        """Record which batches are entirely below `position`, so that others may be published; remove nothing."""
        done = self._behind(position) if self._batches else 0
        if done > self._done:
            self._done = done
            self._log.release(self._channel, self._batches[0][0], done)

    def counters(self) -> dict[str, int | float]:
        """Return the published bytes that are still needed, and how long a batch has waited for room.

        Partition 0 reports the backlog for all partitions.
        """
        figures: dict[str, int | float] = {}
        if self._log.unavailable_s is not None:
            figures["ingest_store_waiting_s"] = round(self._log.unavailable_s, 1)
        backlog = self._log.backlog() if self._channel == 0 else None
        if backlog is None:
            return figures
        waiting_s = seconds_of(time.monotonic_ns() - backlog.since_ns) if backlog.since_ns else 0.0
        figures["ingest_unread_bytes"] = backlog.unread_bytes
        figures["ingest_waiting_s"] = round(max(waiting_s, 0.0), 1)
        return figures

    def close(self) -> None:
        self._loaded = None
        self._log.close()

    # ----------------------------------------------------------------------------------------------------------

    def _is_short(self, position: int) -> bool:
        """Return whether the index has fewer pieces after that position than the log fetches ahead."""
        ahead = self._log.segments_ahead
        return bool(ahead) and len(self._pieces) - bisect_right(self._starts, position) < ahead

    def _advance(self, position: int) -> bool:
        """Add the next manifest to the index; return False if the manifest is not published yet."""
        manifest = self._log.manifest(self._next_batch) if self._begun else self._log.first()
        if manifest is None and self._begun and position > self._end:
            manifest = self._log.first()
            if manifest is not None and manifest.batch > self._next_batch:
                self._forget()  # all channels released the batches in between while this reader was advancing
            elif manifest is not None and manifest.batch < self._next_batch:
                manifest = None
        if manifest is None:
            self._looks += 1
            if self._begun and self._looks % LOOKS_PER_CHECK == 0:
                self._log.check_follows(self._next_batch)
            return False
        self._looks = 0
        self._ended = manifest.ended
        if not manifest.ended:
            self.note = manifest.offsets
        if self._begun:
            invariant(manifest.before[self._channel] == self._end, "batches follow each other", batch=manifest.batch)
        else:
            self._begun = True
            self._first = self._end = manifest.before[self._channel]
        for segment in manifest.of_channel(self._channel):
            if segment.rows:
                self._starts.append(self._end)
                self._pieces.append((segment, manifest.published_ns))
                self._end += segment.rows
        self._batches.append((manifest.batch, self._end))
        self._next_batch = manifest.batch + 1
        return True

    def _forget(self) -> None:
        """Restart the index at the lowest batch."""
        self._begun = False
        self._batches.clear()
        self._starts.clear()
        self._pieces.clear()

    def _rows(self, position: int, count_max: int) -> Read | None:
        index = bisect_right(self._starts, position) - 1
        segment, published_ns = self._pieces[index]
        table = self._table(index)
        self._fetching = table is None
        if table is None:
            return None
        start = position - self._starts[index]
        records = self._rows_of(table, start, min(count_max, segment.rows - start))
        now_ns = time.monotonic_ns()  # after a reboot, recorded publication times may be in the future
        return Read(records, min(published_ns, now_ns))

    def _dicts_of(self, table: pa.Table, start: int, count: int) -> Any:
        try:
            return rows_of(table, start, count, repairs=True)
        except Unheld as problem:
            raise OperatorFailed(f"{self._place}: {problem}; change or drop this value in read()") from None

    def _vectors_of(self, table: pa.Table, start: int, count: int) -> Any:
        try:
            return vectors_of(table, start, count)
        except NotCarried as problem:
            raise OperatorFailed(f"{self._place}: {problem}; do so in read(), or read rows") from None

    def _table(self, index: int) -> pa.Table | None:
        """Return the rows of a piece, or None while its segment is being fetched."""
        segment = self._pieces[index][0]
        if self._loaded is None or self._loaded[0] != segment.file:
            self._loaded = None
            try:
                data = self._log.supply(
                    [piece for piece, _ in self._pieces[index : index + 1 + self._log.segments_ahead]]
                )
            except OSError as problem:
                raise Unavailable(f"{self._place}: {problem}") from problem
            if data is None:
                return None
            self._loaded = (segment.file, self._decode(segment, data))
        return self._loaded[1]

    def _decode(self, segment: Segment, data: bytes) -> pa.Table:
        import pyarrow as pa

        try:
            table = pa.ipc.open_stream(data).read_all()
        except pa.ArrowException as problem:
            raise CorruptData(f"{self._log.label(segment)} is not Arrow: {problem}") from None
        if table.num_rows != segment.rows:
            path = self._log.label(segment)
            raise CorruptData(f"{path} contains {table.num_rows} rows, but its manifest says {segment.rows}; {RESTORE}")
        return table
