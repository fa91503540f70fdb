"""Everything that was acknowledged survives a loss of power at any moment, with durability "os"."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from causal.errors import CorruptData
from causal.logs.log import LogDelta
from causal.storage.directory import Directory
from causal.storage.files import read_parts, write_parts
from causal.storage.stable import StableLogs
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import write_manifest
from tests.unit.causal.power_loss import PowerLoss

LOG = bytes(range(250))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "job"
    directory.mkdir()
    return directory


def at_every_sync(power: PowerLoss, tmp_path: Path, check: Callable[[Path], None]) -> None:
    places = count()
    power.after = lambda: check(power.left_in(tmp_path / f"left{next(places)}"))


def read_after(left: Path) -> dict[int, bytes]:
    return {delta.epoch: delta.bytes for delta in StableLogs(left, "sum/0", 9, sync=True).read()}


def test_stable_determinants(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    power, acknowledged, checked = PowerLoss(root, monkeypatch), dict[int, int](), 0

    def check(left: Path) -> None:
        nonlocal checked
        deltas = read_after(left)
        for epoch, extent in acknowledged.items():
            assert deltas.get(epoch, b"")[:extent] == LOG[:extent], (epoch, extent)
        checked += 1

    at_every_sync(power, tmp_path, check)
    first, second = (StableLogs(root, "sum/0", incarnation, sync=True) for incarnation in (1, 2))
    first.begin([])
    for start in range(0, 90, 30):
        extents = first.append([LogDelta(4, 0, start, LOG[start : start + 30])])
        acknowledged |= {epoch: extent for _, epoch, extent in extents}
    acknowledged |= {epoch: extent for _, epoch, extent in first.append([LogDelta(4, 1, 0, LOG[:20])])}
    second.begin([LogDelta(4, 0, 0, LOG[:90]), LogDelta(4, 1, 0, LOG[:20])])
    second.append([LogDelta(4, 1, 20, LOG[20:60])])
    acknowledged[1] = 60
    check(power.left_in(tmp_path / "last"))
    assert checked > 8
    for each in (first, second):
        each.close()


def test_snapshots_and_manifests(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete checkpoint can be restored; one that is not complete is not taken for it."""
    power, complete, checked = PowerLoss(root, monkeypatch), 0, 0

    def check(left: Path) -> None:
        nonlocal checked
        newest = newest_manifest(left) if (left / "checkpoints").exists() else None
        assert (newest[0] if newest else 0) >= complete
        for name, _, digest in newest[1]["sum/0"] if newest else ():
            assert read_parts(left / name, digest) == [LOG]
        checked += 1

    at_every_sync(power, tmp_path, check)
    for epoch in (1, 2):
        name = f"checkpoints/sum/0/e{epoch:08d}-i1.snap"
        size, digest = write_parts(root / name, [LOG], durable=True)
        write_manifest(root, epoch, {"sum/0": ((name, size, digest),)}, sync=True)
        complete = epoch
        check(power.left_in(tmp_path / f"complete{epoch}"))
    assert checked > 8


def test_without_it_nothing_is_synced_and_the_model_loses_it(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power = PowerLoss(root, monkeypatch)
    logs = StableLogs(root, "sum/0", 1, sync=False)
    logs.begin([LogDelta(4, 0, 0, LOG)])
    size, digest = write_parts(root / "e1.snap", [LOG], durable=False)
    write_manifest(root, 1, {"sum/0": (("e1.snap", size, digest),)}, sync=False)
    assert power.synced == [] and newest_manifest(root) is not None
    left = power.left_in(tmp_path / "left")
    assert read_after(left) == {} and newest_manifest(left) is None
    with pytest.raises(CorruptData):
        read_parts(left / "e1.snap", digest)
    logs.close()


def test_objects_of_a_directory(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    power, acknowledged = PowerLoss(root, monkeypatch), dict[str, bytes]()

    def check(left: Path) -> None:
        objects = Directory(left)
        assert all(objects.read(name) == data for name, data in acknowledged.items())
        for name in objects.names(""):
            assert objects.read(name) == b"%d" % len(name) or name.startswith("low-water")

    at_every_sync(power, tmp_path, check)
    objects = Directory(root)
    for name in ("log.json", "manifests/0", "segments/a/1", "manifests/1"):
        assert objects.create(name, b"%d" % len(name))
        acknowledged[name] = b"%d" % len(name)
    objects.create("low-water/0", b"11", durable=False)
    check(power.left_in(tmp_path / "last"))
