"""The output of another job as a source: its rows in the order of their positions, as soon as they are visible.

A process next to the job copies the rows into the ingest log, with a note of how far it has read. From then on, each
row counts exactly once, whatever happens to either job. Rows that the other job withdraws (in a rollback, or after a
failure below full sharing depth) arrive once more, marked as withdrawn, and then the rows that have replaced them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from causal.errors import CorruptData, PipelineError, Unavailable
from operators.outputs import Output, open_output
from operators.sources.lines.lines_log import LineSource, LineWriter
from operators.sources.outputs.taken_rows import Taken, TakenRows, changed_from

BATCH_ROWS = 5000
BATCH_BYTES = 1 << 22
ENDED_S = 1.0
"""The time for which all tasks of an output must have ended before the source ends; a task may still open its store."""
LOOK_SHARE = 0.1
"""The largest share of time for which the output is looked at while nothing arrives."""
REPORT_S = 30.0
MEMORY = "taken-rows.sqlite"
WITHDRAWN = "_withdrawn"
"""The field that marks a row as withdrawn."""


class OutputSource(LineSource):
    """A source of the rows of another job's sink; it ends when the other job has finished.

    A row that is withdrawn arrives once more with the additional field `_withdrawn`, which is true; a row that is not
    an object arrives as `{"row": …, "_withdrawn": true}`.

    Args:
        output: the file of a SqliteSink, or the directory or URL of a JsonLinesSink or ParquetSink. The other job need
            not have started yet.
        located: whether each record is a dict of task, position, row and `withdrawn`.
        follow: whether the source continues after the other job has finished, because it may be resumed or rolled back.
        every_s: the least interval between two looks at the output.
        remembered_bytes: the size of the latest rows that are kept in the job's directory, so that they can be
            retracted when they are withdrawn. If an older row is withdrawn, the job ends.
    """

    place = "output"

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        located: bool = False,
        follow: bool = False,
        every_s: float = 0.02,
        remembered_bytes: int = 256 << 20,
        row_bytes_max: int = 16 << 20,
    ) -> None:
        super().__init__("json", row_bytes_max)
        where = self._where
        if not isinstance(output, (str, os.PathLike)) or not os.fspath(output):
            raise PipelineError(f"{where} was given {output!r}; pass the path or URL of another job's output")
        if os.fspath(output).startswith("kafka://"):
            raise PipelineError(f"{where} was given a topic of Kafka; use KafkaSource, which reads it directly")
        if os.fspath(output).startswith("nats://"):
            raise PipelineError(f"{where} was given a stream of NATS; use NatsSource, which reads it directly")
        if isinstance(every_s, bool) or not isinstance(every_s, (int, float)) or not 0 < every_s <= 3600:
            raise PipelineError(f"{where} has every_s {every_s!r}; use seconds, above 0 and up to 3,600")
        if type(remembered_bytes) is not int or remembered_bytes < 1 << 16:
            raise PipelineError(f"{where} has remembered_bytes {remembered_bytes!r}; use {1 << 16:,} or more")
        path = os.fspath(output)
        self.output = path if "://" in path else os.path.abspath(os.path.expanduser(path))
        self.located = located
        self.follow = follow
        self.every_s = every_s
        self.remembered_bytes = remembered_bytes

    def ingest(self, writer: LineWriter, name: str, job_directory: Path, root_pid: int) -> None:
        """Copy rows to the log until the other job has finished."""
        rows = TakenRows(job_directory / "ingest" / name / MEMORY, self.remembered_bytes, writer.batch)
        try:
            _Copying(self, writer, rows, name).run()
        finally:
            rows.close()


class _Copying:
    """The process that copies rows."""

    def __init__(self, source: OutputSource, writer: LineWriter, rows: TakenRows, name: str) -> None:
        self._source = source
        self._writer = writer
        self._rows = rows
        self._name = name
        self._taken = Taken.of(writer.note)
        self._last = ""
        self._report_at_s = time.monotonic() + REPORT_S

    def run(self) -> None:
        """Copy rows until the other job has finished."""
        output: Output | None = None
        ended_s: float | None = None
        while True:
            began_s = time.monotonic()
            try:
                if output is None:
                    output = open_output(self._source.output)
                output.look()
                copied = self._copy(output)
            except (FileNotFoundError, Unavailable) as problem:
                copied = self._waits(problem)
            except PipelineError as problem:
                if self._taken.run:
                    raise
                output, copied = None, self._waits(problem)  # the other job has not started yet
            if copied:
                ended_s = None
                continue
            if output is not None and output.ended and not self._source.follow:
                ended_s = time.monotonic() if ended_s is None else ended_s
                if time.monotonic() - ended_s >= ENDED_S:
                    return self._writer.end()
            looked_s = time.monotonic() - began_s
            time.sleep(max(self._source.every_s, looked_s / LOOK_SHARE))

    def _waits(self, problem: Exception) -> bool:
        """Report now and then why no rows can be copied."""
        if time.monotonic() >= self._report_at_s:
            self._report_at_s = time.monotonic() + REPORT_S
            print(f"source {self._name!r} waits: {problem}", file=sys.stderr, flush=True)
        return False

    def _copy(self, output: Output) -> bool:
        """Copy the rows that have appeared, as of the last look; return whether anything has changed.

        Raises:
            PipelineError: another run has replaced the output, or it lacks rows.
        """
        taken = self._taken
        if taken.run and output.run != taken.run:
            raise PipelineError(
                f"{self._source.output} was replaced by another run; start this job again with another --state-dir"
            )
        ends, withdrawn = output.ends(uncovered=False), output.withdrawn()
        tasks = sorted(ends)
        later = bisect_right(tasks, self._last)
        for task in (*tasks[later:], *tasks[:later]):  # the task that was copied last comes last
            try:
                if self._copy_task(output, task, ends[task], withdrawn[task]):
                    self._last = task
                    return True
            except CorruptData:
                output.look()
                if output.withdrawn().get(task) == withdrawn[task]:
                    raise
                return True  # rows were withdrawn while they were read
        return False

    def _copy_task(self, output: Output, task: str, end: int, withdrawn: int) -> bool:
        next_ = self._taken.next.get(task, 0)
        lines: list[bytes] = []
        low = self._taken.may_be_withdrawn_from(task, withdrawn)
        if low < next_:
            next_, lines = self._withdrawn(output, task, low, min(next_, end))
        elif end < next_:
            raise PipelineError(
                f"{self._source.output} has rows of {task} up to {end:,}, but this job has read up to {next_:,}; "
                "restore the output, or start this job again with another --state-dir"
            )
        fresh, stop = self._fresh(output, task, next_, end)
        if (
            not lines
            and stop == self._taken.next.get(task, 0)
            and withdrawn == self._taken.withdrawn.get(task, withdrawn)
        ):
            return False
        output.look()
        if output.withdrawn().get(task) != withdrawn or output.run != (self._taken.run or output.run):
            return True  # these rows may have been withdrawn while they were read
        self._rows.replace(task, next_, fresh, self._writer.batch)
        lines += [self._line(task, position, text) for position, text in fresh]
        self._taken = self._taken.after(output.run, task, stop, withdrawn)
        self._writer.publish(lines, self._taken.note())
        return True

    def _withdrawn(self, output: Output, task: str, low: int, end: int) -> tuple[int, list[bytes]]:
        """Return the position from which rows must be read again, and the lines that retract what was there.

        Raises:
            PipelineError: a row that is no longer remembered may have been withdrawn.
        """
        next_ = self._taken.next[task]
        if low < (remembered := self._rows.complete_from(task)):
            raise PipelineError(
                f"{self._source.output}: rows of {task} from position {low:,} on may have been withdrawn, but this job "
                f"remembers them only from {remembered:,} on; start it again with another --state-dir and a larger "
                "remembered_bytes"
            )
        taken = self._rows.between(task, low, next_)
        changed = changed_from(taken, list(_texts(output, task, low, end)))
        from_ = next_ if changed is None else changed
        gone = [row for row in reversed(taken) if row[0] >= from_]
        return from_, [self._line(task, position, text, withdrawn=True) for position, text in gone]

    def _fresh(self, output: Output, task: str, start: int, end: int) -> tuple[list[tuple[int, bytes]], int]:
        """Return the next rows, as many as a batch has, and the position after them."""
        stop, size = min(end, start + BATCH_ROWS), 0
        fresh: list[tuple[int, bytes]] = []
        for position, text in _texts(output, task, start, stop):
            fresh.append((position, text))
            size += len(text)
            if size >= BATCH_BYTES:
                return fresh, position + 1
        return fresh, stop

    def _line(self, task: str, position: int, text: bytes, withdrawn: bool = False) -> bytes:
        if self._source.located:
            head = {"task": task, "position": position, "withdrawn": withdrawn}
            return json.dumps(head).encode()[:-1] + b', "row": ' + text + b"}"
        if not withdrawn:
            return text
        mark = b'"%s": true' % WITHDRAWN.encode()
        if not text.startswith(b"{"):
            return b'{"row": ' + text + b", " + mark + b"}"
        fields = text[:-1].rstrip()
        return fields + (b"" if fields == b"{" else b", ") + mark + b"}"


def _texts(output: Output, task: str, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield positions and JSON texts of rows."""
    if start >= stop:
        return
    for positions, rows in output.rows(task, start, stop):
        yield from zip(_numbers(positions), _as_texts(rows), strict=True)


def _numbers(positions: Any) -> Iterable[int]:
    numbers: Iterable[int] = positions.to_pylist() if hasattr(positions, "to_pylist") else positions
    return numbers


def _as_texts(rows: Any) -> Iterable[bytes]:
    if isinstance(rows, list):
        return ((row if isinstance(row, bytes) else row.encode()).strip() for row in rows)
    from operators.records.arrow_rows import Unheld, rows_of
    from operators.sinks.contract.sink import encode_json

    try:
        return [encode_json(row).encode() for row in rows_of(rows, 0, rows.num_rows)]
    except Unheld as problem:
        raise CorruptData(f"a row of the output cannot be a record: {problem}") from None
