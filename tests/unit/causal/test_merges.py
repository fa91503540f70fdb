"""Merges run in processes of their own, which leave a complete file or nothing, and die with the task."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from causal.cut import Cut
from causal.effects import MergeSnapshots
from causal.events import SnapshotsMerged
from causal.process.interpreter import module_command
from causal.snapshot_files import SnapshotFile, merged_name, written_name
from causal.storage import merges
from causal.storage.disk import Disk
from causal.storage.files import read_parts, write_parts
from causal.storage.shared import Depot
from operators.engine.cell_chain import each_subtask_of_cell, of_cell
from operators.runtime.merge_process import merge
from operators.runtime.task_disk import MERGER
from operators.state.keyed_tables import KeyedTable
from operators.state.snapshot_parts import ChainSnapshot, read_part
from tests.unit.causal.test_disk import answered

GROUPS = 8
RULES = {"": {"count": "value"}}
KEYS = 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    writer = Disk(tmp_path, "count/0", 3, tmp_path / "spill", merger=(MERGER, GROUPS))
    yield writer
    writer.close()


def state_files(job: Path, keys: int = KEYS) -> list[SnapshotFile]:
    """A complete snapshot, and two increments of it."""
    table, files = KeyedTable("count", "count", GROUPS), []
    for epoch in (1, 2, 3):
        changed = range(keys) if epoch == 1 else range(epoch, 2000, 7)
        table.touch(changed)
        table.values.update({key: f"{key} in {epoch}" for key in changed})
        snapshot = ChainSnapshot(epoch == 1, {"epoch": epoch}, [table.snapshot(epoch == 1)])
        assert snapshot.step(1 << 30)
        name = written_name("count/0", epoch, 1)
        size, digest = write_parts(job / name, snapshot.parts(Cut(epoch).pack()), durable=False)
        files.append((name, size, digest))
    return files


def content(*files: Path) -> dict[Any, Any]:
    table = KeyedTable("count", "count", GROUPS)
    for file in files:
        for part in read_parts(file)[1:]:
            for fragment in read_part(part)[1].get("count", []):
                table.load(fragment)
    return table.values


def merging(files: list[SnapshotFile], first: int = 0, waiting: int = 1) -> MergeSnapshots:
    return MergeSnapshots(files, first, 3, RULES, waiting)


def test_a_merged_file_has_the_state_of_its_sources_which_stay(disk: Disk, tmp_path: Path) -> None:
    files = state_files(tmp_path)
    [answer] = answered(disk, merging(files))
    assert isinstance(answer, SnapshotsMerged) and answer.sources == files and answer.file is not None
    name, size, digest = answer.file
    assert name == merged_name("count/0", 0, 3, 3) and (tmp_path / name).stat().st_size == size == disk.snapshot_bytes
    assert Cut.unpack(read_parts(tmp_path / name, digest)[0]).epoch == 3
    assert content(tmp_path / name) == content(*(tmp_path / path for path, _, _ in files))
    assert answered(disk, merging(files)) == [answer], "another attempt writes the same bytes"


def test_a_damaged_source_is_a_failure_and_leaves_nothing(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = state_files(tmp_path, 100)
    with open(tmp_path / files[1][0], "r+b") as file:
        file.seek(60)
        file.write(b"???")
    with caplog.at_level(logging.WARNING):
        assert answered(disk, merging(files)) == [SnapshotsMerged(files, None)]
    [line] = caplog.messages
    assert line.startswith("snapshots of count/0 are not merged for now") and "does not match its digest" in line
    assert disk.failed_merges == 1
    assert sorted(path.name for path in (tmp_path / files[0][0]).parent.iterdir()) == sorted(
        Path(path).name for path, _, _ in files
    )


def test_a_process_that_dies_is_a_failure(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "module_command", lambda module: [sys.executable, "-c", "import os; os.abort()"])
    files = state_files(tmp_path, 100)
    assert answered(disk, merging(files)) == [SnapshotsMerged(files, None)]


def test_a_merge_that_does_not_end_is_a_failure(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "MERGED_WITHIN_S", 0.2)
    monkeypatch.setattr(merges, "module_command", lambda module: [sys.executable, "-c", "import time; time.sleep(60)"])
    files = state_files(tmp_path, 100)
    assert answered(disk, merging(files)) == [SnapshotsMerged(files, None)]


def test_a_task_that_ends_ends_its_merge(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "module_command", lambda module: [sys.executable, "-c", "import time; time.sleep(60)"])
    disk.ask(merging(state_files(tmp_path, 100)))
    while disk._merges is None or disk._merges._process is None:
        time.sleep(0.01)
    process = disk._merges._process
    disk.close()
    assert process.wait(10) == -signal.SIGKILL


def test_a_merge_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    """Whether the task is killed before the request, while it is read, or in the middle of the merge."""
    read, write = os.pipe()
    process = subprocess.Popen(module_command(MERGER), stdin=read, stdout=subprocess.PIPE)
    os.close(read)
    os.close(write)
    assert process.wait(20) != 0
    for path in tmp_path.rglob("*"):
        assert path.suffix == ".snap"


def test_a_state_that_grows_faster_than_it_is_merged_is_named_ever_more_rarely(
    disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = state_files(tmp_path, 100)
    with caplog.at_level(logging.WARNING):
        for waiting in (10, 256, 300, 511, 512, 600):
            answered(disk, merging(files, waiting=waiting))
    assert [line.partition(":")[0] for line in caplog.messages] == ["count/0 writes state faster than it is merged"] * 2


def test_in_a_shared_store_the_sources_are_fetched_and_the_merged_file_is_stored(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    (tmp_path / "store").mkdir()
    (tmp_path / "job").mkdir()
    depot = Depot(f"file://{tmp_path / 'store'}", "job")
    files = state_files(tmp_path / "job", 500)
    whole = content(*(tmp_path / "job" / path for path, _, _ in files))
    for path, _, _ in files:
        depot.create_own(path, (tmp_path / "job" / path).read_bytes())
        (tmp_path / "job" / path).unlink()
    disk = Disk(tmp_path / "job", "count/0", 3, tmp_path / "spill", depot=depot, merger=(MERGER, GROUPS))
    [answer] = answered(disk, merging(files))
    disk.close()
    assert isinstance(answer, SnapshotsMerged) and answer.file is not None
    left = tmp_path / "left"
    left.write_bytes(depot.read(answer.file[0]))
    assert content(left) == whole
    assert not list((tmp_path / "job").rglob("*.snap")) and not (tmp_path / "spill").exists()


def test_the_request_of_a_cell_is_merged_by_subtask(tmp_path: Path) -> None:
    files = []
    tables = {name: KeyedTable(name, name, GROUPS) for name in ("a", "b")}
    for epoch in (1, 2, 3):
        snapshots: list[Any] = []
        for place, (name, table) in enumerate(tables.items()):
            table.touch(keys := range(epoch * place, 20))
            table.values.update(dict.fromkeys(keys, epoch))
            snapshot = ChainSnapshot(epoch == 1, {"epoch": epoch}, [table.snapshot(epoch == 1)])
            assert snapshot.step(1 << 30)
            snapshots.append((name, ([epoch], [False], False), list(snapshot.parts())))
        name = f"{epoch}.snap"
        size, digest = write_parts(tmp_path / name, [Cut(epoch).pack(), *of_cell(snapshots)], durable=False)
        files.append([str(tmp_path / name), digest])
    rules = {name: {name: "value"} for name in tables}
    request = {
        "sources": files, "target": str(tmp_path / "one.snap"), "complete": True, "rules": rules,
        "key_groups": GROUPS, "durable": True,
    }  # fmt: skip
    merge(request)
    loaded = {name: KeyedTable(name, name, GROUPS) for name in tables}
    for name, progress, own in each_subtask_of_cell(read_parts(tmp_path / "one.snap")[1:]):
        assert progress[0] == [3]
        for part in own:
            for fragment in read_part(part)[1].get(name, []) if read_part(part)[0] is None else []:
                loaded[name].load(fragment)
    assert {name: table.values for name, table in loaded.items()} == {n: t.values for n, t in tables.items()}
