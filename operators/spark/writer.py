"""The Spark side of the ingest log: a micro-batch's tasks write its rows as segments, and the driver publishes them.

The driver itself writes the segments of small batches.

Any attempt of a task may write segments; the driver publishes only the segments of those attempts whose results Spark
returns to it. Only one kind of Python worker runs, which Spark reuses for later batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

from causal.errors import PipelineError, invariant
from causal.process.clock import take_offset
from operators.ingest.bound import LogBounds, await_room, bound_kept, orphaned
from operators.ingest.contract import RESTORE, Segment, digest_of, segment_name
from operators.ingest.ingest_log import IngestLog
from operators.ingest.place import IngestPlace
from operators.spark.checkpoint import checkpoint_of
from operators.spark.retries import insisted
from operators.spark.small_batches import SmallBatches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEGMENT_BYTES = 16 << 20
"""The size at which a segment is closed; a reader has one segment in memory."""
WRITTEN = pa.schema(
    [
        ("file", pa.string()), ("partition", pa.int32()), ("part", pa.int32()), ("rows", pa.int64()),
        ("digest", pa.string()), ("size", pa.int64()),
    ]
)  # fmt: skip
"""The fields of `Segment` and its size in Arrow bytes, which a task returns for each segment that it wrote."""
_DRIVER = (1 << 63) - 1
"""The attempt number of segments that the driver writes."""


class BatchPublisher:
    """The publisher of one query's micro-batches, in the driver process.

    Args:
        token: the token that was created when the driver took over the log.
        checkpoint: the directory of Spark's own checkpoint of the query.
        bounds: the bounds of the log.
        apart: whether executors on other hosts run the tasks.
        wanted: returns whether any process still waits for a batch; called repeatedly while a batch cannot be
            published.
    Attributes:
        problem: the error with which the last batch failed, of which Spark passes on only the text.
    """

    def __init__(
        self,
        place: IngestPlace,
        token: int,
        checkpoint: Path,
        bounds: LogBounds,
        apart: bool,
        wanted: Callable[[], bool],
    ) -> None:
        self.problem: Exception | None = None
        self._place = place
        self._token = token
        self._checkpoint = checkpoint
        self._bounds = bounds
        self._apart = apart
        self._wanted = wanted
        self._small = SmallBatches()

    def publish(self, frame: DataFrame, batch: int) -> None:
        """Write and publish one batch, for `foreachBatch`; after a crash, Spark repeats a batch, which has no effect.

        Raises:
            Exception: an error from Spark's tasks, from the user's code in them, or from the log.
        """
        self.problem = None
        try:
            self._publish(frame, batch)
        except Exception as problem:
            self.problem = problem
            raise

    def _publish(self, frame: DataFrame, batch: int) -> None:
        log, checkpoint = self._place.open(), checkpoint_of(self._place)
        segments = self._segments(frame, batch, log)
        take_offset(self._place.job_directory)
        if checkpoint is not None and self._apart and (checkpoint.directory / "state").exists():
            raise PipelineError(
                "read() keeps state (it aggregates, joins or removes duplicates), which executors would keep "
                "on their own disks; keep state in operators of the pipeline instead"
            )
        query, offsets = stored_query(self._checkpoint), self._offsets(batch)
        kept = checkpoint.packed(batch, self._token) if checkpoint is not None else None

        def publish() -> None:
            await_room(log, batch, self._token, segments, self._bounds.unread_bytes_max, lambda: not self._wanted())
            if checkpoint is None or kept is None:
                log.publish(query, batch, self._token, segments, offsets)
            else:
                checkpoint.store(kept)
                if log.publish(query, batch, self._token, segments, offsets, kept.name):
                    checkpoint.note(kept)
            bound_kept(log, batch, self._bounds.kept_bytes_max)

        insisted(publish, self._wanted)

    def _segments(self, frame: DataFrame, batch: int, log: IngestLog) -> list[Segment]:
        """Write the rows of a batch, in the driver or in tasks, and return the segments in order."""
        # A query that keeps state must compute each batch only once, but collecting may abandon a batch and start it
        # again.
        few = None if (self._checkpoint / "state").exists() else self._small.collected(frame)
        if few is not None:
            segments = [self._write_here(log, batch, partition, pieces) for partition, pieces in few.items()]
            size = sum(piece.nbytes for pieces in few.values() for piece in pieces)
        else:
            write = partial(written, place=self._place, token=self._token, batch=batch)
            rows = [row.asDict() for row in frame.mapInArrow(write, from_arrow_schema(WRITTEN)).collect()]
            size = sum(row.pop("size") for row in rows)
            segments = sorted((Segment(**row) for row in rows), key=lambda segment: (segment.partition, segment.part))
        places = {(segment.partition, segment.part) for segment in segments}
        invariant(len(places) == len(segments), "one attempt of each task counts", batch=batch, written=segments)
        self._small.note(sum(segment.rows for segment in segments), size)
        return segments

    def _write_here(self, log: IngestLog, batch: int, partition: int, pieces: list[pa.RecordBatch]) -> Segment:
        name = segment_name(batch, partition, self._token, _DRIVER, 0)
        digest = insisted(lambda: log.write_segment(name, _as_stream(pieces)), self._wanted)
        return Segment(name, partition, 0, sum(map(len, pieces)), digest)

    def _offsets(self, batch: int) -> str:
        """Return the digest of the file in which Spark recorded the batch's content before running the batch."""
        return digest_of((self._checkpoint / "offsets" / str(batch)).read_bytes())


