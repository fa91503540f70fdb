"""Files that are not what was hoped for: each gives its rows, a bad row, or one line that names the file."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from causal.errors import CausalError, CorruptData, DeterminantsLost, OperatorFailed, PipelineError, Unavailable
from causal.records.unreadable import Unreadable
from causal.records.values import encode
from causal.storage.directory import Directory
from causal.storage.files import read_parts, write_parts
from operators.source import SourceContext
from operators.sources import FilesSource
from operators.sources.files import file_blocks
from operators.sources.files.listing import FileJournal
from operators.sources.files.local_files import LocalFile, LocalFiles
from tests.properties.test_files import read_from


def job(directory: Path) -> Path:
    """Return the directory of a job."""
    (directory / "job").mkdir(parents=True, exist_ok=True)
    return directory / "job"


def rows(directory: Path, pattern: str, partition: int = 0, **options: Any) -> list[Any]:
    """Return all rows of a partition; of those that cannot be read, (where, why)."""
    source = FilesSource(str(directory / pattern), **options)
    source.check()
    reader = source.open(partition, SourceContext("s", job(directory), 0))
    try:
        return [(Path(row.where).name, row.why) if type(row) is Unreadable else row for row in read_from(reader, 0)]
    finally:
        reader.close()


def refusal(directory: Path, pattern: str, **options: Any) -> str:
    """Return the one line that reading ends with."""
    with pytest.raises(CausalError) as refused:
        rows(directory, pattern, **options)
    line = str(refused.value)
    assert "\n" not in line and str(directory) in line
    return line.replace(str(directory), "")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\n\xff\xfe\nb", ["a", ("f.txt:2", "not utf-8"), "b"]),
        (b"a\n" + b"x" * 5_000_000 + b"\nb\n", ["a", ("f.txt:2", "a line of more than 1,048,576 bytes"), "b"]),
        (b"a\0b\n", ["a\0b"]),
    ],
    ids=["no UTF-8", "huge line", "NUL"],
)
def test_text(tmp_path: Path, content: bytes, expected: list[Any]) -> None:
    (tmp_path / "f.txt").write_bytes(content)
    assert rows(tmp_path, "f.txt") == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", []),
        ("k,v\n", []),
        (
            "k,v\n1,2,3\n4,5\n6\n",
            [("f.csv:2", "3 columns, not 2"), {"k": "4", "v": "5"}, ("f.csv:4", "1 column, not 2")],
        ),
        ('k,v\n1,"a\nb"\n\n2,"c', [{"k": "1", "v": "a\nb"}, ("f.csv:5", "a quote is not closed")]),
        ('k,v\n"a"b,c\n1,2\n', [("f.csv:2", "no CSV: ',' expected after '\"'"), {"k": "1", "v": "2"}]),
        ('﻿"k","v"\r\n1,"a\r\nb"\r\n', [{"k": "1", "v": "a\r\nb"}]),
        ("k,v\n" + "x" * 200_000 + ",2\n", [{"k": "x" * 200_000, "v": "2"}]),
        ('k,v\n"' + "x\n" * 100_000 + '",2\n', [{"k": "x\n" * 100_000, "v": "2"}]),
    ],
    ids=["empty", "header only", "other columns", "open quote", "quote inside", "BOM", "long value", "long quote"],
)
def test_csv(tmp_path: Path, content: str, expected: list[Any]) -> None:
    (tmp_path / "f.csv").write_bytes(content.encode())
    assert rows(tmp_path, "f.csv") == expected


def test_the_limit_of_the_csv_module_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("k\nlonger\n")
    limit = csv.field_size_limit(3)
    try:
        assert rows(tmp_path, "f.csv") == [{"k": "longer"}]
        assert csv.field_size_limit() == 3
    finally:
        csv.field_size_limit(limit)


def test_a_link_to_itself_is_passed_over_and_refused_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.txt").symlink_to(tmp_path / "b.txt")
    assert rows(tmp_path, "*.txt") == ["a"]
    assert "/b.txt is not a regular file" in refusal(tmp_path, "b.txt")


def test_csv_with_names_given_and_another_delimiter(tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_bytes(b"1\t\xe9\n")
    options: dict[str, Any] = {"format": "csv", "columns": ["a", "b"], "delimiter": "\t", "encoding": "latin-1"}
    assert rows(tmp_path, "f.tsv", **options) == [{"a": "1", "b": "é"}]


def test_a_header_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    for content, why in (
        ("a,a\n", "two columns are named 'a'"),
        ('"a,b\n', "the column names"),
        ('"a"b\n', "no CSV"),
    ):
        (tmp_path / "f.csv").write_text(content)
        line = refusal(tmp_path, "f.csv")
        assert line.startswith("/f.csv:1: ") and why in line
        for path in (tmp_path / "job" / "file-listings" / "s").iterdir():
            path.unlink()


def _tar() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.csv"), io.BytesIO())
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("a,b\n".encode("utf-16"), "it is UTF-16: convert it (iconv -f utf-16 -t utf-8)"),
        (b"\xfe\xff" + "a,b\n".encode("utf-16-be"), "it is UTF-16"),
        (bz2.compress(b"a,b\n"), "it is compressed as bz2; only gzip is read"),
        (_tar(), "it is a tar archive: unpack it"),
        (b"Obj\x01\x04", "it is an Avro file"),
        (lzma.compress(b"a,b\n"), "it is compressed as xz"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "it is compressed as zstd"),
        (b"PK\x03\x04\x14", "it is a zip archive or a workbook (.xlsx)"),
        (b"PK,b\n1,2\n", ""),
    ],
)
def test_files_that_hold_no_lines_are_refused(tmp_path: Path, content: bytes, line: str) -> None:
    (tmp_path / "f.csv").write_bytes(content)
    (tmp_path / "f.txt.gz").write_bytes(gzip.compress(content))
    if line:
        assert f"FilesSource: /f.csv: {line}" in refusal(tmp_path, "f.csv")
        assert refusal(tmp_path, "f.txt.gz").startswith(f"/f.txt.gz: {line}")
    else:
        assert len(rows(tmp_path, "f.csv")) == 1


def test_carriage_returns_alone_are_named(tmp_path: Path) -> None:
    why = r"no CSV: a line ends with \r; end all lines with \n"
    (tmp_path / "f.csv").write_bytes(b"1,2\r3,4\n")
    assert refusal(tmp_path, "f.csv").startswith(f"/f.csv:1: {why}")
    assert rows(tmp_path, "f.csv", columns=["a", "b"]) == [("f.csv:1", why)]


def test_json_is_read_as_deep_as_records_are_carried(tmp_path: Path) -> None:
    """The documented depth of a record is that of a line; what is deeper is a bad row."""
    deep = 1023
    (tmp_path / "f.jsonl").write_text(
        "[" * deep + "]" * deep + "\n" + "[" * 1500 + "]" * 1500 + "\n" + "[" * 100_000 + "\n1\n"
    )
    first, second, third, fourth = rows(tmp_path, "f.jsonl")
    assert encode(first) and (second[0], third[0], fourth) == ("f.jsonl:2", "f.jsonl:3", 1)
    assert "nested too deeply; the limit is 1024 lists and dicts" in second[1]


def test_lines_of_json_that_are_none_say_where_and_why(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_bytes(b'{"a": 1}\n{"a": 1\n\n[1]')
    first, bad, last = rows(tmp_path, "f.jsonl")
    assert (first, last) == ({"a": 1}, [1])
    assert bad[0] == "f.jsonl:2" and bad[1].startswith("not JSON: ")


@pytest.mark.parametrize("name", ["f.txt.gz", "f.GZ", "f.Gz", "f.txt", "f"])
def test_what_is_compressed_is_known_by_its_first_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n") + bytes(100))
    assert rows(tmp_path, name) == ["a", "b"]
    assert FilesSource(str(tmp_path / "x.csv.GZ")).format == "csv"


def test_a_file_that_ends_before_its_size_is_not_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system may do so: the name and the size are as they were, and no more bytes come."""
    path = tmp_path / "f.txt"
    path.write_text("line\n" * 200_000)
    reader = FilesSource(str(path)).open(0, SourceContext("s", job(tmp_path), 0))
    assert reader.read(0, 10)
    shown = os.stat(path)
    monkeypatch.setattr(LocalFile, "verify", lambda listed: listed.check_status(shown))
    os.truncate(path, 500_000)
    with pytest.raises(Unavailable, match="f.txt ends at byte 500,000 of 1,000,000"):
        read_from(reader, 10, (1000,))


