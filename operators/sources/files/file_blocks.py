"""The rows of one open file, read one block at a time, from any row at which a block began earlier.

    text, JSON lines, CSV     blocks of 256 KiB that end with a row; gzip, detected by its first bytes, is decompressed
    Parquet                   blocks of up to 8,192 rows of one row group

The size of a block is limited whatever the file contains: the rest of a line that is too long for a row is skipped.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NoReturn, Protocol

from causal.errors import CausalError, CorruptData, OperatorFailed, PipelineError, Unavailable
from causal.records.unreadable import Unreadable
from operators.sources.files.cutting_rows import (
    BYTE_ORDER_MARK,
    FOREIGN_BYTES,
    GZIP,
    RAW_BYTES_MAX,
    Cut,
    Cutter,
    foreign,
)
from operators.sources.files.listed import RESTORE, Listed

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

BLOCK_BYTES = 1 << 18
ROWS_PER_BLOCK = 8192


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file at which a block begins.

    Attributes:
        row: the number of rows before the place.
        offset: the number of uncompressed bytes before the place; for Parquet, the index of the row group.
        line: the number of lines before the place; for Parquet, the number of rows before it in the row group.
    """

    row: int = 0
    offset: int = 0
    line: int = 0


class Blocks(Protocol):
    """The rows of an open file, in blocks."""

    mark: Mark
    """The place at which the next block begins."""

    @property
    def ended(self) -> bool:
        """Whether it is known that no block follows."""
        ...

    def next(self) -> tuple[list[Any], list[int] | range] | None:
        """Return the rows of the next block, possibly none, and their line numbers; None at the end of the file.

        Raises:
            CorruptData, OperatorFailed: the file cannot be read.
            DeterminantsLost: the file is not the one that was listed.
            Unavailable: the read can be retried later, with a newly opened file.
        """
        ...

    def close(self) -> None: ...


class LineBlocks:
    """The rows of a file that consists of lines.

    Args:
        cutter: the cutter of the format; for CSV, it reads the column names from the first row.
        headed: returns whether the cutter still needs the beginning of the file.
    """

    def __init__(
        self, file: Listed, mark: Mark, cutter: Cutter, headed: Callable[[], bool], row_bytes_max: int
    ) -> None:
        self._listed = file
        self._cutter = cutter
        self._row_bytes_max = row_bytes_max
        self._headed = headed
        self._rest = b""
        self._last = False
        self.mark = Mark()
        self._stored, self._file = _opened(file)
        if mark.row:  # read the column names, which may precede the first row
            while headed() and self.next() is not None:
                continue
            self._seek(mark)

    @property
    def ended(self) -> bool:
        """Whether all bytes of the file were cut."""
        return self._last and not self._rest

    def next(self) -> tuple[list[Any], list[int] | range] | None:
        if self.ended:
            return None
        while True:
            if self._rest or not self._last:
                cut = self._cut()
                if cut.bytes_used:
                    self._move(cut.bytes_used, cut.lines_used, len(cut.rows))
                    if not self._rest and not self._last:
                        self._read()  # only that shows whether the file has ended
                    return cut.rows, cut.lines
                if self._rest and (self._last or len(self._rest) > self._row_bytes_max):
                    return self._first_line()
            if self._last:
                return [], []
            self._read()

    def close(self) -> None:
        self._file.close()

    def _cut(self) -> Cut:
        if not self._rest:
            return Cut()
        try:
            return self._cutter.cut(self._rest, self.mark.line + 1, self._last)
        except ValueError as problem:
            self._fail(1, f"{problem}; correct the file, or use columns=[…]")

    def _read(self) -> None:
        """Read more bytes, and skip a byte order mark at the beginning of the file."""
        begins = not self.mark.offset and not self._rest
        data = self._bytes()
        while begins and len(data) < FOREIGN_BYTES and not self._last:
            data += self._bytes()
        if begins and (what := foreign(data)):
            raise OperatorFailed(f"{self._listed.shown}: {what}")
        if begins and data.startswith(BYTE_ORDER_MARK):
            self.mark = Mark(0, len(BYTE_ORDER_MARK), 0)
            data = data[len(BYTE_ORDER_MARK) :]
        self._rest += data

    def _bytes(self) -> bytes:
        try:
            data = self._file.read(BLOCK_BYTES)
        except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
            raise CorruptData(f"{self._listed.shown} is damaged: {problem}; {RESTORE}") from None
        except OSError as problem:
            raise Unavailable(f"{self._listed.shown}: {problem}") from problem
        self._listed.check_read()
        if not data:
            self._listed.check_end(self._stored.seek(0, os.SEEK_CUR))
        self._last = not data
        return data

    def _first_line(self) -> tuple[list[Any], list[int] | range]:
        """Return the first remaining line as an unreadable row, and continue after it."""
        line = self.mark.line + 1
        if self._headed():
            self._fail(line, "the column names cannot be read; correct the file, or use columns=[…]")
        stop = self._rest.find(b"\n")
        begin = self._rest[: min(RAW_BYTES_MAX, self._row_bytes_max, len(self._rest) if stop < 0 else stop)]
        long = (len(self._rest) if stop < 0 else stop) > self._row_bytes_max
        used = len(self._rest) if stop < 0 else stop + 1
        skipped = 0
        self._rest = self._rest[used:]
        while stop < 0 and not self._last:
            data = self._bytes()
            stop = data.find(b"\n")
            skipped += len(data) if stop < 0 else stop + 1
            self._rest = b"" if stop < 0 else data[stop + 1 :]
        why = f"a line of more than {self._row_bytes_max:,} bytes" if long else "a quote is not closed"
        row = Unreadable(f"{self._listed.shown}:{line}", why, begin)
        self.mark = Mark(self.mark.row + 1, self.mark.offset + used + skipped, line)
        return [row], [line]

    def _move(self, size: int, lines: int, rows: int) -> None:
        self._rest = self._rest[size:]
        self.mark = Mark(self.mark.row + rows, self.mark.offset + size, self.mark.line + lines)

    def _seek(self, mark: Mark) -> None:
        try:
            self._file.seek(mark.offset)
        except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
            raise CorruptData(f"{self._listed.shown} is damaged: {problem}; {RESTORE}") from None
        except OSError as problem:
            raise Unavailable(f"{self._listed.shown}: {problem}") from problem
        self._rest, self._last, self.mark = b"", False, mark

    def _fail(self, line: int, problem: str) -> NoReturn:
        raise OperatorFailed(f"{self._listed.shown}:{line}: {problem}") from None


