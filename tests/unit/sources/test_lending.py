"""Sources lend to readers of another process what these need, without an effect on the job."""

from __future__ import annotations

from pathlib import Path

from causal.records.rows import listed
from causal.storage.directory import Directory
from operators.source import PartitionReader, SourceContext
from operators.sources import FilesSource, GeneratedSource
from operators.sources.beginnings import Beginnings, lend_beginnings


def written(directory: Path, name: str, rows: range) -> None:
    (directory / name).write_text("".join(f"{row}\n" for row in rows))


def reader_in(source: FilesSource, job: Path) -> PartitionReader:
    return source.open(0, SourceContext("rows", job, 0))


def rows_from(reader: PartitionReader, position: int) -> list[str]:
    """Return the rows from a position up to the first read that gives none."""
    rows: list[str] = []
    while (read := reader.read(position + len(rows), 100)) is not None and read.records:
        rows += listed(read.records)
    return rows


def files_in(job: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in job.rglob("*") if path.is_file()}


def test_files_are_read_as_the_job_has_listed_them(tmp_path: Path) -> None:
    files, job, elsewhere = tmp_path / "in", tmp_path / "job", tmp_path / "elsewhere"
    for directory in (files, job, elsewhere):
        directory.mkdir()
    source = FilesSource(files / "*", follow=True, quiet_s=0)
    written(files, "b", range(5))
    own = reader_in(source, job)
    assert len(rows_from(own, 0)) == 5
    assert source.lend("rows", job, elsewhere)
    lent = reader_in(source, elsewhere)
    assert lent.read(2, 3).records == ["2", "3", "4"]  # type: ignore[union-attr]
    for name, rows in ("d", range(5, 10)), ("c", range(10, 15)):  # another process would list c before d
        written(files, name, rows)
        assert len(rows_from(reader_in(source, job), 0)) == rows.stop
    before = files_in(job)
    assert source.lend("rows", job, elsewhere)
    assert lent.read(5, 5).records == ["5", "6", "7", "8", "9"]  # type: ignore[union-attr]
    assert lent.read(10, 5).records == ["10", "11", "12", "13", "14"]  # type: ignore[union-attr]
    assert files_in(job) == before
    own.close()
    lent.close()


def test_files_are_also_read_from_a_position_before_the_mark_of_the_job(tmp_path: Path) -> None:
    files, job, elsewhere = tmp_path / "in", tmp_path / "job", tmp_path / "elsewhere"
    for directory in (files, job, elsewhere):
        directory.mkdir()
    source = FilesSource(files / "*", format="text")
    written(files, "a", range(5))
    written(files, "b", range(5, 10))
    own = reader_in(source, job)
    assert len(rows_from(own, 0)) == 10
    own.completed(7)
    source.lend("rows", job, elsewhere)
    assert rows_from(reader_in(source, elsewhere), 3) == [str(row) for row in range(3, 10)]


def test_a_source_without_files_has_nothing_to_lend(tmp_path: Path) -> None:
    assert GeneratedSource(lambda p, i: i, count=3).lend("numbers", tmp_path, tmp_path)


def test_the_places_at_which_a_job_began_are_lent(tmp_path: Path) -> None:
    job, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    job.mkdir()
    own = Beginnings(Directory(job), "rows")
    assert own.offset(0, lambda: {0: 40}, lambda: 0) == 40 and own.offset(1, dict, lambda: 7) == 7
    lend_beginnings("rows", job, elsewhere)
    lend_beginnings("rows", job, elsewhere)
    lent = Beginnings(Directory(elsewhere), "rows")
    assert [lent.offset(partition, lambda: {0: 90, 1: 90}, lambda: 90) for partition in (0, 1)] == [40, 7]
