"""Changes of a running job leave no snapshots behind, and need room only for savepoints that they keep."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.snapshot_files import merged_name, written_name
from deploy.changes.change_commands import _of_running
from deploy.changes.next_version import LATER, remove_leftovers
from deploy.savepoints import savepoint_store


def test_snapshots_of_a_killed_rollback_are_removed_and_no_others(tmp_path: Path) -> None:
    kept = [written_name("count/0", 20, 1), written_name("count/0", 22, 1001), merged_name("count/0", 3, 19, 1)]
    left = [written_name("count/0", 20 + LATER, 1001), written_name("out/0", 12 + LATER, 1001)]
    for name in (*kept, *left, "checkpoints/manifest-20.json", "checkpoints/count/0/other"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    remove_leftovers(tmp_path, JobConfig(run="r", name="job", pipeline="/p.py"), 20)
    assert [(tmp_path / name).exists() for name in (*kept, *left)] == [True, True, True, False, False]
    assert (tmp_path / "checkpoints/manifest-20.json").exists() and (tmp_path / "checkpoints/count/0/other").exists()


def test_a_job_with_all_its_savepoints_can_still_be_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback keeps no other savepoint, so it needs no room for one."""
    JobConfig(run="r", name="job", pipeline="/p.py").save(tmp_path)
    monkeypatch.setattr(savepoint_store, "KEPT_MAX", 0)
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert _of_running(tmp_path).name == "job"