@pytest.mark.parametrize("damage", ["cut", "flipped", "none of it", "more behind it", "empty", "a cut member"])
def test_damaged_gzip_is_one_line(tmp_path: Path, damage: str) -> None:
    whole = gzip.compress(os.urandom(100_000).hex().encode())
    damaged = {
        "cut": whole[:-1000],
        "flipped": whole[:500] + bytes([whole[500] ^ 255]) + whole[501:],
        "none of it": b"plain\n",
        "more behind it": whole + b"plain",
        "empty": b"",
        "a cut member": gzip.compress(b"a\n") + whole[:5],
    }
    (tmp_path / "f.txt.gz").write_bytes(damaged[damage])
    assert re.match(r"/f\.txt\.gz is damaged: .*; restore the original", refusal(tmp_path, "f.txt.gz"))


def test_what_is_no_file_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert "/in is a directory; use '/in/*'" in refusal(tmp_path, "in")
    assert "/pipe is not a regular file" in refusal(tmp_path, "pipe")
    assert "no file matches /in/*" in refusal(tmp_path, "in/*")
    (tmp_path / "there").write_text("")
    with pytest.raises(PipelineError, match="no file matches .*/typo"):
        FilesSource(str(tmp_path / "there"), str(tmp_path / "typo")).check()
    assert "the directory /out does not exist" in refusal(tmp_path, "out/*.csv", follow=True)


