"""All that is acknowledged with `durability="os"` is on the disk, and so is all that it depends on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from causal.ports import Bundle
from causal.storage import framing as journal
from operators.sinks import CallbackSink, JsonLinesSink, ParquetSink, Sink, conformance
from operators.sinks.conformance import Subject, bundle_at, expect_held
from operators.sinks.staging.staged_place import staged_in_directory


class Disk:
    """Records what a loss of power could take away: written bytes and names of files that are not synced yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unsynced: dict[tuple[int, int], str] = {}
        self.unnamed: dict[tuple[int, int], str] = {}
        self.replaced_unsynced: list[str] = []
        self._write, self._pwrite, self._replace = os.write, os.pwrite, os.replace
        self._fsync, self._fdatasync, self._mkdir = os.fsync, os.fdatasync, os.mkdir
        for name in ("write", "pwrite", "replace", "mkdir", "fsync", "fdatasync"):
            monkeypatch.setattr(os, name, getattr(self, name))

    def _dirty(self, descriptor: int) -> None:
        self.unsynced[self._file(descriptor)] = os.readlink(f"/proc/self/fd/{descriptor}")

    @staticmethod
    def _file(descriptor: int) -> tuple[int, int]:
        at = os.fstat(descriptor)
        return at.st_dev, at.st_ino

    def write(self, descriptor: int, data: Any) -> int:
        written = self._write(descriptor, data)
        self._dirty(descriptor)
        return written

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        written = self._pwrite(descriptor, data, offset)
        self._dirty(descriptor)
        return written

    def replace(self, source: Any, target: Any) -> None:
        at = os.stat(source)
        if (at.st_dev, at.st_ino) in self.unsynced:
            self.replaced_unsynced.append(str(target))
        self._replace(source, target)
        above = os.stat(os.path.dirname(target))
        self.unnamed[above.st_dev, above.st_ino] = str(target)

    def mkdir(self, path: Any, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        above = os.stat(os.path.dirname(path))
        self.unnamed[above.st_dev, above.st_ino] = str(path)

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        self.unsynced.pop(self._file(descriptor), None)
        self.unnamed.pop(self._file(descriptor), None)

    def fdatasync(self, descriptor: int) -> None:
        self._fdatasync(descriptor)
        self.unsynced.pop(self._file(descriptor), None)

    def at_risk(self, spared: Sequence[str] = ()) -> list[str]:
        """Return the files, except those with such an ending, whose bytes or names a loss of power could take."""
        paths = [*self.unsynced.values(), *self.unnamed.values()]
        return [path for path in paths if not path.endswith(tuple(spared))]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


SINKS: dict[str, tuple[Callable[[Path], Sink], tuple[str, ...]]] = {
    # The journal has the rows of `.jsonl` until these are synced; notes of deliveries may come again.
    "lines": (lambda path: JsonLinesSink(path / "out", durability="os"), (".jsonl",)),
    "parquet": (lambda path: ParquetSink(path / "out", durability="os", publish_s=3600, file_bytes=4096), (".part",)),
}


@pytest.mark.parametrize("name", SINKS)
def test_what_is_acknowledged_is_on_the_disk(
    name: str, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("causal.storage.file_journal.JOURNAL_BYTES_MAX", 2000)
    make, spared = SINKS[name]
    subject = Subject(make(tmp_path), read=lambda task: [])
    renewals: list[list[str]] = []
    plain = journal.replace_file

    def renewed(path: Path, data: bytes, sync: bool, mode: int = 0o600) -> int:
        renewals.append(disk.at_risk((".lock",)))
        return plain(path, data, sync, mode)

    monkeypatch.setattr("causal.storage.file_journal.replace_file", renewed)
    store, state = subject.opened()
    assert disk.at_risk(spared) == [], "a claim is on the disk before the store is used"
    for epoch in range(1, 6):
        for _ in range(6):
            bundle = bundle_at(subject, state, 7)
            store.write(bundle)
            state = conformance.after(state, bundle)
            assert disk.at_risk(spared) == [], f"an acknowledged bundle is on the disk, {state.next} rows"
        store.truncate(epoch)
        assert disk.at_risk(spared) == [], "what a truncation leaves is on the disk"
    store.close()
    assert disk.replaced_unsynced == [], "a file is synced before it takes the place of another"
    assert len(renewals) > 2
    if name == "lines":
        assert not any(renewals[1:]), "rows are synced before the journal that has them goes"
    store, reopened = subject.opened(2)
    expect_held(subject, reopened, "all is there", kept_from=None)
    store.close()


def test_rows_go_out_when_their_promise_is_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    risks: list[list[str]] = []

    def take(delivery: Any) -> None:
        risks.append([path for path in disk.at_risk() if not taken_before(delivery)])

    def taken_before(delivery: Any) -> bool:
        return bool(delivery.positions[0] % 7)  # notes of earlier batches of the same bundle may be lost

    subject = Subject(CallbackSink(take, batch_rows=3, durability="os"), read=lambda task: [], job_directory=tmp_path)
    store, state = subject.opened()
    for _ in range(5):
        bundle = bundle_at(subject, state, 7)
        store.write(bundle)
        state = conformance.after(state, bundle)
    store.close()
    assert len(risks) == 15 and not any(risks)


def test_staged_rows_are_on_the_disk_before_the_checkpoint(tmp_path: Path, disk: Disk) -> None:
    subject = Subject(JsonLinesSink(tmp_path / "out", durability="os"), read=lambda task: [])
    inner = subject.sink.open_store("out/0", tmp_path)
    store = staged_in_directory(inner, "out/0", tmp_path / "staged", 1 << 20, "os")
    state = store.open("out/0", "run-1", 1)
    for epoch in range(4):
        for _ in range(3):
            rows = subject.sink.encode([{"n": state.next}])
            bundle = Bundle(state.next, 1, rows, state.digest + 1, epoch, 1, ())
            store.write(bundle)
            state = conformance.after(state, bundle)
        store.stage(epoch + 1)
        assert disk.at_risk((".jsonl",)) == []
        while store.commit(epoch + 1):
            assert disk.at_risk((".jsonl",)) == []
    store.close()


def test_the_recorder_sees_what_is_not_synced(tmp_path: Path, disk: Disk) -> None:
    subject = Subject(JsonLinesSink(tmp_path / "out", durability="process"), read=lambda task: [])
    store, state = subject.opened()
    store.write(bundle_at(subject, state, 7))
    assert any(path.endswith(".journal") for path in disk.at_risk((".jsonl",))) and disk.replaced_unsynced
    store.close()
