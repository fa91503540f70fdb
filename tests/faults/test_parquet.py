"""Parquet files of a real job whose tasks are killed: each row once, for us immediately, for others in whole files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")

import pyarrow.dataset as dataset

from operators.sinks.parquet.parquet_sink import publish, read
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job, wait_for
from tests.faults.readers import Reader, of_parquet, of_parquet_files, reading
from tests.members import campaign, members

COUNT, KEYS = 600, 23


@contextmanager
def watched(directory: Path) -> Iterator[tuple[Reader, Reader]]:
    """Yield a reader of ours and one of the bare files: what was there once must stay, and nothing comes twice."""
    looks = {"ours": of_parquet(directory), "files": of_parquet_files(directory)}
    with reading(looks) as [ours, files]:
        yield ours, files
    assert ours.looks > 1 and not ours.wrong + files.wrong, ours.wrong + files.wrong
    assert all(rows == ours.seen[task.replace("-", "/")][: len(rows)] for task, rows in files.seen.items())


def begin(start: Start, gate: Path, *arguments: str, config: dict[str, Any] | None = None) -> Job:
    options = ("--set", f"count={COUNT}", "--set", "rate=300", "--set", f"gate={gate}", *arguments)
    return start(PIPELINES / "parquet.py", *options, config=config)


def expect_all(rows: list[dict[str, Any]], vectors: list[dict[str, Any]]) -> None:
    everything = [(p, i) for p in range(2) for i in range(COUNT)]
    assert sorted((row["p"], row["i"]) for row in rows) == everything
    for key in range(KEYS):
        numbers = [row["n"] for row in rows if row["k"] == key]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
    counts = Counter((i * 31 + p) % KEYS for p, i in everything)
    wanted = sorted((key, n) for key, most in counts.items() for n in range(1, most + 1))
    assert sorted((row["k"], row["count"]) for row in vectors) == wanted


def plain(directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = dataset.dataset(directory, format="parquet").to_table().to_pylist()
    return rows


KILLS = (("rows/0",), ("vectors/0",), ("rows/1", "number/0"), ("rows/0", "rows/1", "vectors/0"))


@pytest.mark.parametrize("kills", [pytest.param(KILLS[2:], id="together"), campaign(KILLS, id="all")])
def test_every_row_once_whatever_dies(start: Start, tmp_path: Path, kills: tuple[tuple[str, ...], ...]) -> None:
    job = begin(start, tmp_path / "gate", "--checkpoint-interval", "0.5", config={"crash_loop_max": 20})
    with watched(tmp_path / "rows") as (ours, files):
        job.until_warm(records=300)
        wait_for("a reader has seen rows", lambda: ours.count)
        for tasks in kills:
            job.replace(*tasks)
        job.kill_everything()
        job.start("--resume")
        (tmp_path / "gate").touch()
        job.finish_well()
    expect_all(plain(tmp_path / "rows"), plain(tmp_path / "vectors"))
    manifest = json.loads((tmp_path / "rows" / "_causal" / "manifest.json").read_text())
    named = [
        f"{task.replace('/', '-')}-{a:012d}-{b:012d}.parquet"
        for task in manifest["files"]
        for a, b in manifest["files"][task]
    ]
    assert sorted(named) == sorted(path.name for path in (tmp_path / "rows").glob("*.parquet"))
    assert {path.suffix for path in (tmp_path / "rows" / "_causal").iterdir()} == {".json", ".journal", ".lock"}
    assert sum(path.stat().st_size for path in (tmp_path / "rows" / "_causal").glob("*.journal")) < 100_000


@pytest.mark.parametrize("depth", members(["1", "2"]))
def test_below_full_depth_files_have_what_checkpoints_cover_and_all_when_the_job_has_ended(
    start: Start, tmp_path: Path, depth: str
) -> None:
    options = ("--checkpoint-interval", "0.5", "--sharing-depth", depth, "--set", "publish_s=0.1")
    job = begin(start, tmp_path / "gate", *options)
    with watched(tmp_path / "rows") as (ours, files):
        job.until_warm(records=300)
        job.replace("rows/0")
        wait_for("files come while the job runs", lambda: files.count)
        (tmp_path / "gate").touch()
        job.finish_well()
    expect_all(plain(tmp_path / "rows"), plain(tmp_path / "vectors"))
    for name in ("rows", "vectors"):
        assert read(tmp_path / name, uncovered=False).num_rows == len(plain(tmp_path / name))


def test_below_full_depth_the_tail_of_a_job_that_was_killed_stays_in_journals_until_it_is_declared_over(
    start: Start, tmp_path: Path
) -> None:
    options = ("--checkpoint-interval", "600", "--sharing-depth", "1", "--set", "publish_s=0.1")
    job = begin(start, tmp_path / "gate", *options)
    job.until_written(300)
    job.kill_everything()
    assert plain(tmp_path / "rows") == [] and read(tmp_path / "rows", uncovered=False).num_rows == 0
    written = sorted((row["p"], row["i"]) for row in read(tmp_path / "rows").to_pylist())
    publish(tmp_path / "rows", ended=True)
    assert len(written) >= 200 and sorted((row["p"], row["i"]) for row in plain(tmp_path / "rows")) == written


@pytest.mark.campaign
def test_rows_that_do_not_fit_are_put_aside_once_whatever_dies(start: Start, tmp_path: Path) -> None:
    options = ("--on-error", "dead-letter", "--set", "odd=10", "--checkpoint-interval", "0.5")
    job = begin(start, tmp_path / "gate", *options)
    job.until_warm(records=300)
    job.replace("rows/0", "rows/1")
    (tmp_path / "gate").touch()
    report = job.finish_well()
    everything = [(p, i) for p in range(2) for i in range(COUNT)]
    rows = plain(tmp_path / "rows")
    assert sorted((row["p"], row["i"]) for row in rows) == [(p, i) for p, i in everything if i % 10 != 7]
    files = (job.state / "dead-letters").glob("refused-*.jsonl")
    letters = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted((letter["record"]["p"], letter["record"]["i"]) for letter in letters) == [
        (p, i) for p, i in everything if i % 10 == 7
    ]
    assert all("column 'n' has type int64" in letter["error"] for letter in letters)
    assert report["refused"] == len(letters)