@pytest.mark.parametrize(
    ("name", "pattern", "named", "read_as"),
    [("a.csv", "*", "csv", "text"), ("a.csv.gz", "*.csv*", "csv", "text"), ("a.jsonl", "a.*", "json", "text")],
)
def test_a_format_that_no_pattern_says_but_a_name_does_is_asked_for(
    tmp_path: Path, name: str, pattern: str, named: str, read_as: str
) -> None:
    (tmp_path / name).write_text("")
    line = refusal(tmp_path, pattern)
    assert f"/{name} has a name like {named}, but would be read as {read_as}" in line and f"format={named!r}" in line
    FilesSource(str(tmp_path / pattern), format=read_as).check()
    FilesSource(str(tmp_path / pattern), format=named).check()


def test_the_first_pattern_does_not_say_the_format_of_the_second_silently(tmp_path: Path) -> None:
    for name in ("a.CSV", "b.jsonl"):
        (tmp_path / name).write_text("x\n")
    assert FilesSource(str(tmp_path / "a.CSV")).format == "csv"
    with pytest.raises(PipelineError, match=r"b\.jsonl has a name like json, but would be read as csv"):
        FilesSource(str(tmp_path / "*.CSV"), str(tmp_path / "*.jsonl")).check()


def test_directories_pipes_and_hidden_names_that_a_pattern_matches_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in (".hidden", "_SUCCESS", "a"):
        (tmp_path / name).write_text(f"{name}\n")
    assert rows(tmp_path, "*") == ["a"]
    assert rows(tmp_path / "..", f"{tmp_path.name}/_SUCCESS") == ["_SUCCESS"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not read")
def test_a_file_that_must_not_be_read_is_one_line() -> None:
    program = (
        "import os, sys; from operators.sources import FilesSource; source = FilesSource(sys.argv[1]); "
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); source.check()"
    )
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = Path(directory, "f.txt")
        path.write_text("secret\n")
        path.chmod(0o600)
        ended = subprocess.run([sys.executable, "-c", program, str(path)], text=True, capture_output=True)
    assert f"{path} cannot be read: permission denied; grant the job's user permission to read it" in ended.stderr


