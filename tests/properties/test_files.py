"""Rows of files against plain readings of the same bytes: any blocks, any resume, files that appear at any time.

The oracles read a whole file in one step and know nothing of blocks, marks or listings.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from causal.records.rows import listed
from causal.records.unreadable import Unreadable
from operators.source import PartitionReader, SourceContext
from operators.sources import FilesSource
from operators.sources.files import file_blocks

MAX = 16
"""The `row_bytes_max` of every source here, so that long rows are ordinary."""
BAD = "bad"


def rows_of_text(content: bytes) -> list[Any]:
    content = content.removeprefix(b"\xef\xbb\xbf")
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [_text(line) for line in lines]


def _text(line: bytes) -> Any:
    if len(line) > MAX:
        return BAD
    try:
        return line.decode().removesuffix("\r")
    except UnicodeDecodeError:
        return BAD


JSON_LINES: dict[bytes, list[Any]] = {
    b"": [],
    b"  ": [],
    b"\r": [],
    b"1": [1],
    b'{"a":"\xc3\xa9"}': [{"a": "é"}],
    b"[1,2]\r": [[1, 2]],
    b"null": [None],
    b'{"a":1} {"b":2}': [BAD],
    b"1,2": [BAD],
    b"NaN": [BAD],
    b"{": [BAD],
    b'"\xff"': [BAD],
    b"1" * (MAX + 1): [BAD],
    b"1" * MAX: [int("1" * MAX)],
}


def plain(rows: Sequence[Any]) -> list[Any]:
    return [BAD if type(row) is Unreadable else row for row in rows]


def context(directory: Path) -> SourceContext:
    return SourceContext("lines", directory, 0)


def read_from(reader: PartitionReader, position: int, sizes: Sequence[int] = (7,)) -> list[Any]:
    """Return all rows from `position` to the end, or to where nothing more is there."""
    rows: list[Any] = []
    turn = 0
    while (read := reader.read(position + len(rows), sizes[turn % len(sizes)])) is not None:
        assert len(read.records) <= sizes[turn % len(sizes)]
        rows += listed(read.records)
        if read.ended:
            break
        turn += 1
    return rows


text_bytes = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"a", b'"', b",", b"\xc3\xa9", b"\xff", b"\xef\xbb\xbf", b"x" * MAX, b"\r"]),
    max_size=40,
).map(b"".join)
json_lines = st.lists(st.sampled_from(sorted(JSON_LINES)), max_size=20)
blocks = st.sampled_from([1, 2, 3, 7, 16, 17, 64, 1 << 18])


class Case:
    """One directory with files, and a source of them whose blocks have the size wanted."""

    def __init__(self, directory: Path, contents: Sequence[bytes], suffix: str, compressed: bool = False) -> None:
        self.directory = directory
        (directory / "in").mkdir()
        for number, content in enumerate(contents):
            name = directory / "in" / f"{number:03d}{suffix}{'.gz' if compressed else ''}"
            name.write_bytes(gzip.compress(content) if compressed else content)
        self.pattern = str(directory / "in" / "*")
        self.format = {".txt": "text", ".jsonl": "json", ".csv": "csv"}[suffix]

    def reader(self, partition: int = 0, partitions: int = 1, **options: Any) -> PartitionReader:
        source = FilesSource(self.pattern, format=self.format, row_bytes_max=MAX, partitions=partitions, **options)
        return source.open(partition, context(self.directory))


@given(st.lists(text_bytes, min_size=1, max_size=4), blocks, st.booleans(), st.lists(st.integers(1, 9), min_size=1))
def test_lines_of_text_are_those_of_the_whole_file(
    contents: list[bytes], block: int, compressed: bool, sizes: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_blocks, "BLOCK_BYTES", block)
        reader = Case(Path(directory), contents, ".txt", compressed).reader()
        expected = [row for content in contents for row in rows_of_text(content)]
        assert plain(read_from(reader, 0, sizes)) == expected


@given(st.lists(json_lines, min_size=1, max_size=3), blocks)
def test_lines_of_json(contents: list[list[bytes]], block: int) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_blocks, "BLOCK_BYTES", block)
        reader = Case(Path(directory), [b"\n".join(lines) for lines in contents], ".jsonl").reader()
        expected = [row for lines in contents for line in lines for row in JSON_LINES[line]]
        assert plain(read_from(reader, 0)) == expected


fields = st.sampled_from(["", "a", 'q"', "x,y", "n\nm", "é", "r\r\nt"])


@given(st.lists(st.lists(fields, min_size=1, max_size=3), max_size=12), blocks, st.sampled_from(["\n", "\r\n"]))
def test_records_of_csv_are_what_was_written(rows: list[list[str]], block: int, end: str) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerow(["k", "v"])
    writer.writerows(rows)
    expected: list[Any] = []
    for row in rows:
        size = len(",".join(f'"{each.replace(chr(34), chr(34) * 2)}"' for each in row).encode()) + len(end) - 1
        if size > MAX and any("\n" in each for each in row):
            return  # several bad rows; the next test compares them
        expected.append(BAD if size > MAX or len(row) != 2 else {"k": row[0], "v": row[1]})
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_blocks, "BLOCK_BYTES", block)
        reader = Case(Path(directory), [text.getvalue().encode()], ".csv").reader()
        assert plain(read_from(reader, 0)) == expected


@given(text_bytes, blocks)
def test_records_of_csv_do_not_depend_on_blocks(content: bytes, block: int) -> None:
    content = b"k,v\n" + content
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        case = Case(Path(directory), [content], ".csv")
        whole = read_from(case.reader(located=True), 0)
        patch.setattr(file_blocks, "BLOCK_BYTES", block)
        assert read_from(case.reader(located=True), 0) == whole


@given(
    st.sampled_from([".txt", ".csv"]),
    st.lists(text_bytes, min_size=1, max_size=4),
    blocks,
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.booleans()), min_size=1, max_size=6),
)
def test_every_position_is_read_again_as_it_was(
    suffix: str, contents: list[bytes], block: int, compressed: bool, turns: list[tuple[int, int, bool]]
) -> None:
    """Readers that begin anywhere, return to anywhere above the last checkpoint, and are replaced by others."""
    contents = [b"k,v\n" + content for content in contents]
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_blocks, "BLOCK_BYTES", block)
        case = Case(Path(directory), contents, suffix, compressed)
        rows = read_from(case.reader(), 0)
        reader, covered = case.reader(), 0
        for begin, done, replaced in turns:
            position = covered + begin % (len(rows) - covered + 1)
            assert read_from(reader, position, (3,)) == rows[position:]
            covered = position + done % (len(rows) - position + 1)
            reader.completed(covered)
            if replaced:
                reader.close()
                reader = case.reader()
                assert read_from(reader, 0) == rows  # of an older savepoint


@pytest.mark.parametrize("block", range(1, 40))
def test_rows_behind_empty_lines_before_the_names_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(file_blocks, "BLOCK_BYTES", block)
    reader = Case(tmp_path, [b"\n" * 20 + b"k,v\na,b\nc,d\n"], ".csv").reader()
    rows = [{"k": "a", "v": "b"}, {"k": "c", "v": "d"}]
    for position in (0, 1, 0, 2, 1):
        assert read_from(reader, position) == rows[position:]


class Following(RuleBasedStateMachine):
    """Files appear while partitions are read by readers that die: each row comes once, at a position that keeps it."""

    PARTITIONS = 3

    @initialize()
    def begin(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.directory = Path(self.place.name)
        self.case = Case(self.directory, [], ".txt")
        self.rows: list[list[Any]] = [[] for _ in range(self.PARTITIONS)]
        self.covered = [0] * self.PARTITIONS
        self.readers = [self._reader(partition) for partition in range(self.PARTITIONS)]
        self.written: list[str] = []

    def _reader(self, partition: int) -> PartitionReader:
        reader = self.case.reader(partition, self.PARTITIONS, follow=True, quiet_s=0.0)
        reader._poll_s = 0.0  # type: ignore[attr-defined]
        return reader

    @rule(names=st.lists(st.integers(0, 999), unique=True, max_size=4), count=st.integers(0, 4))
    def appear(self, names: list[int], count: int) -> None:
        for name in names:
            path = self.directory / "in" / f"{name:03d}.txt"
            if path.exists():
                continue
            rows = [f"{name}-{number}" for number in range(count)]
            aside = self.directory / "aside"
            aside.write_text("".join(row + "\n" for row in rows))
            os.rename(aside, path)
            self.written += rows

    @rule(partition=st.integers(0, 2), count=st.integers(1, 9))
    def read(self, partition: int, count: int) -> None:
        read = self.readers[partition].read(len(self.rows[partition]), count)
        self.rows[partition] += listed(read.records) if read is not None else []

    @rule(partition=st.integers(0, 2), behind=st.integers(0, 20))
    def cover(self, partition: int, behind: int) -> None:
        self.covered[partition] = max(self.covered[partition], len(self.rows[partition]) - behind)
        self.readers[partition].completed(self.covered[partition])

    @rule(partition=st.integers(0, 2))
    def die(self, partition: int) -> None:
        """Another process begins where the last checkpoint was, and finds what was there."""
        self.readers[partition] = self._reader(partition)
        first = self.covered[partition]
        again: list[Any] = []
        while len(again) < len(self.rows[partition]) - first:
            read = self.readers[partition].read(first + len(again), 5)
            assert read is not None
            again += listed(read.records)
        assert again[: len(self.rows[partition]) - first] == self.rows[partition][first:]

    @precondition(lambda self: hasattr(self, "readers"))
    @invariant()
    def no_row_twice(self) -> None:
        rows = [row for each in self.rows for row in each]
        assert len(rows) == len(set(rows))

    def teardown(self) -> None:
        if not hasattr(self, "readers"):
            return
        for _ in range(2):  # what one partition lists, the others have to read
            for partition in range(self.PARTITIONS):
                self.rows[partition] += read_from(self.readers[partition], len(self.rows[partition]))
        assert sorted(row for each in self.rows for row in each) == sorted(self.written)
        self.place.cleanup()


TestFollowing = Following.TestCase
TestFollowing.settings = settings(stateful_step_count=30)
