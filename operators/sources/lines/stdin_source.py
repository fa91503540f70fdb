"""The standard input of `causal run` as a source of lines.

A pipe delivers each byte only once. The process that reads it therefore writes a note before each read, and removes the
note when the bytes are in the log. A successor that finds the note ends the job with an error instead of continuing
without these bytes. A redirected file is read from the position at which the log ends.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from causal.errors import PipelineError
from operators.sources.files.cutting_rows import BYTE_ORDER_MARK
from operators.sources.lines.lines_log import LineSource, LineWriter
from operators.sources.lines.standard_input import check_readable, taken

READ_BYTES = 1 << 16
BATCH_BYTES = 1 << 22
GATHER_S = 0.02
"""The time for which more lines are waited for, once some are there: a batch costs a few writes that reach the disk."""
GATHER_S_MAX = 0.1
"""The time after which lines are published even if more keep coming."""


class StdinSource(LineSource):
    """A source of the lines of the standard input of `causal run`; the source ends when that input ends.

    Args:
        format: "text": records are str; "json": records are the values of the lines.
        row_bytes_max: the maximum length of a line in bytes; a longer line is not kept in memory, and becomes a bad
            row.
    """

    place = "standard input"
    takes_standard_input = True

    def __init__(self, format: str = "text", row_bytes_max: int = 1 << 20) -> None:
        super().__init__(format, row_bytes_max)

    def ingest(self, writer: LineWriter, name: str, job_directory: Path, root_pid: int) -> None:
        """Write lines to the log until the input ends."""
        note = job_directory / "ingest" / name / "taking"
        descriptor = taken(root_pid)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._copy(writer, _of_file(descriptor, int(writer.note or "0")), descriptor, None, root_pid)
            else:
                _check_note(note, root_pid)
                self._copy(writer, partial(os.read, descriptor, READ_BYTES), descriptor, note, root_pid)
        finally:
            os.close(descriptor)

    def check(self) -> None:
        """Raise `PipelineError` unless this process has a readable standard input."""
        check_readable(self._where)

    def _copy(
        self, writer: LineWriter, read: Callable[[], bytes], descriptor: int, note: Path | None, root_pid: int
    ) -> None:
        used = int(writer.note or "0")
        lines = Lines(self.row_bytes_max, self.format == "json", begins=not used)
        ended = False
        while not ended:
            select.select([descriptor], [], [])
            if note is not None:
                note.write_text(str(root_pid))
            size, until_s = 0, time.monotonic() + GATHER_S_MAX
            while size < BATCH_BYTES and not ended:
                try:
                    data = read()
                except BlockingIOError:  # another process has set O_NONBLOCK on the shared descriptor
                    break
                except OSError as problem:
                    raise PipelineError(
                        f"standard input cannot be read any further: {problem.strerror}; --resume continues "
                        "with the next lines"
                    ) from None
                ended = not data
                size += len(data)
                lines.add(data)
                if time.monotonic() >= until_s or not select.select([descriptor], [], [], GATHER_S)[0]:
                    break
            used += size
            ready = lines.take(ended)
            if ready:
                writer.publish(ready, str(used - lines.bytes_left))
            if note is not None and not lines.bytes_left:
                note.unlink(missing_ok=True)
        writer.end()


def _of_file(descriptor: int, position: int) -> Callable[[], bytes]:
    """Return a function that reads a file from `position` on without moving the shared file offset."""

    def read() -> bytes:
        nonlocal position
        size = os.fstat(descriptor).st_size
        if size < position:
            raise PipelineError(
                f"the file at standard input was read up to byte {position:,}, but now ends at byte {size:,}: it "
                "was truncated or replaced; restore it, then resume"
            )
        data = os.pread(descriptor, READ_BYTES, position)
        position += len(data)
        return data

    return read


def _check_note(note: Path, root_pid: int) -> None:
    try:
        before = note.read_text()
    except FileNotFoundError:
        return
    note.unlink(missing_ok=True)
    if before == str(root_pid):
        raise PipelineError(
            "the process that reads standard input was killed after reading some lines and before storing "
            f"them: up to {BATCH_BYTES:,} bytes are lost; --resume continues with the next lines"
        )


class Lines:
    """Bytes that are divided into complete lines; at most one incomplete line, up to its maximum length, is kept.

    Args:
        begins: whether the first bytes are the beginning of the input, where a byte order mark is removed.
    Attributes:
        bytes_left: the number of added bytes that belong to an incomplete line.
    """

    def __init__(self, row_bytes_max: int, skips_empty: bool, begins: bool = True) -> None:
        self._row_bytes_max = row_bytes_max
        self._skips_empty = skips_empty
        self._begins = begins
        self._rest = b""
        self._ready: list[bytes] = []
        self.bytes_left = 0

    def add(self, data: bytes) -> None:
        """Add more bytes."""
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._complete(line)
        self._keep(rest)

    def take(self, ended: bool) -> list[bytes]:
        """Return the complete lines, or all lines if no more bytes will arrive."""
        if ended and self.bytes_left:
            self._complete(b"")
        ready, self._ready = self._ready, []
        return ready

    def _keep(self, rest: bytes) -> None:
        self.bytes_left += len(rest)
        whole = self._rest + rest
        if self._begins and len(whole) >= len(BYTE_ORDER_MARK):
            whole, self._begins = whole.removeprefix(BYTE_ORDER_MARK), False
        self._rest = whole[: self._row_bytes_max + 1]

    def _complete(self, line: bytes) -> None:
        self._keep(line)
        self._begins = False
        if not self._skips_empty or self._rest.strip():
            self._ready.append(self._rest)
        self._rest, self.bytes_left = b"", 0
