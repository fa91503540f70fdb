"""Files of parts: whole and as written, or refused by name; what could not be written leaves nothing behind."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from causal.errors import CorruptData, Unavailable
from causal.storage import files
from causal.storage.files import each_part, naming, read_parts, remove, write_parts

PARTS = [b"cut", b"", b"keys" * 100, bytes(range(256))]


def in_memory(parts: list[bytes]) -> bytes:
    head = b"CPF1" + struct.pack("<I", len(parts)) + b"".join(struct.pack("<Q", len(part)) for part in parts)
    body = head + b"".join(parts)
    return body + xxhash.xxh3_128_digest(body)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@given(st.lists(st.binary(max_size=50), max_size=5), st.booleans())
def test_parts_come_back_as_they_were_written(directory: Path, parts: list[bytes], durable: bool) -> None:
    path = directory / "deeper" / "a.snap"
    size, digest = write_parts(path, parts, durable)
    assert read_parts(path) == read_parts(path, digest) == parts
    assert path.read_bytes() == in_memory(parts) and path.stat().st_size == size
    assert os.listdir(path.parent) == ["a.snap"]


@given(st.data())
def test_a_file_that_is_torn_or_flipped_anywhere_is_refused_by_name(directory: Path, data: st.DataObject) -> None:
    whole, path = in_memory(PARTS), directory / "b.snap"
    if data.draw(st.booleans()):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
        damaged = whole[:place] + bytes((whole[place] ^ 1 << bit,)) + whole[place + 1 :]
    path.write_bytes(damaged)
    with pytest.raises(CorruptData, match=r"b\.snap does not match its digest"):
        read_parts(path)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_refused(directory: Path, body: bytes) -> None:
    path = directory / "c.snap"
    path.write_bytes(body)
    with pytest.raises(CorruptData, match=r"c\.snap"):
        read_parts(path)


@pytest.mark.parametrize("lengths", [[1 << 62], [3, 3], [1], [5] * 9])
def test_lengths_that_do_not_add_up_are_refused_although_the_digest_fits(tmp_path: Path, lengths: list[int]) -> None:
    body = b"CPF1" + struct.pack("<I", len(lengths)) + b"".join(struct.pack("<Q", n) for n in lengths) + b"abc"
    for content in (body, b"CPF1" + b"\xff" * 4 + body[8:]):
        (tmp_path / "d.snap").write_bytes(content + xxhash.xxh3_128_digest(content))
        with pytest.raises(CorruptData, match=r"d\.snap does not contain the parts"):
            read_parts(tmp_path / "d.snap")


def test_a_whole_file_that_is_not_the_one_in_the_manifest_is_refused(tmp_path: Path) -> None:
    _, named = write_parts(tmp_path / "e.snap", [b"old"], durable=False)
    write_parts(tmp_path / "e.snap", [b"new"], durable=False)
    with pytest.raises(CorruptData, match="manifest names"):
        read_parts(tmp_path / "e.snap", named)


def test_a_file_that_is_missing_or_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptData, match=r"f\.snap is missing"):
        read_parts(tmp_path / "f.snap")
    (tmp_path / "f.snap").mkdir()
    with pytest.raises(Unavailable, match=r"f\.snap: cannot be read"):
        read_parts(tmp_path / "f.snap")


@pytest.mark.parametrize("call", ["fsync", "replace", "sync_directory", "open"])
def test_a_full_disk_leaves_the_old_file_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    where = {"fsync": os, "replace": os, "sync_directory": files, "open": files}[call]
    monkeypatch.setattr(where, call, full, raising=call != "open")
    with pytest.raises(Unavailable, match=r"g\.snap: cannot be written: No space left on device"):
        write_parts(tmp_path / "g.snap", PARTS, durable=True)
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_within_a_file_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "h.snap"
    (tmp_path / "h.snap.tmp").symlink_to("/dev/full")
    with pytest.raises(Unavailable, match="No space left on device"):
        write_parts(path, [bytes(1 << 20)], durable=False)
    assert os.listdir(tmp_path) == []


def test_a_directory_that_cannot_be_made_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable, match=r"file/deeper/i\.snap: cannot be written"):
        write_parts(tmp_path / "file" / "deeper" / "i.snap", PARTS, durable=True)


def test_removing_what_is_gone_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "j.snap"
    path.write_text("")
    remove([path, path])
    assert not path.exists()


def test_a_part_that_cannot_be_read_leaves_no_file(tmp_path: Path) -> None:
    class Parts(Sequence[bytes]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, place: Any) -> Any:
            if place:
                raise Unavailable("its disk fails")
            return b"part"

    with pytest.raises(Unavailable, match="its disk fails"):
        write_parts(tmp_path / "snapshot", Parts(), False)
    assert list(tmp_path.iterdir()) == []


def test_parts_are_checked_before_the_first_is_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    parts = [bytes([number]) * size for number, size in enumerate((0, 1, 1 << 20, (1 << 20) + 1, 3))]
    _, digest = write_parts(path, parts, False)
    assert list(each_part(path, digest)) == parts
    damaged = bytearray(path.read_bytes())
    damaged[-20] ^= 1  # of the last part
    path.write_bytes(damaged)
    with pytest.raises(CorruptData, match="does not match its digest"):
        next(each_part(path, digest))


def test_an_error_without_a_file_names_one() -> None:
    with pytest.raises(OSError) as unnamed, naming(Path("job/rollback.json")):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError) as named, naming(Path("job/rollback.json")):
        raise OSError(errno.ENOSPC, "No space left on device", "elsewhere")
    assert (unnamed.value.filename, named.value.filename) == ("job/rollback.json", "elsewhere")
