"""Objects have the rows that the same files have, from any mark and whatever the sizes; another version has none."""

from __future__ import annotations

import csv
import gzip
import io
import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from causal.cut import Mark
from causal.errors import CausalError, CorruptData, DeterminantsLost, OperatorFailed, PipelineError
from causal.records.rows import listed
from causal.records.unreadable import Unreadable
from operators.source import PartitionReader, SourceContext
from operators.sources import FilesSource
from operators.sources.files import file_blocks, stored_objects
from operators.sources.files.object_client import Entry, entry_of
from tests.unit.sources.bucket import Bucket

Rows = list[tuple[Any, Mark | None]]
"""Records, each with the mark after it."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    bucket = Bucket()
    monkeypatch.setattr(stored_objects, "ObjectClient", lambda store, options: bucket)
    monkeypatch.setattr("operators.sources.files.files_source.LIST_S", 0.001)
    return bucket


def opened(source: FilesSource, job: Path, position: int = 0, mark: Mark | None = None, **more: Any) -> PartitionReader:
    job.mkdir(parents=True, exist_ok=True)
    partition = more.pop("partition", 0)
    return source.open(partition, SourceContext("s", job, 0, position=position, mark=mark, **more))


def rows_of(reader: PartitionReader, position: int = 0, count: int | None = None, step: int = 3) -> Rows:
    """Return the records from a position on, up to the end or as many as are wanted."""
    rows: Rows = []
    due_s = time.monotonic() + 20
    try:
        while count is None or len(rows) < count:
            read = reader.read(position + len(rows), step if count is None else min(step, count - len(rows)))
            if read is None:
                assert time.monotonic() < due_s, "no more rows came"
                time.sleep(0.0005)
                continue
            rows += zip(map(plain, listed(read.records)), read.marks or [None] * len(read.records), strict=True)  # type: ignore[list-item]
            if read.ended:
                break
        return rows
    finally:
        reader.close()


def plain(row: Any) -> Any:
    return ("bad", row.where.rpartition("/")[2], row.why) if type(row) is Unreadable else row


def records(rows: Rows) -> list[Any]:
    return [row for row, _ in rows]


def content(format: str, chance: Random, name: str) -> bytes:
    """Return a small file: with empty lines, bad rows, quotes over lines; compressed or without a last line end."""
    rows = [f"{name}-{number}" + "x" * chance.randrange(12) for number in range(chance.randrange(14))]
    if format == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as parquet

        file = io.BytesIO()
        parquet.write_table(pa.table({"row": pa.array(rows, pa.string())}), file, row_group_size=5)
        return file.getvalue()
    if format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "n"])
        writer.writerows([row.replace("-", chance.choice('-\n,"')), "1" * chance.randrange(1, 3)] for row in rows)
        lines = text.getvalue()
    elif format == "json":
        lines = "".join(chance.choice([json.dumps({"row": row}), row, ""]) + "\n" for row in rows)
    else:
        lines = "".join(f"{row}\n" for row in rows)
    data = lines.encode().removesuffix(b"\n" if chance.random() < 0.3 else b"-")
    return gzip.compress(data) if chance.random() < 0.3 else data


@pytest.mark.parametrize("format", ["text", "json", "csv", "parquet"])
def test_objects_have_the_rows_of_files_from_every_mark(
    format: str, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if format == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")
    for seed in range(6):
        chance = Random(f"{format}-{seed}")
        monkeypatch.setattr(file_blocks, "BLOCK_BYTES", chance.choice([7, 40, 1 << 18]))
        monkeypatch.setattr(file_blocks, "ROWS_PER_BLOCK", chance.choice([2, 5, 8192]))
        monkeypatch.setattr(stored_objects, "RANGE_BYTES", chance.choice([5, 64, 4 << 20]))
        options: dict[str, Any] = {"format": format, "located": chance.random() < 0.3, "row_bytes_max": 40}
        place = tmp_path / str(seed)
        bucket.objects.clear()
        (place / "in").mkdir(parents=True)
        for name in "abcde"[: chance.randrange(1, 6)]:
            data = content(format, chance, name)
            (place / "in" / name).write_bytes(data)
            if data:
                bucket.put(f"in/{name}", data)
            else:
                (place / "in" / name).unlink()
        if not bucket.objects:
            continue
        expected = records(rows_of(opened(FilesSource(str(place / "in/*"), **options), place / "files")))
        if options["located"]:
            expected = [
                {**row, "file": f"s3://bucket/in/{Path(row['file']).name}"} if type(row) is dict else row
                for row in expected
            ]
        source = FilesSource("s3://bucket/in/*", **options)
        source.check()
        rows = rows_of(opened(source, place / "job"))
        assert records(rows) == expected, seed
        marks: list[Mark | None] = [None, *(mark for _, mark in rows)]
        for position in range(len(rows) + 1):
            again = rows_of(opened(source, place / "job", position, marks[position]), position, step=2)
            assert again == rows[position:], (seed, position)
            counted = rows_of(opened(source, place / "job", position), position)
            assert records(counted) == expected[position:], "without a mark, rows are counted"


def lines(name: str, count: int = 10) -> bytes:
    return b"".join(b"%s-%d\n" % (name.encode(), number) for number in range(count))


def texts(name: str, count: int = 10) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


def test_ranges_are_bounded_and_each_byte_is_read_once(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_objects, "RANGE_BYTES", 1000)
    bucket.put("in/a", lines("a", 1000))
    assert records(rows_of(opened(FilesSource("s3://bucket/in/*"), tmp_path), step=100)) == texts("a", 1000)
    size = len(bucket.objects["in/a"])
    assert bucket.ranges == [("in/a", start, min(size, start + 1000)) for start in range(0, size, 1000)]


def test_an_object_is_removed_once_its_last_row_is_covered(bucket: Bucket, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        bucket.put(f"in/{name}", lines(name))
    source = FilesSource("s3://bucket/in/*")
    rows = rows_of(opened(source, tmp_path))
    for key in ("in/a", "in/b"):
        del bucket.objects[key]
    assert records(rows_of(opened(source, tmp_path, 20, rows[19][1]), 20)) == texts("c")
    for position in (19, 3):
        with pytest.raises(DeterminantsLost, match="s3://bucket/in/[ab] is missing, but the job has not finished"):
            rows_of(opened(source, tmp_path, position, rows[position - 1][1]), position)
    source.check_readable(0, 20, SourceContext("s", tmp_path, 0, position=20, mark=rows[19][1]))
    with pytest.raises(PipelineError, match="^source 's', partition 0: s3://bucket/in/b is missing") as refusal:
        source.check_readable(0, 19, SourceContext("s", tmp_path, 0, position=19, mark=rows[18][1]))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("size", [10, 11])
def test_no_row_of_another_version_is_read(
    size: int, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_objects, "RANGE_BYTES", 16)
    monkeypatch.setattr(file_blocks, "BLOCK_BYTES", 16)
    source = FilesSource("s3://bucket/in/*")
    for replaced_after in (0, 1, 30, 900):
        job = tmp_path / str(replaced_after)
        bucket.put("in/a", lines("a", 1000))
        reader = opened(source, job)
        seen: list[Any] = []
        with pytest.raises(DeterminantsLost) as failure:
            while True:
                read = reader.read(len(seen), 1)
                assert read is None or not read.ended
                seen += listed(read.records) if read is not None else []
                if len(seen) >= replaced_after and any(job.rglob("listing-*")):
                    bucket.put("in/a", lines("z" * (size - 9), 1000))
                time.sleep(0)
        reader.close()
        assert replaced_after <= len(seen) < 1000 and seen == texts("a", 1000)[: len(seen)]
        why = "its ETag was" if size == 10 else "it had 5,890 bytes and now has 6,890;"
        line = str(failure.value)
        assert line.startswith(f"s3://bucket/in/a has changed since the job listed it: {why}") and "\n" not in line
        assert line.endswith("; restore the original, or start again with a new --state-dir")
        with pytest.raises(PipelineError, match="has changed since the job listed it"):
            source.check_readable(0, 0, SourceContext("s", job, 0))


def test_the_same_content_again_is_the_same_object(bucket: Bucket, tmp_path: Path) -> None:
    source = FilesSource("s3://bucket/in/*")
    bucket.put("in/a", lines("a"))
    rows = rows_of(opened(source, tmp_path))
    bucket.put("in/a", lines("a"))
    assert records(rows_of(opened(source, tmp_path, 5, rows[4][1]), 5)) == texts("a")[5:]


def test_new_objects_are_followed_and_tasks_move_between_hosts(bucket: Bucket, tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")
    source = FilesSource("s3://bucket/in/*", follow=True, partitions=2)
    assert source.everywhere and not FilesSource("in/*").everywhere
    where = {"store": (tmp_path / "store").as_uri(), "place_in_store": "job/run"}
    (tmp_path / "store" / "job" / "run").mkdir(parents=True)
    expected: dict[int, list[str]] = {0: [], 1: []}
    at: dict[int, tuple[int, Mark | None]] = {0: (0, None), 1: (0, None)}
    for turn, name in enumerate("dbca"):  # the order in which they appear, not that of their names
        bucket.put(f"in/{name}", lines(name))
        expected[turn % 2] += texts(name)
        for partition, (position, mark) in at.items():
            host = tmp_path / f"host-{turn}-{partition}"
            count = len(expected[partition]) - position
            if count > 4:
                reader = opened(source, host, position, mark, partition=partition, **where)
                rows = rows_of(reader, position, count)
                assert records(rows) == expected[partition][position:]
                at[partition] = position + count - 4, rows[-5][1]
            assert not list(host.rglob("listing-*")), "nothing is kept on a host"
    assert len(list((tmp_path / "store").rglob("listing-*"))) == 4


def test_two_buckets_and_overlapping_patterns_give_each_object_once(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("in/a", lines("a"))
    bucket.put("in/b", lines("b"))
    source = FilesSource("s3://bucket/in/*", "s3://bucket/in/b", "s3://bucket/**")
    assert records(rows_of(opened(source, tmp_path))) == texts("a") + texts("b")


def test_an_outage_changes_no_row(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.sources.files.ahead_reader.RETRY_S_MIN", 0.001)
    monkeypatch.setattr(stored_objects, "RANGE_BYTES", 100)
    monkeypatch.setattr(file_blocks, "BLOCK_BYTES", 50)
    bucket.put("in/a", lines("a", 500))
    reader = opened(FilesSource("s3://bucket/in/*"), tmp_path)
    seen: list[Any] = []
    outages = 0
    while len(seen) < 500:
        bucket.is_down = len(seen) % 40 > 30 and outages < 1000
        try:
            read = reader.read(len(seen), 1)
        except CausalError as problem:
            assert str(problem) == "the bucket does not answer"
            outages += 1
            bucket.is_down = False
            continue
        seen += listed(read.records) if read is not None else []
        time.sleep(0)
    reader.close()
    assert seen == texts("a", 500)


def test_mistakes_are_one_line(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("in/a.csv", b"a,b\n1,2\n")
    bucket.put("in/b.jsonl", b"1\n")
    bucket.put("in/zip", b"PK\x03\x04\x14")

    def refusal(*patterns: str, **options: Any) -> str:
        with pytest.raises(PipelineError) as refused:
            FilesSource(*patterns, **options).check()
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert "no object matches s3://bucket/in/*.txt" in refusal("s3://bucket/in/*.txt")
    assert "no object matches s3://bucket/in/a" in refusal("s3://bucket/in/a")
    assert "s3://bucket/in/a.csv has a name like csv, but would be read as text" in refusal("s3://bucket/in/a*")
    assert "s3://bucket/in/zip: it is a zip archive" in refusal("s3://bucket/in/zip")
    bucket.is_down = True
    assert "does not answer; check the URL, the endpoint and the credentials" in refusal("s3://bucket/in/*")
    assert "options for a store" in refusal("in/*", options={"AWS_REGION": "x"})
    assert "options that are not text" in refusal("s3://bucket/in/*", options={"AWS_REGION": 1})
    FilesSource("s3://bucket/in/*.csv", options={"AWS_SECRET_ACCESS_KEY": "x"})


def test_damage_within_objects_is_one_line(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("in/a.gz", gzip.compress(lines("a", 1000))[:-9])
    with pytest.raises(CorruptData, match="^s3://bucket/in/a.gz is damaged: "):
        rows_of(opened(FilesSource("s3://bucket/in/*"), tmp_path / "gz"))
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")
    bucket.put("p/a.parquet", b"PAR1 nothing PAR1")
    with pytest.raises(CorruptData, match="^s3://bucket/p/a.parquet is not a Parquet file, or it is damaged: "):
        rows_of(opened(FilesSource("s3://bucket/p/*.parquet"), tmp_path / "parquet"))
    bucket.put("c/a.csv", b"a,a\n")
    with pytest.raises(OperatorFailed, match="^s3://bucket/c/a.csv:1: two columns are named 'a'"):
        rows_of(opened(FilesSource("s3://bucket/c/*.csv"), tmp_path / "csv"))


def test_a_mark_of_another_source_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    for mark in ("no place", "[1, 2]", 7):
        with pytest.raises(CorruptData, match="the mark of source 's' is no place in files"):
            rows_of(opened(FilesSource("s3://bucket/in/*"), tmp_path, 3, mark), 3)


def test_an_etag_is_the_same_in_a_list_and_in_an_answer() -> None:
    """Azure leaves out the quotes in its lists."""
    meta = {"path": "a", "size": 3}
    in_list, answered = (entry_of("az://shop", {**meta, "e_tag": etag}) for etag in ("0x1", '"0x1"'))
    assert in_list == answered == Entry("a", 3, '"0x1"')
    assert entry_of("az://shop", {**meta, "e_tag": 'W/"0x1"'}).etag == 'W/"0x1"'
    with pytest.raises(OperatorFailed, match="az://shop gives no ETags"):
        entry_of("az://shop", {**meta, "e_tag": None})
