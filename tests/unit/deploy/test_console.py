"""Tests of the console: files that grow, are truncated, and outlive the process that shows them."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from causal.storage.punch_hole import free, taken_bytes
from deploy.progress import console
from deploy.progress.console import Console


class Broken(io.BytesIO):
    def write(self, data: object) -> int:
        raise BrokenPipeError


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    (tmp_path / "console").mkdir()
    return tmp_path / "console" / "out-0.jsonl"


def test_whole_lines_are_shown_once_also_by_the_next_one(tmp_path: Path, rows: Path) -> None:
    out = io.BytesIO()
    first = Console(tmp_path, out)
    assert not first.show() and not first.shown
    rows.write_bytes(b"1\n2\n3")
    assert first.show() and first.shown
    assert not first.show()
    assert out.getvalue() == b"1\n2\n"
    rows.write_bytes(b"1\n2\n34\n5\n")
    second = Console(tmp_path, out)
    second.start()
    second.close()
    assert out.getvalue() == b"1\n2\n34\n5\n"


def test_long_lines_and_many_files_are_shown_whole(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "CHUNK_BYTES_MAX", 4)
    out = io.BytesIO()
    rows.write_bytes(b"abcdefghij\nk\n")
    rows.with_name("out-1.jsonl").write_bytes(b"x\n")
    shower = Console(tmp_path, out)
    shower.start()
    shower.close()
    assert sorted(out.getvalue().splitlines()) == [b"abcdefghij", b"k", b"x"]


def test_rows_that_are_withdrawn_are_told(tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.BytesIO()
    shower = Console(tmp_path, out)
    rows.write_bytes(b"1\n2\n3\n")
    shower.show()
    rows.write_bytes(b"1\n")
    shower.show()
    rows.write_bytes(b"1\n4\n")
    shower.show()
    assert out.getvalue() == b"1\n2\n3\n4\n"
    assert capsys.readouterr().err == "causal: printed rows of out-0 were withdrawn; other rows replace them\n"


def test_that_nobody_reads_is_said_once_and_ends_nothing(
    tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows.write_bytes(b"1\n")
    shower = Console(tmp_path, Broken())
    shower.start()
    shower.close()
    assert capsys.readouterr().err.count("rows are no longer read") == 1
    rows.write_bytes(b"1\n2\n")
    out = io.BytesIO()
    Console(tmp_path, out).show()
    assert out.getvalue() == b"2\n", "unread rows were dropped"


def test_what_has_been_shown_takes_no_room_and_what_follows_is_shown(tmp_path: Path, rows: Path) -> None:
    line = b"x" * 999 + b"\n"
    rows.write_bytes(line * 5000)
    with open(rows, "r+b") as file:
        if not free(file.fileno(), 1):
            pytest.skip("this file system cannot give back a part of a file")
    rows.write_bytes(line * 5000)
    out = io.BytesIO()
    shower = Console(tmp_path, out)
    while shower.show():
        with open(rows, "rb") as file:
            assert taken_bytes(file.fileno()) < 6_000_000 - len(out.getvalue()) + console.FREED_BYTES
    with open(rows, "ab") as file:
        assert taken_bytes(file.fileno()) < 100_000 and os.fstat(file.fileno()).st_size == 5_000_000
        file.write(b"more\n")
    shower.show()
    assert out.getvalue() == line * 5000 + b"more\n"
