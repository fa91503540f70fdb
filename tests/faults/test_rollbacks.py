"""Rollbacks to savepoints after many checkpoints: exact rows, refused without effect, and repeatable at every step."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from causal.sealed import seal, unseal
from causal.storage import files
from causal.storage.file_journal import FileJournal
from deploy import cli
from operators.sinks.journaled.journaled_store import JournaledStore
from operators.sinks.sqlite.sqlite_store import SqliteStore
from standby.storage.change_files import CHANGE, ROLLBACK
from standby.storage.journal import Journal
from standby.storage.manifest_files import newest_manifest
from tests.faults.conftest import Start
from tests.faults.job import Job, causal, causal_output
from tests.faults.test_bad_input import one_line
from tests.faults.test_upgrades import PIPELINE, Rows, begun, check, finish, rows, stopped
from tests.members import campaign

WRONG = PIPELINE.replace('yield {"key": ctx.key, "n"', 'yield {"key": ctx.key, "wrong": True, "n"')
WIDE = WRONG.replace("parallelism=2", "parallelism=3")
BOTH = PIPELINE + 'counted.sink("lines", JsonLinesSink("lines"))\n'
STEPS = 40
"""More than a rollback has."""


def upgraded(job: Job, path: Path, text: str, *arguments: str) -> str:
    """Resume the job with this text, let several checkpoints complete, and stop it; returns the savepoint's name."""
    path.write_text(text)
    job.start("--resume", *arguments)
    job.until_warm(records=200, checkpoints=3)
    stopped(job)
    return str(savepoints(job)[-1]["name"])


def savepoints(job: Job) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]]
    listed = json.loads(causal_output(job.directory, "savepoint", "--list", "--json", "--state-dir", str(job.state)))
    return listed


def with_lines(directory: Path) -> Rows:
    """Return the rows of the database, which are those of the second sink, too."""
    lines = [json.loads(line) for path in (directory / "lines").glob("*.jsonl") for line in open(path)]
    there = rows(directory)
    assert sorted(map(str, lines)) == sorted(map(str, there))
    return there


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--set", "sink=sqlite"], id="sqlite"),
        campaign(["--set", "sink=jsonlines"], id="jsonlines"),
        campaign(["--set", "sink=sqlite", "--guarantee", "epoch"], id="epoch"),
        campaign(["--set", "sink=jsonlines", "--guarantee", "epoch"], id="epoch, jsonlines"),
        campaign(["--set", "sink=sqlite", "--sharing-depth", "1"], id="depth 1"),
        campaign(["--set", "sink=sqlite", "--guarantee", "at-least-once"], id="at-least-once"),
        campaign(["--set", "sink=sqlite", "--processes", "stages"], id="cells"),
    ],
)
def test_a_version_is_withdrawn_after_many_checkpoints(start: Start, tmp_path: Path, options: list[str]) -> None:
    a_version_is_withdrawn(start, tmp_path, *options)


def a_version_is_withdrawn(start: Start, tmp_path: Path, *options: str, read: Callable[[Path], Rows] = rows) -> None:
    path, job = begun(start, tmp_path, *options, interval="0.2")
    job.until_written(300)
    stopped(job)
    good = len(read(tmp_path))
    later = upgraded(job, path, WIDE)
    wrong = len(read(tmp_path)) - good
    first, second = savepoints(job)
    assert first["rollback"] and not second["rollback"] and first["code"] != second["code"]
    assert sum(first["withdraws"].values()) == wrong > 0 and not first["limits"]
    assert not any(second["withdraws"].values()), "the job stopped at this one"
    done = good + 1500
    status, said = job.start("--resume", "--rollback", *sets(count=done, rate=100000)).finish()
    assert status == 0, said
    assert f"rolled back to savepoint {first['name']}; {wrong:,} rows written since then are withdrawn" in said
    check(tmp_path, done, read)
    job.start("--resume", "--rollback", later)
    status, refused = job.finish()
    assert status == 2 and f"rolled back beyond savepoint {later}" in one_line(refused)
    check(tmp_path, done, read)


