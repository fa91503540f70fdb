"""A savepoint in a directory of its own survives a loss of power: all of it is synced before its manifest is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.topology import Topology
from deploy import savepoint_command
from deploy.savepoints.savepoint_store import Savepoint
from standby.blueprint import Blueprint
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import write_manifest

FILES = {task: ((f"checkpoints/{task}/e00000003-i1.snap", 4, "00"),) for task in ("count/0", "out/0")}


def test_everything_in_a_copy_is_synced_and_the_manifest_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, to = tmp_path / "job", tmp_path / "copy"
    to.mkdir()
    for [(path, _, _)] in FILES.values():
        (job / path).parent.mkdir(parents=True)
        (job / path).write_bytes(b"kept")
    JobConfig(run="r", name="job", pipeline="/p.py", code="0123").save(job)
    for name in ("topology.json", "began", "code/0123.zip", "status.json"):
        (job / name).parent.mkdir(exist_ok=True)
        (job / name).write_text('{"job": "j", "tasks": [{"task": "a", "incarnation": 4}]}')
    monkeypatch.setattr(Blueprint, "load", lambda job: Blueprint(Topology((), ())))
    write_manifest(job, 3, FILES, sync=False)
    synced: list[Path] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    assert savepoint_command._copy(job, to, 3, FILES)
    assert newest_manifest(to) == (3, FILES)
    assert Savepoint.load(to).incarnation == 5
    copied = [path for path in to.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert len(copied) == len(FILES) + 2
    last = synced.index(to / "checkpoints" / "manifest-3.json.new")
    for written in (
        *copied,
        *(to / name for name in ("job.json", "topology.json", "savepoint.json")),
        *(each.parent for each in copied),
        tmp_path,
    ):
        assert written in synced[:last], written


def test_a_copy_whose_checkpoint_goes_away_meanwhile_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, to = tmp_path / "job", tmp_path / "copy"
    to.mkdir()
    job.mkdir()
    JobConfig(run="r", name="job", pipeline="/p.py").save(job)
    (job / "status.json").write_text('{"job": "j", "tasks": [{"task": "a", "incarnation": 4}]}')
    monkeypatch.setattr(Blueprint, "load", lambda job: Blueprint(Topology((), ())))
    assert not savepoint_command._copy(job, to, 3, FILES)
    assert list(to.iterdir()) == []
