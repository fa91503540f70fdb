"""The journal and the manifests: what was written is read back, and damage is never trusted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from causal.errors import CorruptData, InvariantViolation, PipelineError, Unavailable
from standby.storage import manifests
from standby.storage.journal import FILE, Journal, journaled
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import sweep, write_manifest
from standby.supervision.effects import RemoveFiles

FILES = {"a/0": (("checkpoints/a/0/e1-i1.snap", 3, "00"),)}


def test_decisions_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([{"kind": "process", "slot": "w1"}, {"kind": "gone", "counters": {0.5: 3}}])
    journal.append([{"kind": "ended"}])
    journal.close()
    again = Journal(tmp_path)
    assert [record["kind"] for record in again.records()] == ["process", "gone", "ended"]
    assert again.records()[1]["counters"] == {0.5: 3}
    again.close()


def test_completed_checkpoints_do_not_pile_up(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for epoch in range(1, 6):
        journal.append([{"kind": "phase", "at": epoch}, {"kind": "checkpoint", "epoch": epoch}])
    journal.close()
    again = Journal(tmp_path)
    assert [record["epoch"] for record in again.records() if record["kind"] == "checkpoint"] == [4, 5]
    again.append([{"kind": "checkpoint", "epoch": 6}])
    again.close()
    last = Journal(tmp_path)
    numbers = [record.get("epoch", record.get("at")) for record in last.records()]
    assert numbers == [1, 2, 3, 4, 5, 5, 6], "everything else stays, in its order"
    last.close()


def test_a_record_that_is_none_is_damage(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([{"kind": "ended"}])
    journal._store.execute("INSERT INTO decisions (body) VALUES (?)", (b"\x01",))
    with pytest.raises(CorruptData, match="is damaged"):
        journal.records()
    journal.close()


@pytest.mark.parametrize("bit", range(8))
def test_a_decision_with_another_bit_is_damage(bit: int, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([{"kind": "process", "slot": "w1", "incarnation": 2}])
    (body,) = journal._store.execute("SELECT body FROM decisions").fetchone()
    for place in range(len(body)):
        other = body[:place] + bytes([body[place] ^ 1 << bit]) + body[place + 1 :]
        journal._store.execute("UPDATE decisions SET body = ?", (other,))
        with pytest.raises(CorruptData, match="is damaged"):
            journal.records()
    journal._store.execute("UPDATE decisions SET body = ?, id = 2", (body,))
    with pytest.raises(CorruptData, match="decision 2"):  # whole, but in the place of another
        journal.records()
    journal.close()


def test_a_journal_that_was_cut_is_damaged_in_plain_words(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append([{"kind": "process", "slot": f"w{number}"} for number in range(1000)])
    journal._store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.close()
    whole = (tmp_path / FILE).read_bytes()
    said = set()
    for size in range(1024, len(whole), 512):
        (tmp_path / FILE).write_bytes(whole[:size])
        with pytest.raises(CorruptData, match="is damaged") as damaged:
            journaled(tmp_path)
        said.add(str(damaged.value).partition("damaged (")[2].partition(");")[0])
    assert "decisions are missing" in said and not [each for each in said if "object" in each]


def test_a_journal_of_another_version_is_refused_in_one_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal._store.execute("PRAGMA user_version=0")
    journal.close()
    for _ in range(2):  # and the lock is not kept
        with pytest.raises(
            PipelineError, match=r"journal\.sqlite was written by another version of .*without --resume"
        ):
            Journal(tmp_path)


def test_a_second_supervisor_is_refused_in_one_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(PipelineError, match="another supervisor") as refused:
        Journal(tmp_path)
    assert "\n" not in str(refused.value)
    journal.close()
    Journal(tmp_path).close()


def test_a_journal_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, but long enough to look like a header of one" * 20)
    for _ in range(2):
        with pytest.raises(CorruptData, match=r"journal\.sqlite is damaged"):
            Journal(tmp_path)


def test_the_newest_manifest_is_found(tmp_path: Path) -> None:
    assert newest_manifest(tmp_path) is None
    for epoch in (9, 10):
        write_manifest(tmp_path, epoch, FILES, sync=True)
    assert newest_manifest(tmp_path) == (10, FILES)


def test_a_damaged_manifest_is_never_used(tmp_path: Path) -> None:
    write_manifest(tmp_path, 1, FILES, sync=True)
    path = tmp_path / "checkpoints" / "manifest-1.json"
    path.write_text(path.read_text().replace("e1-i1", "e1-i2"))
    with pytest.raises(CorruptData, match="manifest-1.json"):
        newest_manifest(tmp_path)


def test_a_manifest_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    write_manifest(tmp_path, 1, FILES, sync=True)
    (tmp_path / "checkpoints" / "manifest-2.json.new").write_text("{")
    assert newest_manifest(tmp_path) == (1, FILES)


def test_a_manifest_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(Unavailable, match="Read-only"):
        write_manifest(tmp_path, 1, FILES, sync=True)
    assert list((tmp_path / "checkpoints").iterdir()) == []
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(Unavailable, match="Read-only"):
        write_manifest(tmp_path, 1, FILES, sync=True)


def test_a_manifest_that_is_not_durable_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(manifests, "sync_directory", refused)
    with pytest.raises(Unavailable, match="made durable"):
        write_manifest(tmp_path, 1, FILES, sync=True)
    assert newest_manifest(tmp_path) is None
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(InvariantViolation, match="nor removed"):
        write_manifest(tmp_path, 1, FILES, sync=True)


def test_sweeping_keeps_what_is_named_and_what_is_younger(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "a" / "0"
    folder.mkdir(parents=True)
    over = ("e1-i1.snap", "e1-i1.snap.tmp", "e2-i1.snap", "e1-i1.rec")
    stays = ("e2-i1.rec", "e2-i2.snap", "e3-i2.snap", "notes.txt")
    for name in over + stays:
        (folder / name).write_bytes(b"x")
    for epoch in (1, 2):
        write_manifest(tmp_path, epoch, FILES, sync=True)
    sweep(tmp_path, RemoveFiles(frozenset(["checkpoints/a/0/e2-i2.snap"]), 2, 2))
    assert sorted(path.name for path in folder.iterdir()) == list(stays)
    assert [path.name for path in (tmp_path / "checkpoints").glob("*.json")] == ["manifest-2.json"]
