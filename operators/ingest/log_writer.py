"""The writer of an ingest log whose records a process next to the job stores, batch by batch, each with a note.

What a batch contains and the note that states how much of the input it covers become durable in one step. A successor
of a writer that died therefore continues exactly after the last batch.
"""

from __future__ import annotations

from collections.abc import Callable

from operators.ingest.bound import BOUNDS, LogBounds, await_room, bound_kept, orphaned
from operators.ingest.contract import Segment, segment_name
from operators.ingest.ingest_log import IngestLog


class LogWriter:
    """The only process that writes to a log of one channel.

    Args:
        query: the name of the kind of rows, which stays the same for a log.
    Attributes:
        batch: the number of the next batch.
        note: the note that was published with the last batch; "" before the first batch.
        token: 1 for the first process that wrote to this log, and higher for each process that took over.
    """

    def __init__(self, log: IngestLog, query: str, bounds: LogBounds = BOUNDS) -> None:
        log.create()
        self._log = log
        self._bounds = bounds
        self._query = query
        self._orphaned = orphaned()
        self._take_over()

    def _take_over(self) -> None:
        self._staged: list[Segment] = []
        self.ended = self._log.ended() is not None
        self.token = self._log.take_over()
        batches = self._log.batches()
        self.batch = batches[-1] + 1 if batches else 0
        last = self._log.manifest(batches[-1]) if batches else None
        self.note = last.offsets if last is not None else ""

    def start_over(self) -> None:
        """Remove what was staged and not published.

        Raises:
            Fenced: another process has taken over.
        """
        self._log.check_token(self.token)
        self._take_over()

    def stage(self, data: bytes, rows: int) -> None:
        """Write the next rows of the next batch to the disk; they belong to the job once the batch is published.

        A successor of this process removes what was staged and not published.
        """
        name = segment_name(self.batch, 0, self.token, 0, len(self._staged))
        digest = self._log.write_segment(name, data)
        self._staged.append(Segment(name, 0, len(self._staged), rows, digest))

    def publish_staged(self, note: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Publish the staged rows, which then are the job's; wait while too many bytes are unread.

        Args:
            meanwhile: called repeatedly during the wait.
        Raises:
            Fenced: another process has taken over.
            Unavailable: the job has ended.
        """

        def ended() -> bool:
            meanwhile()
            return self._orphaned()

        if not self._staged:
            self.stage(b"", 0)
        await_room(self._log, self.batch, self.token, self._staged, self._bounds.unread_bytes_max, ended)
        self._log.publish(self._query, self.batch, self.token, self._staged, note)
        bound_kept(self._log, self.batch, self._bounds.kept_bytes_max)
        self.batch += 1
        self._staged = []
        self.note = note

    def end(self) -> None:
        """Record that no more rows will arrive."""
        self._log.end(self.token)
