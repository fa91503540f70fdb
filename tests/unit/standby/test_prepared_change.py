"""A prepared change has no effect until it is final, and stays where its command writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.errors import PipelineError
from deploy.jobs.jobdirectory import SAVEPOINTS
from deploy.savepoints.rolling_back import check_complete
from standby.storage import prepared_change
from standby.storage.change_files import CHANGE, ROLLBACK
from standby.storage.journal import FILE as JOURNAL
from standby.storage.journal import Journal
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import write_manifest


def prepared(job: Path) -> None:
    (job / CHANGE).mkdir()
    for name in ("job.json", "topology.json", JOURNAL):
        (job / name).write_text("old")
        (job / CHANGE / name).write_text("new")
    (job / ROLLBACK).write_text("{}")


def texts(job: Path) -> set[str]:
    return {(job / name).read_text() for name in ("job.json", "topology.json", JOURNAL)}


def test_a_supervisor_that_begins_meanwhile_leaves_it_to_the_command(tmp_path: Path) -> None:
    prepared(tmp_path)
    prepared_change.carry_out(tmp_path)
    assert texts(tmp_path) == {"old"} and prepared_change.is_prepared(tmp_path) and (tmp_path / ROLLBACK).exists()
    prepared_change.make_final(tmp_path)
    prepared_change.carry_out(tmp_path)
    assert texts(tmp_path) == {"new"} and not (tmp_path / CHANGE).exists() and not (tmp_path / ROLLBACK).exists()


def test_it_is_discarded_before_the_job_resumes(tmp_path: Path) -> None:
    prepared(tmp_path)
    prepared_change.discard(tmp_path)
    assert texts(tmp_path) == {"old"} and not (tmp_path / CHANGE).exists()


@pytest.mark.parametrize("durable", [True, False])
def test_all_its_files_are_durable_before_it_is_final_if_the_job_promises_that(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(tmp_path)
    synced: set[tuple[int, bool]] = set()

    def fsync(descriptor: int) -> None:
        synced.add((os.fstat(descriptor).st_ino, (tmp_path / CHANGE / prepared_change.READY).exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    prepared_change.make_final(tmp_path, durable)
    folder = tmp_path / CHANGE
    wanted = {(path.stat().st_ino, False) for path in (folder, *folder.iterdir()) if path.name != prepared_change.READY}
    assert synced == ({*wanted, (folder.stat().st_ino, True)} if durable else set())


def test_a_change_whose_decisions_are_in_the_store_is_adopted_with_their_checkpoint(tmp_path: Path) -> None:
    prepared(tmp_path)
    (tmp_path / JOURNAL).unlink()
    for epoch in (3, 9):
        write_manifest(tmp_path, epoch, {"count/0": ()}, sync=False)
    files = [["checkpoints/count/0/e5-i1001.snap", 10, "00"]]
    records = [
        {"kind": "checkpoint", "epoch": epoch, "files": {"count/0": files}, "count": 0, "took_ms": 0.0}
        for epoch in (4, 5)
    ]
    prepared_change.adopt(tmp_path, records)
    assert {(tmp_path / name).read_text() for name in ("job.json", "topology.json")} == {"new"}
    assert newest_manifest(tmp_path) == (5, {"count/0": tuple(map(tuple, files))}), "later ones are withdrawn"
    assert not (tmp_path / CHANGE).exists() and not (tmp_path / ROLLBACK).exists()
    assert not (tmp_path / JOURNAL).exists(), "the store has the journal"


@pytest.mark.parametrize("here", [True, False])
def test_a_rollback_that_was_interrupted_elsewhere_is_completed_there(tmp_path: Path, here: bool) -> None:
    """The machine that has the savepoint stores the intent before it withdraws rows, so without intent it has not."""
    JobConfig(run="r", name="job", pipeline="/p.py", listen="tcp://127.0.0.1:1").save(tmp_path)
    journal = Journal(tmp_path)
    steps = [{"step": "prepare", "rollback": "3-saved"}, {"step": "end"}, {"step": "withdraw"}, {"step": "over"}]
    journal.append([{"kind": "change", **step} for step in steps])
    journal.close()
    if here:
        (tmp_path / SAVEPOINTS / "3-saved").mkdir(parents=True)
        check_complete(tmp_path)
        return
    with pytest.raises(PipelineError, match="to savepoint 3-saved was interrupted .* on the machine that has this"):
        check_complete(tmp_path)