def test_a_file_that_changes_or_goes_after_it_was_read_in_part_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    for change, why in (
        (lambda: path.write_text("x\n"), "changed since the job listed it: it had 1,000,000 bytes and now has 2"),
        (lambda: os.utime(path, (1, 1)), "its modification time has changed"),
        (path.unlink, "is missing, but the job has not finished reading it"),
    ):
        path.write_text("line\n" * 200_000)
        reader = FilesSource(str(path)).open(0, SourceContext("s", job(tmp_path), 0))
        assert reader.read(0, 10)
        change()
        with pytest.raises(DeterminantsLost, match=f"^{path} .*{why}"):
            read_from(reader, 10, (1000,))
        reader.close()
        (tmp_path / "job" / "file-listings" / "s" / "listing-0000000000").unlink()


def test_files_that_appear_after_the_listing_are_read_only_where_they_are_followed(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b\n")
    for follow in (False, True):
        context = SourceContext(f"follow-{follow}", job(tmp_path), 0)
        source = FilesSource(str(tmp_path / "*.txt"), follow=follow, quiet_s=0)
        reader = source.open(0, context)
        reader._poll_s = 0.0  # type: ignore[attr-defined]
        assert read_from(reader, 0) == ["b"]
        (tmp_path / "a.txt").write_text("a\n")
        assert read_from(reader, 1) == (["a"] if follow else [])
        (tmp_path / "a.txt").unlink()


class Version:
    """A source of one job's directory with options of its own, as a version of the job has it."""

    def __init__(self, directory: Path, *patterns: str, follow: bool = False) -> None:
        paths = [str(directory / pattern) for pattern in patterns]
        self._source = FilesSource(*paths, follow=follow, quiet_s=0)
        self._job = job(directory)

    def refusal(self, rolled_back: bool = False) -> str:
        """Return the line with which the job is not resumed; empty if it is."""
        try:
            self._source.check_resumed("s", self._job, rolled_back)
        except PipelineError as problem:
            return str(problem)
        return ""

    def read(self, position: int) -> tuple[list[Any], bool]:
        """Return the rows from a position on, and whether the source ends after them."""
        reader = self._source.open(0, SourceContext("s", self._job, 0))
        reader._poll_s = 0.0  # type: ignore[attr-defined]
        try:
            rows = read_from(reader, position)
            last = reader.read(position + len(rows), 1)
            return rows, last is not None and last.ended
        finally:
            reader.close()


def put(directory: Path, name: str) -> None:
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_text(f"{name}\n")


def test_what_was_followed_is_read_to_the_end_by_a_version_that_does_not(tmp_path: Path) -> None:
    for count, appear in enumerate(([], ["b.txt"], ["c.txt", "d.txt"])):
        directory = tmp_path / str(count)
        put(directory, "a.txt")
        assert Version(directory, "*.txt", follow=True).read(0) == (["a.txt"], False)
        for name in appear:
            put(directory, name)
        after = Version(directory, "*.txt")
        assert after.refusal() == ""
        assert after.read(0) == (["a.txt", *appear], True)
        put(directory, "e.txt")
        assert after.read(1) == (appear, True), "its list is complete from then on"
        assert "so follow=True would leave files out" in Version(directory, "*.txt", follow=True).refusal()


def test_a_version_that_is_rolled_back_follows_files_again(tmp_path: Path) -> None:
    before, failed = Version(tmp_path, "*.txt", follow=True), Version(tmp_path, "*.txt")
    put(tmp_path, "a.txt")
    before.read(0)
    put(tmp_path, "b.txt")
    assert failed.read(1) == (["b.txt"], True)
    assert before.refusal(rolled_back=True) == ""
    assert before.read(1) == (["b.txt"], False)
    put(tmp_path, "c.txt")
    assert before.refusal() == ""
    assert failed.read(2) == (["c.txt"], True), "the list continues, and is completed again"


def test_a_list_that_was_complete_at_the_start_is_never_followed(tmp_path: Path) -> None:
    put(tmp_path, "a.txt")
    Version(tmp_path, "*.txt").read(0)
    followed = Version(tmp_path, "*.txt", follow=True)
    for rolled_back in (False, True):
        line = followed.refusal(rolled_back)
        assert line.startswith("source 's': its list of files is complete, so follow=True would leave files out; ")
        assert "add a source with another name" in line
    with pytest.raises(PipelineError, match="so follow=True would leave files out"):
        followed.read(0)


def test_other_patterns_than_those_of_a_complete_list_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "a/1.txt")
    put(tmp_path, "b/2.txt")
    assert Version(tmp_path, "a/*.txt", "a/1*").read(0) == (["a/1.txt"], True)
    assert Version(tmp_path, "a/1*", "a/*.txt").refusal() == ""
    for patterns in (["[ab]/*.txt"], ["b/*.txt"], ["a/*.txt"], ["a/*.txt", "a/1*", "b/*.txt"]):
        changed = Version(tmp_path, *patterns)
        line = changed.refusal()
        assert f"so a change of its patterns ({tmp_path}/a/*.txt, {tmp_path}/a/1*) would leave files out" in line
        with pytest.raises(PipelineError, match="a change of its patterns"):
            changed.read(0)