@pytest.mark.campaign
def test_the_oldest_of_three_savepoints(start: Start, tmp_path: Path) -> None:
    """The parallelism and the grouping differ from version to version, and a finished version is withdrawn, too."""
    path, job = begun(start, tmp_path, interval="0.2", text=BOTH)
    job.until_written(300)
    stopped(job)
    [oldest] = [each["name"] for each in savepoints(job)]
    wide = BOTH.replace(PIPELINE, WIDE)
    upgraded(job, path, wide.replace("parallelism=3", "parallelism=1"), "--processes", "one")
    upgraded(job, path, wide, "--processes", "per-task")
    path.write_text(wide.replace('"wrong": True', '"wrong": 1'))
    job.start("--resume", "--set", f"count={len(rows(tmp_path)) + 900}", "--set", "rate=100000")
    job.finish_well()
    assert [row for row in with_lines(tmp_path) if "wrong" in row]
    for _ in range(2):  # a job that has finished can be rolled back, and again
        done = finish(job, "--rollback", oldest, read=with_lines)
        check(tmp_path, done, with_lines)
    status, said = causal(tmp_path, "savepoint", "--delete", oldest, "--state-dir", str(job.state))
    assert status == 0, said


@pytest.mark.campaign
def test_a_rollback_then_an_upgrade_then_a_rollback(start: Start, tmp_path: Path) -> None:
    path, job = begun(start, tmp_path, interval="0.2")
    job.until_written(300)
    stopped(job)
    [name] = [each["name"] for each in savepoints(job)]
    upgraded(job, path, WRONG)
    job.start("--resume", "--rollback", name)
    job.until_warm(records=200, checkpoints=3)
    stopped(job)
    names = [each["name"] for each in savepoints(job)]
    assert len(set(names)) == len(names) == 3, "no name is used twice"
    upgraded(job, path, WIDE)
    done = finish(job, "--rollback", names[-1])
    check(tmp_path, done)


@pytest.mark.campaign
def test_a_savepoint_of_the_same_version_and_a_sink_added_since(start: Start, tmp_path: Path) -> None:
    path, job = begun(start, tmp_path, interval="0.2")
    job.until_written(300)
    stopped(job)
    job.start("--resume")
    job.until_warm(records=200, checkpoints=3)
    stopped(job)
    name = savepoints(job)[0]["name"]
    status, said = job.start("--resume", "--rollback").finish()
    assert status == 2 and f"needs the name of a savepoint; there are {name}" in one_line(said)
    upgraded(job, path, BOTH)
    upgraded(job, path, PIPELINE)
    assert any((tmp_path / "lines").glob("*.jsonl"))
    done = finish(job, "--rollback", name)
    check(tmp_path, done)
    assert not [line for each in (tmp_path / "lines").glob("*.jsonl") for line in open(each)], "rows of a removed sink"


@pytest.mark.campaign
@pytest.mark.parametrize(("sink", "words"), [("plain", "cannot withdraw rows"), ("parquet", "are in published files")])
def test_a_sink_that_cannot_names_the_command_of_a_new_job(start: Start, tmp_path: Path, sink: str, words: str) -> None:
    if sink == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")
    path, job = begun(start, tmp_path, "--set", f"sink={sink}", interval="0.2")
    job.until_written(300)
    stopped(job)
    upgraded(job, path, WRONG)
    before = rows(tmp_path)
    first, _ = savepoints(job)
    assert list(first["limits"]) == ["out/0"]
    status, said = job.start("--resume", "--rollback").finish()
    command = f"causal run PIPELINE.py --from {first['directory']} --state-dir ELSEWHERE"
    assert status == 2 and words in one_line(said) and one_line(said).endswith(command), said
    assert rows(tmp_path) == before and not (job.state / ROLLBACK).exists()
    path.write_text(WRONG)
    done = len(before) + 500
    job.start("--resume", "--set", f"count={done}", "--set", "rate=100000")
    job.finish_well()
    assert len(rows(tmp_path)) == done


class Dead(BaseException):
    """The process has ended here."""


