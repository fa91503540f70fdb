"""A savepoint in a directory of its own survives a loss of power: all of it is synced before its manifest is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy import savepoints
from standby.manifests import newest_manifest, write_manifest

FILES = {task: ((f"checkpoints/{task}/e00000003-i1.snap", 4, "00"),) for task in ("count/0", "out/0")}


def test_everything_in_a_copy_is_synced_and_the_manifest_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, to = tmp_path / "job", tmp_path / "copy"
    to.mkdir()
    for [(path, _, _)] in FILES.values():
        (job / path).parent.mkdir(parents=True)
        (job / path).write_bytes(b"kept")
    for name in ("job.json", "topology.json", "began"):
        (job / name).write_text(name)
    write_manifest(job, 3, FILES, sync=False)
    synced: list[Path] = []
    fsync = os.fsync

    def noted(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    assert savepoints._copy(job, to, 3, FILES)
    assert newest_manifest(to) == (3, FILES)
    copied = [path for path in to.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert len(copied) == len(FILES) + 1
    last = synced.index(to / "checkpoints" / "manifest-3.json.new")
    for path in (*copied, to / "job.json", to / "topology.json", *(each.parent for each in copied), tmp_path):
        assert path in synced[:last], path


def test_a_copy_whose_checkpoint_goes_away_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    job, to = tmp_path / "job", tmp_path / "copy"
    to.mkdir()
    assert not savepoints._copy(job, to, 3, FILES)
    assert list(to.iterdir()) == []