def test_other_patterns_hold_for_what_is_followed_from_then_on(tmp_path: Path) -> None:
    put(tmp_path, "a/1.txt")
    put(tmp_path, "b/2.txt")
    assert Version(tmp_path, "a/*.txt", follow=True).read(0) == (["a/1.txt"], False)
    put(tmp_path, "a/3.txt")
    changed = Version(tmp_path, "b/*.txt", follow=True)
    assert changed.refusal() == ""
    assert changed.read(0) == (["a/1.txt", "b/2.txt"], False)
    ending = Version(tmp_path, "[ab]/*.txt")
    assert (ending.refusal(), ending.read(2)) == ("", (["a/3.txt"], True))


def test_a_pattern_that_is_written_as_before_may_stand_for_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "before", "a.txt")
    monkeypatch.chdir(tmp_path / "before")
    assert rows(Path(), "*.txt") == ["a.txt"]
    os.rename(tmp_path / "before", tmp_path / "now")
    monkeypatch.chdir(tmp_path / "now")
    FilesSource("*.txt").check_resumed("s", Path("job"), False)
    with pytest.raises(DeterminantsLost, match=re.escape(f"{tmp_path}/before/a.txt is missing")):
        rows(Path(), "*.txt")


def test_a_list_of_an_earlier_release_has_any_patterns(tmp_path: Path) -> None:
    put(tmp_path, "a.txt")
    Version(tmp_path, "*.txt").read(0)
    path = tmp_path / "job" / "file-listings" / "s" / "listing-0000000000"
    body = json.loads(read_parts(path)[0])
    del body["patterns"], body["written"]
    write_parts(path, [json.dumps(body).encode()], durable=False)
    other = Version(tmp_path, "a*")
    assert (other.refusal(), other.read(0)) == ("", (["a.txt"], True))


