"""Every place of objects keeps the promises of `Objects`: a directory, a shared store, and the memory of tests."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from causal.errors import CorruptData, Unavailable
from causal.storage import directory as storage_directory
from causal.storage.directory import LOCK, Directory
from causal.storage.objects import Missing, Objects
from tests.properties.objects import Memory


@pytest.fixture(params=["directory", "store", "memory"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "directory":
        return Directory(tmp_path)
    if request.param == "memory":
        return Memory()
    pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")
    from causal.storage.shared import Depot

    return Depot(f"file://{tmp_path}/store", "job/run")


@pytest.mark.parametrize("durable", [True, False])
def test_the_first_creation_counts(objects: Objects, durable: bool) -> None:
    assert objects.create("a/b/c", b"one", durable)
    assert not objects.create("a/b/c", b"two", durable)
    assert objects.create("a/d", memoryview(b"three").cast("b"), durable), "as Arrow has its buffers"
    assert objects.create("empty", b"", durable)
    assert objects.read("a/b/c") == b"one"
    assert objects.read_all(["a/d", "empty", "a/b/c"]) == [b"three", b"", b"one"]


def test_names_and_sizes_are_those_below_a_folder(objects: Objects) -> None:
    for name in ("a/2", "a/1", "a/b/3", "ab", "b/4"):
        objects.create(name, name.encode())
    assert objects.names("a") == ["a/1", "a/2", "a/b/3"]
    assert objects.sizes("a") == {"a/1": 3, "a/2": 3, "a/b/3": 5}
    assert objects.names("nothing") == [] and objects.sizes("nothing") == {}


def test_a_missing_object_is_named_and_removing_it_is_no_error(objects: Objects) -> None:
    objects.create("a/1", b"1")
    objects.create("a/2", b"2")
    objects.remove(["a/1", "a/never", "a/1"])
    assert objects.names("a") == ["a/2"]
    with pytest.raises(Missing, match="a/1"):
        objects.read("a/1")
    assert objects.create("a/1", b"again")
    assert "a/1" in objects.where("a/1")


def test_of_many_creators_one_wins(objects: Objects) -> None:
    for race in range(5):
        with ThreadPoolExecutor(8) as creators:
            won = list(creators.map(lambda each, race=race: objects.create(f"r/{race}", b"%d" % each), range(8)))
        assert won.count(True) == 1
        assert objects.read(f"r/{race}") == b"%d" % won.index(True)
    assert len(objects.names("r")) == 5


def test_what_was_cut_short_is_no_object_and_can_be_removed(tmp_path: Path) -> None:
    objects = Directory(tmp_path)
    objects.create("a/1", b"one")
    (tmp_path / "a" / ".2.77").write_bytes(b"ha")
    assert objects.names("a") == ["a/1"] and objects.names("") == ["a/1"]
    with objects.exclusive("a") as excluded:
        assert excluded
        objects.remove_unfinished("a")
    assert sorted(os.listdir(tmp_path / "a")) == [LOCK, "1"]


def test_one_process_at_a_time_is_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_directory, "LOCK_WAIT_MS", 1)
    objects, inside, leave = Directory(tmp_path), threading.Event(), threading.Event()

    def hold() -> None:
        with objects.exclusive("a"):
            inside.set()
            assert leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(60)
    with pytest.raises(Unavailable, match="locked by another process"), objects.exclusive("a"):
        pass
    with objects.exclusive("b"):
        leave.set()
    holder.join(60)
    with objects.exclusive("a") as excluded:
        assert excluded


def test_a_directory_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    objects = Directory(tmp_path / "job")
    with pytest.raises(Unavailable, match="No such file or directory; check the disk"):
        objects.create("a/1", b"1")
    with pytest.raises(Unavailable, match="No such file or directory; check the disk"), objects.exclusive("a"):
        pass
    assert not (tmp_path / "job").exists()
    with pytest.raises(Missing):
        objects.read("a/1")


def test_a_file_is_read_only_if_its_size_may_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Directory(tmp_path)
    objects.create("a", b"12345")
    monkeypatch.setattr(storage_directory, "OBJECT_BYTES_MAX", 4)
    with pytest.raises(CorruptData, match="a has 5 bytes, but at most 4 are read"):
        objects.read("a")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unavailable, match="folder: Is a directory"):
        objects.read("folder")
