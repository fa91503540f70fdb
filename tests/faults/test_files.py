"""Files as a source of real jobs: new ones while tasks and whole jobs are killed, and rows that are none."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in, rows_in
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job, causal_output

FOLLOWED = PIPELINES / "followed.py"


def add(directory: Path, name: str, count: int) -> list[str]:
    """Put a file there in one step; returns its lines."""
    lines = [f"{name}-{number:06d}" for number in range(count)]
    aside = directory / "aside"
    data = "".join(line + "\n" for line in lines).encode()
    aside.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    (directory / "in").mkdir(exist_ok=True)
    os.rename(aside, directory / "in" / (f"{name[:-2]}.txt.gz" if name.endswith("gz") else f"{name}.txt"))
    return lines


def written(path: Path) -> list[Any]:
    there = list(rows_in(path, "SELECT 1 FROM sqlite_master WHERE name = 'output'"))
    return list(records_in(path)) if there else []


def test_new_files_while_tasks_and_then_everything_is_killed(start: Start, tmp_path: Path) -> None:
    lines = add(tmp_path, "a", 1500) + add(tmp_path, "bgz", 1500)
    job = start(FOLLOWED, "--set", "pattern=in/*.txt*")
    job.until_warm()
    for name, victims in (
        ("c", ("lines/0",)),
        ("dgz", ("lines/1", "number/0")),
        ("e", ("lines/0", "lines/1", "out/0")),
    ):
        lines += add(tmp_path, name, 1500)
        job.replace(*victims)
    job.kill_everything()
    lines += add(tmp_path, "f", 1500)
    until(job.start("--resume"), tmp_path, len(lines))
    job.kill_everything()
    rows = written(tmp_path / "out.db")
    assert Counter(row["line"] for row in rows) == Counter(lines)
    for length in {len(line) for line in lines}:  # no number of a key twice, none missing
        numbers = sorted(row["n"] for row in rows if len(row["line"]) == length)
        assert numbers == list(range(1, len(numbers) + 1))


def until(job: Job, directory: Path, count: int) -> None:
    """Wait until the output has so many rows."""
    job.until(
        f"{count} rows", lambda view: (directory / "out.db").exists() and len(written(directory / "out.db")) >= count
    )


TEXT = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import FilesSource

pipeline = Pipeline("texts")
pipeline.source("lines", FilesSource("in.txt", encoding="ENCODING")).sink("out", SqliteSink("out.db"))
"""
BAD = '{"a": 1}\n{"a":\n{"a": 3}\n'


def test_a_bad_row_ends_the_job_with_one_line_that_names_file_and_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(BAD)
    job = start(FOLLOWED, *sets(pattern="in.jsonl", format="json", follow="no"))
    status, line = job.finish()
    assert status == 1 and len(line.splitlines()) == 1
    assert f"operator 'lines', position 1 of partition 0 of source 'lines': BadInput: {tmp_path}/in.jsonl:2: no" in line
    assert (
        "; resume with --on-error dead-letter to write such lines to the dead letters; a resumed job refuses "
        "a changed file"
    ) in line
    assert "(each line must contain one complete value)" in line and "--code new" not in line
    (tmp_path / "in.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    assert "in.jsonl has changed since" in job.start("--resume").finish()[1], "as the line says"
    (tmp_path / "out.db").unlink()
    job.start().finish_well()
    assert sorted(row["line"]["a"] for row in written(tmp_path / "out.db")) == [1, 2, 3]


@pytest.mark.campaign
def test_a_text_of_another_encoding_is_read_once_that_is_given(start: Start, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes("a\né\n".encode("latin-1"))
    (tmp_path / "pipeline.py").write_text(TEXT.replace("ENCODING", "utf-8"))
    job = start(tmp_path / "pipeline.py")
    status, line = job.finish()
    assert status == 1 and "BadInput: " in line and "in.txt:2: not utf-8" in line
    assert "; pass the encoding of the file, such as encoding='latin-1', and resume with --code new, or" in line
    (tmp_path / "pipeline.py").write_text(TEXT.replace("ENCODING", "latin-1"))
    job.start("--resume", "--code", "new").finish_well()
    assert written(tmp_path / "out.db") == ["a", "é"]


def test_bad_rows_are_dead_letters_and_the_others_come(start: Start, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(BAD)
    job = start(FOLLOWED, *sets(pattern="in.jsonl", format="json", follow="no"), "--on-error", "dead-letter")
    job.finish_well()
    assert sorted(row["line"]["a"] for row in written(tmp_path / "out.db")) == [1, 3]
    [letter] = job.letters()
    assert (letter["operator"], letter["position"], letter["record"]) == ("lines", 1, '{"a":')
    assert letter["error"].startswith(f"BadInput: {tmp_path}/in.jsonl:2: not JSON")


@pytest.mark.campaign
def test_a_file_that_changed_ends_the_job_with_one_line(start: Start, tmp_path: Path) -> None:
    lines = add(tmp_path, "a", 300)
    job = start(FOLLOWED, "--checkpoint-interval", "600")
    until(job, tmp_path, len(lines))
    job.kill_everything()
    (tmp_path / "in" / "a.txt").write_text("other\n")
    status, line = job.start("--resume").finish()
    assert status == 1 and len(line.splitlines()) == 1
    assert f"{tmp_path}/in/a.txt has changed since the job listed it: it had 2,700 bytes and has 6; restore it" in line


@pytest.mark.campaign
def test_an_upgrade_ends_what_was_followed_and_never_leaves_files_out(start: Start, tmp_path: Path) -> None:
    lines = add(tmp_path, "a", 300)
    job = start(FOLLOWED)
    until(job, tmp_path, len(lines))
    causal_output(tmp_path, "savepoint", "--stop", "--state-dir", str(job.state))
    assert job.finish()[0] == 0
    lines += add(tmp_path, "b", 9000)
    job.start("--resume", "--set", "follow=no", "--set", "pause_s=0.001")
    until(job, tmp_path, 400)
    causal_output(tmp_path, "savepoint", "--stop", "--state-dir", str(job.state))
    assert job.finish()[0] == 0
    add(tmp_path, "c", 300)
    for change in ("follow=yes", "pattern=in/[bc].txt"):
        status, line = job.start("--resume", "--set", change).finish()
        assert status == 2 and len(line.splitlines()) == 1, line
        assert line.startswith("causal: source 'lines': its list of files is complete, so "), line
    job.start("--resume", "--set", "pause_s=0").finish_well()
    assert Counter(row["line"] for row in written(tmp_path / "out.db")) == Counter(lines)