def test_a_followed_file_is_taken_when_it_is_not_being_written(tmp_path: Path) -> None:
    fresh, old = tmp_path / "fresh.txt", tmp_path / "old.txt"
    fresh.write_text("half")
    old.write_text("old\n")
    an_hour_ago = time.time() - 3600
    os.utime(old, (an_hour_ago, an_hour_ago))
    finder = LocalFiles([str(tmp_path / "*.txt")], quiet_s=1800)
    journal = FileJournal(Directory(tmp_path), "job", finder, follow=True)
    assert journal.look(0) and not journal.look(1)
    listing = journal.listing(0)
    assert listing is not None and [file.path for file in listing.files] == [str(old)]


def test_files_go_to_the_partitions_in_turn_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in "dbeca":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    assert [rows(tmp_path, "*.txt", part, partitions=2) for part in (1, 0)] == [["b", "d"], ["a", "c", "e"]]
    with pytest.raises(PipelineError, match="was started with partitions=2, but FilesSource has 3"):
        rows(tmp_path, "*.txt", partitions=3)


def test_a_damaged_journal_is_never_believed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    assert rows(tmp_path, "*.txt") == ["a"]
    listing = tmp_path / "job" / "file-listings" / "s" / "listing-0000000000"
    listing.write_bytes(listing.read_bytes().replace(b"a.txt", b"b.txt"))
    with pytest.raises(CorruptData, match="listing-0000000000 does not match its digest"):
        rows(tmp_path, "*.txt")


def test_a_position_that_the_files_do_not_reach_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    reader = FilesSource(str(tmp_path / "a.txt")).open(0, SourceContext("s", job(tmp_path), 0))
    with pytest.raises(DeterminantsLost, match="has read up to row 5, but its files end at 1"):
        reader.read(5, 1)


def test_a_byte_order_mark_in_a_block_that_follows_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f.txt").write_bytes(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
    monkeypatch.setattr(file_blocks, "BLOCK_BYTES", 1)
    assert rows(tmp_path, "f.txt", encoding="utf-8-sig") == ["a", "\ufeffb"]


def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    for options, why in (
        ({"format": "xml"}, "format 'xml'"),
        ({"partitions": 0}, "partitions 0"),
        ({"encoding": "utf-16"}, "encoding 'utf-16'"),
        ({"encoding": "cp037"}, "encoding 'cp037'"),
        ({"encoding": "iso2022_jp"}, "encoding 'iso2022_jp'"),
        ({"encoding": "raw_unicode_escape"}, "encoding 'raw_unicode_escape'"),
        ({"encoding": "latin-1", "format": "json"}, "JSON is always utf-8"),
        ({"delimiter": ";;"}, "delimiter ';;'"),
        ({"columns": ["a"]}, "columns"),
        ({"columns": "ab", "format": "csv"}, "columns 'ab'"),
        ({"columns": [1, 2], "format": "csv"}, "columns"),
        ({"row_bytes_max": 1}, "row_bytes_max 1"),
        ({"quiet_s": -1}, "quiet_s -1"),
    ):
        with pytest.raises(PipelineError, match=f"test_files.py:.*FilesSource has .*{why}|{why}"):
            FilesSource("a.txt", **options)
    for nothing in ((), ("",), ("a.csv", "")):
        with pytest.raises(PipelineError, match="was given no file"):
            FilesSource(*nothing)
    for wrong in (["a.csv"], ("a.csv", "b.csv"), None, 3):
        with pytest.raises(PipelineError) as failure:
            FilesSource(wrong)  # type: ignore[arg-type]
        assert str(failure.value).endswith(
            f"FilesSource was given a {type(wrong).__name__}; pass each path as a separate argument, as in "
            "FilesSource('a.csv', 'b.csv') or FilesSource(*paths)"
        )


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")
    import pyarrow.parquet as parquet

    for name, first in (("a", 0), ("b", 30_000)):
        numbers = list(range(first, first + 30_000))
        parquet.write_table(pa.table({"n": numbers}), tmp_path / f"{name}.parquet", row_group_size=20_000)
    source = FilesSource(str(tmp_path / "*.parquet"))
    reader = source.open(0, SourceContext("s", job(tmp_path), 0))
    assert read_from(reader, 0, (999,)) == [{"n": n} for n in range(60_000)]
    for covered in (0, 1, 8191, 8192, 19_999, 20_000, 29_999, 30_000, 47_123, 59_999, 60_000):
        reader.completed(covered)
        again = source.open(0, SourceContext("s", job(tmp_path), 0))
        assert read_from(again, covered, (5000,)) == [{"n": n} for n in range(covered, 60_000)]
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "c.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-100])
    assert "/c.parquet is not a Parquet file, or it is damaged: " in refusal(tmp_path / "cut", "c.parquet")
    with pytest.raises(OperatorFailed, match=r"odd\.parquet: "):
        parquet.write_table(pa.table({"n": pa.array([1], pa.duration("s"))}), tmp_path / "odd.parquet")
        FilesSource(str(tmp_path / "odd.parquet")).open(0, SourceContext("o", job(tmp_path), 0)).read(0, 1)


