"""The Spark side of the ingest log: the data source `causal`, a sink for streaming DataFrames.

Tasks write segments (any attempt may, none of them counts), the commit of a batch publishes those that Spark names.
Instances are pickled, made twice per batch and never in one process for long: all they know is in the options.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from causal.errors import InvariantViolation, PipelineError, invariant
from operators.sources.ingest_bound import await_room, orphaned
from operators.sources.ingest_log import RESTORE, IngestLog, Segment, digest_of, segment_name

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
        self._directory = options["log"]
        self._channels = int(options["channels"])
        self._token = int(options["token"])
        self._checkpoint = options["checkpointlocation"]
        self._bytes_max = int(options["bytesmax"])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition of one batch as segments; runs in a Python worker of Spark."""
        context = TaskContext.get()
        invariant(context is not None, "write() runs in a Spark task")
        batch = context.getLocalProperty("streaming.sql.batchId")
        query = context.getLocalProperty("sql.streaming.queryId")
        invariant(batch is not None and query is not None, "a streaming task knows its batch and its query")
        written = Written(str(query), int(batch), context.partitionId())
        log = IngestLog(Path(self._directory), self._channels)
        log.check_token(self._token)
        for pieces in _gathered(iterator):
            part = len(written.segments)
            name = segment_name(written.batch, written.partition, self._token, context.taskAttemptId(), part)
            digest = log.write_segment(name, _as_stream(pieces))
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
        log = self._log()
        await_room(log, batchId, self._token, segments, self._bytes_max, orphaned())
        log.publish(query, batchId, self._token, segments, self._offsets(batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what this failed batch wrote; not what is published, for Spark also aborts after a failed commit."""
        self._log().discard([s for message in messages if isinstance(message, Written) for s in message.segments])

    def _log(self) -> IngestLog:
        return IngestLog(Path(self._directory), self._channels)

    def _offsets(self, batch: int) -> str:
        """The digest of the file in which Spark fixed what the batch consists of, before it ran it."""
        return digest_of((Path(self._checkpoint) / "offsets" / str(batch)).read_bytes())


class CausalDataSource(DataSource):  # type: ignore[misc]
    """The data source of `df.writeStream.format("causal")`: log, channels, token, bytesMax, checkpointLocation."""

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