def _opened(file: Listed) -> tuple[BinaryIO, IO[bytes]]:
    """Open the file; return its content as it is stored, and as it is read, without compression."""
    stored = file.open()
    try:
        begin = stored.read(len(GZIP))
        stored.seek(0)
    except OSError as problem:
        raise Unavailable(f"{file.shown}: {problem}") from problem
    if not begin.startswith(GZIP) and plain_name(file.path) == file.path:
        return stored, stored
    if not begin:
        stored.close()
        raise CorruptData(f"{file.shown} is damaged: it has the name of a gzip file but is empty; {RESTORE}")
    return stored, _Gzip(stored)  # type: ignore[return-value]


class _Gzip(gzip.GzipFile):
    """The decompressed content of a file; closing it also closes the file."""

    def __init__(self, handle: BinaryIO) -> None:
        super().__init__(fileobj=handle, mode="rb")
        self._handle = handle

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._handle.close()


def plain_name(path: str) -> str:
    """Return the name without the gzip suffix, whatever the suffix's case."""
    return path[: -len(_SUFFIX)] if path.lower().endswith(_SUFFIX) else path


_SUFFIX = ".gz"


class ParquetBlocks:
    """The rows of a Parquet file as dicts."""

    def __init__(self, file: Listed, mark: Mark) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from operators.records.arrow_rows import check_carried
        from operators.sources.files.old_times import has_old_times

        self._listed = file
        self._damage = (pa.ArrowException, OSError)
        self.mark = mark
        _, self._handle = _opened(file)
        try:
            # Microseconds can represent all years. A file with INT96 times is opened a second time, to find the times
            # that lose a fraction of a microsecond.
            self._file: pq.ParquetFile = pq.ParquetFile(self._handle, coerce_int96_timestamp_unit="us")
            check_carried(self._file.schema_arrow)
            self._fine = pq.ParquetFile(self._handle) if has_old_times(self._file) else None
        except PipelineError as problem:
            raise OperatorFailed(f"{file.shown}: {problem}") from None
        except self._damage as problem:
            raise self._damaged(problem) from None
        self._batches = self._of_group(mark.line)

    @property
    def ended(self) -> bool:
        """Whether all rows of the file were read."""
        return self.mark.row >= int(self._file.metadata.num_rows)

    def next(self) -> tuple[list[Any], list[int] | range] | None:
        if self.mark.offset >= self._file.num_row_groups:
            return None
        try:
            batch, fine = next(self._batches, (None, None))
            if batch is None:
                self.mark = Mark(self.mark.row, self.mark.offset + 1, 0)
                self._batches = self._of_group(0)
                return [], []
            first = self.mark.row + 1
            rows = self._rows(batch, fine, first)
        except CausalError:
            raise
        except self._damage as problem:
            raise self._damaged(problem) from None
        self._listed.check_read()
        self.mark = Mark(self.mark.row + len(rows), self.mark.offset, self.mark.line + len(rows))
        return rows, range(first, first + len(rows))

    def close(self) -> None:
        self._handle.close()

    def _rows(self, batch: pa.Table, fine: pa.Table | None, first: int) -> list[Any]:
        """Return the rows of a batch that begins with row `first` of the file."""
        from operators.records.arrow_rows import Unheld, rows_of, shown_row
        from operators.sources.files.old_times import lost_fraction

        def rows_at(start: int, count: int) -> list[Any]:
            if fine is not None and (column := lost_fraction(batch.slice(start, count), fine.slice(start, count))):
                raise Unheld(f"column {column}: a time is not a whole number of microseconds")
            return rows_of(batch, start, count)

        try:
            return rows_at(0, batch.num_rows)
        except Unheld:
            rows: list[Any] = []
        for index in range(batch.num_rows):
            try:
                rows += rows_at(index, 1)
            except Unheld as problem:
                rows.append(Unreadable(f"{self._listed.shown}:{first + index}", str(problem), shown_row(batch, index)))
        return rows

    def _of_group(self, skip: int) -> Iterator[tuple[Any, Any]]:
        """Return the batches of the current row group without its first `skip` rows, which always fill whole batches.

        Each batch is paired with the same rows of the second file, or with None if there is no second file.
        """
        import pyarrow as pa

        if self.mark.offset >= self._file.num_row_groups:
            return iter(())

        def tables_of(file: pq.ParquetFile) -> Iterator[pa.Table]:
            batches = file.iter_batches(ROWS_PER_BLOCK, row_groups=[self.mark.offset], use_threads=False)
            return (pa.Table.from_batches([batch]) for batch in batches)

        tables = zip(tables_of(self._file), repeat(None) if self._fine is None else tables_of(self._fine), strict=False)
        while skip > 0:
            skip -= next(tables)[0].num_rows
        return tables

    def _damaged(self, problem: Exception) -> CorruptData:
        line = " ".join(str(problem).split())[:300]
        return CorruptData(f"{self._listed.shown} is not a Parquet file, or it is damaged: {line}; {RESTORE}")
