"""Lines in the ingest log: segments of bytes, one line feed per line, read back as text or as JSON values.

A line belongs to the job once its batch is published: it is then on disk exactly once, at a permanent position.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, PipelineError, invariant
from causal.records.unreadable import Unreadable
from operators.graph import caller
from operators.ingest.bound import BOUNDS, LogBounds
from operators.ingest.contract import RESTORE, ReadableLog, Segment
from operators.ingest.ingest_log import IngestLog
from operators.ingest.ingested_source import IngestedSource
from operators.ingest.log_writer import LogWriter
from operators.ingest.place import IngestPlace
from operators.ingest.reader import IngestReader
from operators.source import PartitionReader, SourceContext
from operators.sources.files.cutting_rows import RAW_BYTES_MAX, LineCutter, json_of
from operators.stage.unreadable import SET_ASIDE

SEGMENT_BYTES = 1 << 22
FORMATS = ("text", "json")


def cutter_of(where: str, format: str, row_bytes_max: int) -> LineCutter:
    """Return the cutter that turns every line into a record."""
    return LineCutter(where, "utf-8", row_bytes_max, json_of if format == "json" else None, whole=True)


class LineWriter(LogWriter):
    """The only process that writes to a log of lines."""

    def __init__(self, log: IngestLog, bounds: LogBounds = BOUNDS) -> None:
        super().__init__(log, "lines", bounds)

    def publish(self, lines: Sequence[bytes], note: str) -> None:
        """Publish lines, which are on disk when this method returns; wait while too many bytes are unread.

        Raises:
            Fenced: another process has taken over.
            Unavailable: the job has ended.
        """
        begin = 0
        while begin < len(lines):
            stop, size = begin, 0
            while stop < len(lines) and (stop == begin or size + len(lines[stop]) < SEGMENT_BYTES):
                size += len(lines[stop]) + 1
                stop += 1
            self.stage(b"".join(line + b"\n" for line in lines[begin:stop]), stop - begin)
            begin = stop
        self.publish_staged(note)


class LinesReader(IngestReader):
    """A reader of the log's lines as records."""

    def __init__(self, log: ReadableLog, context: SourceContext, where: str, format: str, row_bytes_max: int) -> None:
        super().__init__(log, 0, context.name, checkpoints=context.checkpoints)
        self._where = where
        self._row_bytes_max = row_bytes_max
        self._cutter = cutter_of(where, format, row_bytes_max)
        self._rows_of = _slice

    def _decode(self, segment: Segment, data: bytes) -> Any:
        index = next(index for index, (piece, _) in enumerate(self._pieces) if piece is segment)
        first = self._starts[index]
        rows: list[Any] = []
        while data:
            cut = self._cutter.cut(data, first + len(rows) + 1, True)
            rows += cut.rows
            data = data[cut.bytes_used :]
            if data:
                why = f"a line of more than {self._row_bytes_max:,} bytes"
                begin = data[: min(self._row_bytes_max, RAW_BYTES_MAX)]
                rows.append(Unreadable(f"{self._where}:{first + len(rows) + 1}", why, begin))
                data = data[data.find(b"\n") + 1 :]
        if len(rows) != segment.rows:
            raise CorruptData(
                f"{self._log.label(segment)} contains {len(rows)} lines, but its manifest says "
                f"{segment.rows}; {RESTORE}"
            )
        return rows


def _slice(rows: list[Any], start: int, count: int) -> list[Any]:
    return rows[start : start + count]


class LineSource(IngestedSource):
    """The base class of sources whose lines a process next to the job stores before a task reads them.

    Args:
        format: "text": records are str; "json": records are the values of the lines.
        row_bytes_max: the maximum length of a line in bytes; a longer line becomes a bad row.
    """

    place = ""
    """The name of the input in messages about its lines."""

    may_be_unreadable = True
    bad_input_remedy = SET_ASIDE

    def __init__(self, format: str, row_bytes_max: int) -> None:
        self._where = f"{caller()}: {type(self).__name__}"
        self.format = format
        self.row_bytes_max = row_bytes_max
        if format not in FORMATS:
            raise PipelineError(f"{self._where} has format {format!r}; use 'text' or 'json'")
        if type(row_bytes_max) is not int or not 16 <= row_bytes_max <= 1 << 30:
            raise PipelineError(f"{self._where} has row_bytes_max {row_bytes_max!r}; use 16 to {1 << 30:,}")

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        """Return a reader of the log, which may not exist yet."""
        invariant(partition == 0, "a source of lines has one partition", partition=partition)
        log = IngestPlace(context.job_directory, context.name, 1).open_to_read(partition)
        return LinesReader(log, context, self.place, self.format, self.row_bytes_max)

    def store(self, log: IngestLog, bounds: LogBounds, job_directory: Path, root_pid: int) -> None:
        """Write the lines of the input to the log until the input ends."""
        writer = LineWriter(log, bounds)
        if not writer.ended:
            self.ingest(writer, log.name, job_directory, root_pid)

    def ingest(self, writer: LineWriter, name: str, job_directory: Path, root_pid: int) -> None:
        """Write the lines of the input to the log until the input ends."""
        raise NotImplementedError
