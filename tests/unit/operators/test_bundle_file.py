"""A bundle file has equal bytes for equal parts, and a damaged, forged or foreign one is refused in one line."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from causal.errors import CorruptData, PipelineError
from causal.sealed import seal, unseal
from operators.recordings.bundle_file import (
    CONTENT_BYTES_MAX,
    MANIFEST,
    PARTS_MAX,
    BundleFile,
    is_part_name,
    write_bundle_file,
)

PARTS = [("logs/total/0/e1.log", b"one" * 50), ("index/v1.json", b"{}"), ("input/orders-0.elements", bytes(range(256)))]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "bug.causal"
    write_bundle_file(path, {"job": "shop", "runtime": "1"}, PARTS, 1 << 20)
    return path


def contents(path: Path) -> dict[str, bytes]:
    file = BundleFile(path)
    return {name: file.read(name) for name in file.sizes}


def refused(path: Path) -> str:
    with pytest.raises(CorruptData) as caught:
        contents(path)
    line = str(caught.value)
    assert "\n" not in line and str(path) in line
    return line


def rezipped(path: Path, change: Callable[[dict[str, bytes]], Iterable[tuple[str | zipfile.ZipInfo, bytes]]]) -> Path:
    """Write the parts again as another zip file, changed."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in change(parts):
            archive.writestr(name, content, zipfile.ZIP_DEFLATED)
    return path


def test_parts_are_read_as_they_were_written(written: Path) -> None:
    assert contents(written) == dict(PARTS)
    assert BundleFile(written).facts["job"] == "shop"
    assert [each.name for each in written.parent.iterdir()] == ["bug.causal"]


def test_equal_parts_make_equal_bytes(written: Path, tmp_path: Path) -> None:
    write_bundle_file(tmp_path / "other.causal", {"runtime": "1", "job": "shop"}, PARTS, 1 << 20)
    assert (tmp_path / "other.causal").read_bytes() == written.read_bytes()


def test_what_exceeds_its_bound_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"exceeds 100 bytes; choose .* --epoch, .* --task, or raise --max-size"):
        write_bundle_file(tmp_path / "bug.causal", {}, PARTS, 100)
    assert not list(tmp_path.iterdir())


def test_every_truncation_is_refused(written: Path) -> None:
    whole = written.read_bytes()
    for size in range(len(whole)):
        written.write_bytes(whole[:size])
        refused(written)


def test_every_flipped_byte_is_refused_or_means_nothing(written: Path) -> None:
    whole, meaningless = written.read_bytes(), 0
    for place in range(len(whole)):
        written.write_bytes(whole[:place] + bytes((whole[place] ^ (1 << place % 8),)) + whole[place + 1 :])
        try:
            assert contents(written) == dict(PARTS)
            meaningless += 1
        except CorruptData as problem:
            assert "\n" not in str(problem)
    assert meaningless < len(whole) / 3, "only what zip files state twice, or for other programs, means nothing"


def test_what_is_put_before_or_after_is_refused(written: Path) -> None:
    whole = written.read_bytes()
    for other in (b"#!/bin/sh\n" + whole, whole + b"\0", whole + whole):
        written.write_bytes(other)
        refused(written)


def test_swapped_parts_are_refused(written: Path) -> None:
    def swap(parts: dict[str, bytes]) -> Iterable[tuple[str, bytes]]:
        first, second = PARTS[0][0], PARTS[2][0]
        return {**parts, first: parts[second], second: parts[first]}.items()

    assert "another size" in refused(rezipped(written, swap))


def test_a_part_of_the_same_size_with_other_content_is_refused(written: Path) -> None:
    rezipped(written, lambda parts: {**parts, "index/v1.json": b"[]"}.items())
    assert "index/v1.json does not match its digest" in refused(written)


@pytest.mark.parametrize(
    "name",
    ["../out", "/etc/out", "index/../../out", "index//out", "..\\out", "C:\\out", "./out", "index/./out", "out\nx", ""],
)
def test_names_that_lead_elsewhere_are_refused(written: Path, name: str) -> None:
    assert not is_part_name(name)
    info = zipfile.ZipInfo("placeholder")
    info.filename = name
    refused(rezipped(written, lambda parts: [*parts.items(), (info, b"x")]))


def test_a_symbolic_link_is_refused(written: Path) -> None:
    link = zipfile.ZipInfo("index/link")
    link.external_attr = 0o120777 << 16
    assert "not a file" in refused(rezipped(written, lambda parts: [*parts.items(), (link, b"/etc/passwd")]))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_parts_of_one_name_are_refused(written: Path) -> None:
    refused(rezipped(written, lambda parts: [*parts.items(), ("index/v1.json", b"{}")]))


def test_parts_without_an_entry_in_the_manifest_are_refused(written: Path) -> None:
    assert "does not name" in refused(rezipped(written, lambda parts: [*parts.items(), ("code/x.zip", b"x")]))
    assert "no manifest" in refused(rezipped(written, lambda parts: [("index/v1.json", b"{}")]))


def test_a_missing_part_is_named(written: Path) -> None:
    rezipped(written, lambda parts: [each for each in parts.items() if each[0] != "index/v1.json"])
    assert "index/v1.json" in refused(written)


@pytest.mark.parametrize("manifest", [b"", b"[]", b"{", b"{}", b"[" * 100_000, b'{"kind": "causal-bundle"}'])
def test_another_manifest_is_refused(written: Path, manifest: bytes) -> None:
    refused(rezipped(written, lambda parts: {**parts, MANIFEST: manifest}.items()))


def changed_manifest(path: Path, **facts: Any) -> Path:
    def change(parts: dict[str, bytes]) -> Iterable[tuple[str, bytes]]:
        return {**parts, MANIFEST: seal({**unseal(parts[MANIFEST].decode()), **facts}).encode()}.items()

    return rezipped(path, change)


def test_another_format_is_named(written: Path) -> None:
    line = refused(changed_manifest(written, format=2))
    assert "has format 2 and this version reads 1; replay it with the version of causal-streams that made it" in line


@pytest.mark.parametrize("parts", [{}, [], {"index/v1.json": [2]}, {"index/v1.json": ["2", "x"]}, None])
def test_a_manifest_of_other_parts_is_refused(written: Path, parts: Any) -> None:
    refused(changed_manifest(written, parts=parts))


def test_stated_sizes_are_checked_before_memory_is_taken(written: Path) -> None:
    """Sizes in the directory of the zip file, and a stream that is longer than they state."""
    bomb = BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, b"x" * (64 << 20))
    whole = bomb.getvalue()
    place = whole.index(b"PK\1\2")
    for stated in (10, 64 << 20, CONTENT_BYTES_MAX + 1, (1 << 32) - 2):
        forged = whole[: place + 24] + struct.pack("<L", stated) + whole[place + 28 :]
        written.write_bytes(forged)
        tracemalloc.start()
        refused(written)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
        tracemalloc.stop()


def test_a_directory_of_too_many_parts_is_refused_before_it_is_read(written: Path) -> None:
    written.write_bytes(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, PARTS_MAX + 2, PARTS_MAX + 2, 0, 0, 0))
    assert f"{PARTS_MAX + 2:,} parts" in refused(written)


@pytest.mark.parametrize("content", [b"", b"\x7fELF" * 100, b"PK\3\4", json.dumps({"format": 1}).encode()])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.causal"
    path.write_bytes(content)
    assert "is no complete bundle file" in refused(path)


def test_a_zip_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.causal"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "a")
    refused(path)


def test_no_file_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.causal"):
        with pytest.raises(PipelineError, match="there is no such bundle file"):
            BundleFile(path)
