"""A prepared change has no effect until it is final, and stays where its command writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from standby.storage import prepared_change
from standby.storage.change_files import CHANGE, ROLLBACK
from standby.storage.journal import FILE as JOURNAL


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
