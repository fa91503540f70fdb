"""The Spark side of the ingest log: the data source `causal`, a sink for streaming DataFrames.

Tasks write segments (any attempt may, none of them counts), the commit of a batch publishes those that Spark names.
Instances are pickled, made twice per batch and never in one process for long: all they know is in the options.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from causal.errors import InvariantViolation, PipelineError, Unavailable, invariant
from causal.shell.clock import take_offset
from operators.sources.ingest_bound import await_room, orphaned
from operators.sources.ingest_contract import RESTORE, Segment, digest_of, segment_name
from operators.sources.ingest_place import IngestPlace
from operators.sources.ingest_retries import insisted

FORMAT_NAME = "causal"
SEGMENT_BYTES = 16 << 20
"""The bytes at which a segment is closed; a reader has one in memory."""


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """The segments that one task attempt wrote."""

    query: str
    batch: int
    partition: int
    segments: list[Segment] = field(default_factory=list)


class IngestWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """A writer that publishes the batches of one query."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._place = IngestPlace.of_options(options)
        self._token = int(options["token"])
        self._checkpoint = options["checkpointlocation"]
        self._bytes_max = int(options["bytesmax"])
        self._apart = options["apart"] == "True"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition of one batch as segments; runs in a Python worker of Spark."""
        context = TaskContext.get()
        invariant(context is not None, "write() runs in a Spark task")
        batch = context.getLocalProperty("streaming.sql.batchId")
        query = context.getLocalProperty("sql.streaming.queryId")
        invariant(batch is not None and query is not None, "a streaming task knows its batch and its query")
        written = Written(str(query), int(batch), context.partitionId())
        log, wanted = self._place.open(), _wanted()
        insisted(lambda: log.check_token(self._token), wanted)
        for pieces in _gathered(iterator):
            part = len(written.segments)
            name = segment_name(written.batch, written.partition, self._token, context.taskAttemptId(), part)
            digest = insisted(partial(log.write_segment, name, _as_stream(pieces)), wanted)
            written.segments.append(Segment(name, written.partition, part, sum(map(len, pieces)), digest))
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the batch; runs beside Spark's driver, again with the same batch after a crash."""
        query = stored_query(Path(self._checkpoint))
        segments: list[Segment] = []
        partitions: set[int] = set()
        for message in messages:
            if not isinstance(message, Written):
                raise InvariantViolation(f"batch {batchId} is committed although a task of it has sent {message!r}")
            belongs = message.batch == batchId and message.query == query
            invariant(belongs, "a message is of the batch that is committed", batch=batchId, query=query, sent=message)
            invariant(message.partition not in partitions, "one attempt of each task is committed", sent=message)
            partitions.add(message.partition)
            segments += message.segments
        take_offset(self._place.job_directory)
        log, checkpoint, wanted = self._place.open(), self._place.checkpoint(), _wanted()
        if checkpoint is not None and self._apart and (checkpoint.directory / "state").exists():
            raise PipelineError(
                "read() keeps state (it aggregates, joins or removes duplicates), which executors would keep on their "
                "own disks; do that in operators of the pipeline"
            )
        offsets = self._offsets(batchId)
        kept = checkpoint.packed(batchId, self._token) if checkpoint is not None else None

        def publish() -> None:
            await_room(log, batchId, self._token, segments, self._bytes_max, lambda: not wanted())
            if checkpoint is None or kept is None:
                log.publish(query, batchId, self._token, segments, offsets)
                return
            checkpoint.store(kept)
            if log.publish(query, batchId, self._token, segments, offsets, kept.name):
                checkpoint.note(kept)

        insisted(publish, wanted)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what this failed batch wrote; not what is published, for Spark also aborts after a failed commit."""
        written = [s for message in messages if isinstance(message, Written) for s in message.segments]
        try:
            self._place.open().discard(written)
        except Unavailable as problem:  # what nothing names is removed by a later batch
            print(f"source {self._place.name!r}: {problem}", file=sys.stderr, flush=True)

    def _offsets(self, batch: int) -> str:
        """The digest of the file in which Spark fixed what the batch consists of, before it ran it."""
        return digest_of((Path(self._checkpoint) / "offsets" / str(batch)).read_bytes())


class CausalDataSource(DataSource):  # type: ignore[misc]
    """The data source of `df.writeStream.format("causal")`; its options are for `IngestWriter`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT_NAME

    def streamWriter(self, schema: Any, overwrite: bool) -> IngestWriter:
        """Returns a writer; parameter names are Spark's, which passes them by keyword when it commits."""
        if overwrite:
            raise PipelineError("output mode complete rewrites earlier rows; a source takes appended or updated rows")
        return IngestWriter(self.options)


def stored_query(checkpoint: Path) -> str:
    """The id of the query that a Spark checkpoint belongs to, "" before its first start."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError) as problem:
        raise PipelineError(f"{checkpoint / 'metadata'} is not Spark's ({problem}); {RESTORE}") from None


def last_committed(checkpoint: Path) -> int:
    """The last batch that a Spark checkpoint has on record as committed, -1 for none."""
    try:
        return max((int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1


def _wanted() -> Callable[[], bool]:
    """Returns a function that returns whether the process still lives that asked for this."""
    ended = orphaned()
    return lambda: not ended()


def _gathered(iterator: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yields the batches that make one segment each; none without rows."""
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
