"""The division of a file's bytes into rows: lines of text, lines of JSON, or CSV records.

A cutter receives bytes that begin at the start of a row, and returns the rows that are complete in these bytes. The
rows depend only on the file, never on how its bytes were divided among calls. The rules:

    a row longer than `row_bytes_max`, or a CSV record whose quote is not closed within it or before the file ends:
        the first line of the row is `Unreadable`, and the next row begins after that line
    a last line without a line feed is a row
    empty lines of JSON and CSV are not rows
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from causal.records.unreadable import Unreadable
from causal.records.values import NotCarried, encode
from operators.records.nesting import room_for_nesting

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""It is no part of the first row of a text."""
ENCODING_OPTION = "pass the encoding of the file, such as encoding='latin-1',"
"""The change that a text of another encoding than that of its source needs."""
RAW_BYTES_MAX = 1 << 16
"""The most of an unreadable row that its dead letter holds."""


_FOREIGN = (
    (b"\xff\xfe", "UTF-16: convert it (iconv -f utf-16 -t utf-8)"),
    (b"\xfe\xff", "UTF-16: convert it (iconv -f utf-16 -t utf-8)"),
    (b"BZh91AY&SY", "compressed as bz2; only gzip is read"),
    (b"\x28\xb5\x2f\xfd", "compressed as zstd; only gzip is read"),
    (b"\xfd7zXZ\x00", "compressed as xz; only gzip is read"),
    (b"PK\x03\x04", "a zip archive or a workbook (.xlsx): unpack it, or save it as CSV"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it"),
    (b"\x04\x22\x4d\x18", "compressed as lz4; only gzip is read"),
    (b"\x1f\x9d", "compressed by `compress`; only gzip is read"),
    (b"Obj\x01", "an Avro file; convert it to JSON lines or Parquet"),
    (b"SQLite format 3\0", "a SQLite file; export its rows"),
)
"""Beginnings of files that hold no lines."""
_TAR, _TAR_AT = b"ustar", 257
FOREIGN_BYTES = _TAR_AT + len(_TAR)
"""The bytes of a beginning by which all of them are known."""
GZIP = b"\x1f\x8b\x08"
"""The beginning of a file that is compressed as gzip."""


def foreign(begin: bytes) -> str:
    """Return the kind of a file that begins with `begin`, and the remedy; "" if the file may contain lines."""
    if begin.startswith(_TAR, _TAR_AT):
        return "it is a tar archive: unpack it"
    return next((f"it is {what}" for known, what in _FOREIGN if begin.startswith(known)), "")


@dataclass(slots=True)
class Cut:
    """Rows, the line number of each row, and the number of bytes and lines that the rows consumed."""

    rows: list[Any] = field(default_factory=list)
    lines: list[int] | range = range(0)
    bytes_used: int = 0
    lines_used: int = 0


class Cutter(Protocol):
    """A divider of one format into rows, with one object per open file."""

    def cut(self, data: bytes, line: int, last: bool) -> Cut:
        """Return the rows that are complete in `data`, which begins with line number `line`.

        Args:
            last: whether the file ends after `data`.
        """
        ...


class LineCutter:
    """The cutter of lines of text, which `convert` turns into records.

    Args:
        convert: turns a line into a record; None keeps the line as the record.
        whole: whether empty lines are rows.
        option: what to change in the pipeline if a line has another encoding; empty if the encoding is fixed.
        where: the name of the file.
    """

    def __init__(
        self,
        where: str,
        encoding: str,
        row_bytes_max: int,
        convert: Callable[[str], Any] | None,
        whole: bool,
        option: str = "",
    ) -> None:
        self._where = where
        self._encoding = encoding
        self._row_bytes_max = row_bytes_max
        self._convert = convert
        self._whole = whole
        self._option = option

    def cut(self, data: bytes, line: int, last: bool) -> Cut:
        used = whole_lines(data, self._row_bytes_max, last)
        if not used:
            return Cut()
        texts, clean = split(data[:used], self._encoding)
        if b"\r" in data:
            texts = [each.removesuffix("\r") for each in texts]
        lines: Sequence[int] = range(line, line + len(texts))
        result = Cut(texts, lines, used, len(texts))  # type: ignore[arg-type]
        if not self._whole:
            kept = [(text, number) for text, number in zip(texts, lines, strict=True) if text and not text.isspace()]
            result.rows, result.lines = [text for text, _ in kept], [number for _, number in kept]
        if self._convert is None and clean:
            return result
        result.rows = [self._row(text, number) for text, number in zip(result.rows, result.lines, strict=True)]
        return result

    def _row(self, text: str, line: int) -> Any:
        if _undecoded(text):
            return undecodable(text, f"{self._where}:{line}", self._encoding, self._option)
        if self._convert is None:
            return text
        try:
            return self._convert(text)
        except (ValueError, RecursionError, msgspec.MsgspecError) as problem:
            why = f"not JSON: {problem} (each line must contain one complete value)"
            return Unreadable(f"{self._where}:{line}", why, text[:RAW_BYTES_MAX])


class CsvCutter:
    """The cutter of CSV records, which are dicts keyed by column name.

    Args:
        columns: the column names; None if the first record contains them.
    """

    def __init__(
        self, where: str, encoding: str, row_bytes_max: int, columns: Sequence[str] | None, delimiter: str
    ) -> None:
        self._where = where
        self._encoding = encoding
        self._row_bytes_max = row_bytes_max
        self._delimiter = delimiter
        self.columns = columns

    def cut(self, data: bytes, line: int, last: bool) -> Cut:
        end = len(data) if last else data.rfind(b"\n") + 1
        if not end:
            return Cut()
        texts, _ = split(data[:end], self._encoding)
        sizes = [len(each) for each in data[:end].split(b"\n")]
        result = Cut(lines=[])
        limit = csv.field_size_limit(max(end, 1))  # the limit applies to the whole process; rows have their own limit
        try:
            result.lines_used = place = self._all(texts, sizes, line, result)
        finally:
            csv.field_size_limit(limit)
        result.bytes_used = min(end, sum(sizes[:place]) + place)
        return result

    def _all(self, texts: list[str], sizes: list[int], line: int, result: Cut) -> int:
        """Cut all complete records, and return the index of the line at which the next record begins."""
        place, complete = 0, True
        while complete and place < len(texts):
            reader = csv.reader(_feed(texts, place), delimiter=self._delimiter, strict=True)
            place, complete = self._records(reader, texts, sizes, place, line, result)
        return place

    def _records(
        self, reader: Any, texts: list[str], sizes: list[int], first: int, line: int, result: Cut
    ) -> tuple[int, bool]:
        """Cut records up to the first bad or incomplete one.

        Return the index of the line at which the next record begins, and whether that record may be cut now.
        """
        begin, rows, lines = first, result.rows, result.lines
        while True:
            try:
                values = next(reader)
            except StopIteration:
                return begin, True
            except csv.Error as problem:
                end = first + reader.line_num
                if "unexpected end" in str(problem):  # the last quote is not closed
                    return begin, False
                values, why = None, str(problem)
                if "new-line character" in why:
                    why = r"a line ends with \r; end all lines with \n"
                if self.columns is None:
                    raise ValueError(f"no CSV: {why}") from None
            else:
                end = first + reader.line_num
            if sum(sizes[begin:end]) + end - begin - 1 > self._row_bytes_max:
                return begin, False
            text = "\n".join(texts[begin:end]) if values is None or not self._fits(values) else ""
            if values is None:
                row: Any = Unreadable(f"{self._where}:{line + begin}", f"no CSV: {why}", text[:RAW_BYTES_MAX])
            elif not values:  # the line is empty
                begin = end
                continue
            elif self.columns is None:
                self.columns = self._header(values, texts[begin:end])
                begin = end
                continue
            elif text:
                row = self._unfit(values, text, line + begin)
            else:
                row = dict(zip(self.columns, values, strict=True))
            rows.append(row)
            lines.append(line + begin)  # type: ignore[union-attr]
            begin = end
            if values is None:
                return begin, True

    def _fits(self, values: list[str]) -> bool:
        return self.columns is None or (len(values) == len(self.columns) and not any(map(_undecoded, values)))

    def _unfit(self, values: list[str], text: str, line: int) -> Unreadable:
        where = f"{self._where}:{line}"
        if any(map(_undecoded, values)):
            return undecodable(text, where, self._encoding, ENCODING_OPTION)
        count = f"{len(values)} column{'s' * (len(values) != 1)}"
        return Unreadable(where, f"{count}, not {len(self.columns or ())}", text[:RAW_BYTES_MAX])

    def _header(self, values: list[str], texts: list[str]) -> Sequence[str]:
        twice = sorted({name for name in values if values.count(name) > 1})
        if twice:
            raise ValueError(f"two columns are named {twice[0]!r}")
        if any(map(_undecoded, values)):
            raise ValueError(f"the column names are not {self._encoding}")
        return values


def _feed(texts: list[str], first: int) -> Iterator[str]:
    return (texts[place] + "\n" for place in range(first, len(texts)))


def whole_lines(data: bytes, row_bytes_max: int, last: bool) -> int:
    """Return the total size of the complete lines at the beginning of `data` that are not too long."""
    end = len(data) if last else data.rfind(b"\n") + 1
    if end <= row_bytes_max:
        return end
    begin = 0
    while begin < end:
        stop = data.find(b"\n", begin, end)
        if (end if stop < 0 else stop) - begin > row_bytes_max:
            return begin
        begin = end if stop < 0 else stop + 1
    return end


def split(data: bytes, encoding: str) -> tuple[list[str], bool]:
    """Return the lines of `data` without line feeds, and whether all of them are valid in the given encoding.

    Invalid bytes become lone surrogates.
    """
    try:
        text, clean = data.decode(encoding), True
    except UnicodeDecodeError:
        text, clean = data.decode(encoding, "surrogateescape"), False
    texts = text.split("\n")
    if not texts[-1]:
        texts.pop()
    return texts, clean


def _undecoded(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def undecodable(text: str, where: str, encoding: str, option: str) -> Unreadable:
    """Return the `Unreadable` element for a line that is not valid in the encoding."""
    return Unreadable(where, f"not {encoding}", text[:RAW_BYTES_MAX].encode(encoding, "surrogateescape"), option)


def json_of(text: str) -> Any:
    """Return the value of a line of JSON, which may be nested as deeply as a record may be.

    Raises:
        ValueError: it is not JSON, or nested more deeply.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        pass
    try:
        with room_for_nesting():
            value = _DECODER.decode(text)
        encode(value)
    except (NotCarried, RecursionError) as problem:
        raise ValueError(str(problem)) from None
    return value


_DECODER = msgspec.json.Decoder()