class Life:
    """Lets the process die before one of its steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def before(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if self.left == 0:
                raise Dead
            self.left -= 1
            return act(*arguments, **options)

        return step


def lived(job: Job, path: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Roll the job back in this process, which ends before one of its steps; return whether it lived on."""
    life = Life(steps)
    with monkeypatch.context() as patch:
        patch.setattr(cli, "_deploy", lambda *arguments: 0)
        for place, name in (
            (os, "replace"), (Path, "touch"), (shutil, "rmtree"), (Journal, "append"), (files, "sync_directory"),
            (SqliteStore, "_take_back"), (JournaledStore, "_truncated"), (FileJournal, "append"), (os, "ftruncate"),
        ):  # fmt: skip
            patch.setattr(place, name, life.before(getattr(place, name)))
        try:
            return cli.main(["run", str(path), "--state-dir", str(job.state), "--resume", "--rollback"]) == 0
        except Dead:
            return False
        finally:
            release(job.directory)


def release(directory: Path) -> None:
    """Close the files below the directory, as the kernel does when a process has died."""
    for handle in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(handle).startswith(f"{directory}/job/lock"):
                os.close(int(handle.name))
        except FileNotFoundError:  # the one of the listing itself
            continue


@pytest.fixture
def at_its_second_savepoint(start: Start, tmp_path: Path) -> tuple[Path, Job]:
    path, job = begun(start, tmp_path, interval="0.2", text=BOTH)
    job.until_written(300)
    stopped(job)
    upgraded(job, path, BOTH.replace(PIPELINE, WRONG))
    shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-kept"))
    return path, job


def test_a_rollback_is_completed_after_the_epoch_and_the_incarnation_of_the_first_attempt(
    at_its_second_savepoint: tuple[Path, Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback of a running job counts far ahead; its stores are open, and may have forgotten what is before."""
    path, job = at_its_second_savepoint
    monkeypatch.chdir(tmp_path)
    for steps in range(STEPS):
        assert not lived(job, path, steps, monkeypatch)
        if (job.state / ROLLBACK).exists():
            break
    content = unseal((job.state / ROLLBACK).read_text())
    (job.state / ROLLBACK).write_text(seal({**content, "epoch": 5000}))
    journal = Journal(job.state)
    journal.append([{"kind": "change", "step": "end", "incarnation": 3000}])
    journal.close()
    with sqlite3.connect(tmp_path / "out.db") as db:
        db.execute("UPDATE causal_task SET incarnation = 3000")
    assert lived(job, path, -1, monkeypatch)
    newest = newest_manifest(job.state)
    assert newest is not None and newest[0] == 5000


@pytest.mark.campaign
def test_a_rollback_that_dies_at_any_step_is_completed_by_the_same_command(
    at_its_second_savepoint: tuple[Path, Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, job = at_its_second_savepoint
    kept = tmp_path.with_name(f"{tmp_path.name}-kept")
    monkeypatch.chdir(tmp_path)
    good = savepoints(job)[0]["rows"] // 2
    wrong = len(with_lines(tmp_path)) - good
    died, refused = 0, 0
    for steps in range(STEPS):
        for each in tmp_path.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
        whole = lived(job, path, steps, monkeypatch)
        died += not whole
        if (job.state / ROLLBACK).exists() and not (job.state / CHANGE / "ready").exists():
            status, said = causal(tmp_path, "run", str(path), "--state-dir", str(job.state), "--resume")
            assert status == 2 and "was interrupted while it withdrew rows; complete it" in one_line(said)
            refused += 1
        assert lived(job, path, -1, monkeypatch), f"it cannot be repeated after step {steps}"
        assert not (job.state / ROLLBACK).exists()
        there = with_lines(tmp_path)
        assert len(there) == good and not [row for row in there if "wrong" in row], f"after step {steps}"
        if whole:
            break
    assert died > 10 and refused > 2 and wrong > 0
    upgraded(job, path, BOTH)  # the code is that of the savepoint
    check(tmp_path, len(with_lines(tmp_path)), with_lines)