def written(batches: Iterator[pa.RecordBatch], place: IngestPlace, token: int, batch: int) -> Iterator[pa.RecordBatch]:
    """Write one partition of one batch as segments, in one of Spark's Python workers; yield a row for each segment.

    Args:
        batches: the rows of the partition.
        batch: the number of the micro-batch.
    """
    context = TaskContext.get()
    invariant(context is not None, "segments are written in a Spark task")
    partition, attempt = context.partitionId(), context.taskAttemptId()
    log, wanted = place.open(), _wanted()
    insisted(lambda: log.check_token(token), wanted)
    for part, pieces in enumerate(_gathered(batches)):
        name = segment_name(batch, partition, token, attempt, part)
        digest = insisted(partial(log.write_segment, name, _as_stream(pieces)), wanted)
        segment = Segment(name, partition, part, sum(map(len, pieces)), digest)
        size = sum(piece.nbytes for piece in pieces)
        yield pa.RecordBatch.from_pylist([{**asdict(segment), "size": size}], WRITTEN)


def stored_query(checkpoint: Path) -> str:
    """Return the id of the query to which a Spark checkpoint belongs, or "" before the query's first start."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError) as problem:
        raise PipelineError(f"{checkpoint / 'metadata'} is not Spark's ({problem}); {RESTORE}") from None


def last_committed(checkpoint: Path) -> int:
    """Return the last batch that a Spark checkpoint has recorded as committed, or -1 if there is none."""
    try:
        return max((int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1


def _wanted() -> Callable[[], bool]:
    """Return a function that reports whether this process's current parent is still alive."""
    ended = orphaned()
    return lambda: not ended()


def _gathered(iterator: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield the record batches of each segment; yield nothing if there are no rows."""
    pieces: list[pa.RecordBatch] = []
    size = 0
    for batch in iterator:
        if batch.num_rows:
            pieces.append(batch)
            size += batch.nbytes
        if size >= SEGMENT_BYTES:
            yield pieces
            pieces, size = [], 0
    if pieces:
        yield pieces


def _as_stream(pieces: list[pa.RecordBatch]) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pieces[0].schema) as stream:
        for piece in pieces:
            stream.write_batch(piece)
    return memoryview(sink.getvalue())