def test_a_row_of_parquet_that_no_record_holds_is_a_bad_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")
    import pyarrow.parquet as parquet

    times = pa.array([0, 1001, None, 2000], pa.timestamp("ns"))
    days = pa.array([0, 0, 2**30, 0], pa.date32())
    parquet.write_table(pa.table({"n": [1, 2, 3, 4], "at": times, "day": days}), tmp_path / "a.parquet")
    day = datetime(1970, 1, 1)
    first, second, third, fourth = rows(tmp_path, "a.parquet")
    assert first == {"n": 1, "at": day, "day": day}
    assert second == ("a.parquet:2", "column at: 1001 ns since 1970 is not a whole number of microseconds")
    assert third == ("a.parquet:3", f"column day: {2**30} days since 1970 is not a day in years 1 to 9999")
    assert fourth == {"n": 4, "at": day + timedelta(microseconds=2), "day": day}
    reader = FilesSource(str(tmp_path / "a.parquet")).open(0, SourceContext("s", job(tmp_path), 0))
    [unreadable] = read_from(reader, 0)[1:2]
    assert unreadable.raw == {"n": 2, "at": "column at: 1001 ns since 1970", "day": day}


def test_times_of_parquet_files_of_old_writers_do_not_wrap_around(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")
    import pyarrow.parquet as parquet

    last = datetime(9999, 12, 31, 23)
    table = pa.table({"at": pa.array([last], pa.timestamp("us"))})
    parquet.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert rows(tmp_path, "a.parquet") == [{"at": last}]


def test_a_fraction_of_a_microsecond_in_an_old_time_is_a_bad_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")
    import pyarrow.parquet as parquet

    ns = pa.timestamp("ns")
    struct, mapping = pa.struct([("n", pa.int64()), ("at", ns)]), pa.map_(pa.string(), ns)
    columns = {
        "flat": (ns, [1000, 1001, None, -2000, 2000, 2000]),
        "list": (pa.list_(ns), [[1000], [], None, [None, -1], [0], [0]]),
        "struct": (struct, [{"n": 1, "at": 1000}, None, None, {"n": 1}, {"n": 1, "at": 1}, None]),
        "map": (mapping, [[("a", 1000)], [], None, [("a", None)], [], [("a", 1000), ("b", 999)]]),
    }
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    parquet.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True, row_group_size=4)
    got = rows(tmp_path, "a.parquet")
    second = datetime(1970, 1, 1, microsecond=1)
    assert got[0] == {"flat": second, "list": [second], "struct": {"n": 1, "at": second}, "map": {"a": second}}
    assert got[2] == dict.fromkeys(columns)
    bad = [(2, "flat"), (4, "list"), (5, "struct"), (6, "map")]
    why = "a time is not a whole number of microseconds"
    assert [got[n - 1] for n, _ in bad] == [(f"a.parquet:{n}", f"column {name}: {why}") for n, name in bad]
