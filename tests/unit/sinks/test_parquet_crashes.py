"""A writer of Parquet files dies at every system call, or finds the disk full: no row is lost or doubled for anybody.

Two readers are asked each time: ours, which sees every row, and one that knows no more than the names `*.parquet`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")

from causal.errors import Unavailable
from operators.sinks.conformance import EPOCH_ROWS, Subject, after, bundle_at, expect_held, fill
from operators.sinks.parquet_file import PartFile
from tests.unit.sinks.parquet_scene import parquet, plain_rows
from tests.unit.sinks.test_crash_points import armed, full_disk, in_a_child


def expect_plain(directory: Path, held: int) -> None:
    """Whole files, no row twice, none missing in between, none that is not held."""
    numbers = [row["n"] for row in plain_rows(directory)]
    assert numbers == list(range(len(numbers))) and len(numbers) <= held


@pytest.mark.parametrize(("durability", "half", "stride"), [("process", False, 3), ("os", True, 2)])
def test_death_at_every_system_call(durability: str, half: bool, stride: int, tmp_path: Path) -> None:
    for countdown in range(1, 200, stride):
        place = tmp_path / f"at-{countdown}"
        place.mkdir()
        subject = parquet(place, publish_s=1e-9, durability=durability)
        store, held = subject.opened(1)
        fill(subject, store, held, EPOCH_ROWS + 5)
        store.close()

        def step(subject: Subject = subject, countdown: int = countdown) -> None:
            armed(countdown, half)
            store, held = subject.opened(2)
            held = fill(subject, store, held, EPOCH_ROWS + 12, 2)
            store.truncate(1)
            fill(subject, store, held, EPOCH_ROWS + 19, 2)
            store.close()

        status = in_a_child(step)
        expect_plain(place / "out", EPOCH_ROWS + 19)
        store, held = subject.opened(3)
        assert held.next in (EPOCH_ROWS + 5, EPOCH_ROWS + 12, EPOCH_ROWS + 19)
        subject.expect_rows(held.next, f"death at call {countdown}")
        expect_plain(place / "out", held.next)
        expect_held(subject, held, f"death at call {countdown}", kept_from=None)
        held = fill(subject, store, held, EPOCH_ROWS + 30, 3)
        store.close()
        assert [row["n"] for row in plain_rows(place / "out")] == list(range(EPOCH_ROWS + 30))
        assert not list((place / "out" / "_causal").glob("*.part"))
        if status == 0:
            assert countdown > 20, "the child must have died at every call before"
            return
        assert status == -signal.SIGKILL
    raise AssertionError("the child never came to its end")


def test_death_between_the_name_of_a_file_and_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest cannot be written: the file that has its name already is not made a second time."""
    subject = parquet(tmp_path, publish_s=3600)
    store, held = subject.opened(1)
    held = fill(subject, store, held, 20)

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("operators.sinks.parquet_rolling.store_manifest", refuse)
        for _ in range(2):
            with pytest.raises(Unavailable, match="No space left on device; check the disk"):
                store.publish()  # type: ignore[attr-defined]
            assert len(plain_rows(tmp_path / "out")) == 20
            subject.expect_rows(20, "what cannot be published is still there")
    held = fill(subject, store, held, 33)
    store.close()
    names = [path.name for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert names == ["out-0-000000000000-000000000020.parquet", "out-0-000000000020-000000000033.parquet"]


def test_a_named_file_that_is_not_whole_is_made_again(tmp_path: Path) -> None:
    subject = parquet(tmp_path, publish_s=3600)
    store, held = subject.opened(1)
    fill(subject, store, held, 20)
    torn = tmp_path / "out" / "out-0-000000000000-000000000014.parquet"
    torn.write_bytes(b"PAR1")  # what a loss of power may leave
    store, held = subject.opened(2)
    assert not torn.exists()
    subject.expect_rows(20, "rows are in the journal")
    store.close()
    assert [row["n"] for row in plain_rows(tmp_path / "out")] == list(range(20))


def test_a_full_disk_is_told_and_nothing_is_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = parquet(tmp_path, publish_s=1e-9)
    store, held = subject.opened(1)
    fill(subject, store, held, 10)
    store.close()
    told, telling = os.pipe()

    def step() -> None:
        import resource

        store, held = subject.opened(2)
        for limit in (3000, 6000, 9000):
            full_disk(limit)
            try:
                while True:
                    bundle = bundle_at(subject, held, 40, 2)
                    store.write(bundle)
                    held = after(held, bundle)
                    store.truncate(held.next // EPOCH_ROWS)
            except Unavailable as problem:
                os.write(telling, f"{problem}\n".encode())
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            store.write(bundle)
            if after(held, bundle).next > held.next:
                held = after(held, bundle)
            subject.expect_rows(held.next, "after there was room again, every row is there once")
        store.close()

    assert in_a_child(step) == 0
    os.close(telling)
    with os.fdopen(told) as lines_told:
        messages = lines_told.read().splitlines()
    assert len(messages) == 3 and all(str(tmp_path) in message for message in messages)
    store, held = subject.opened(3)
    expect_held(subject, held, "after a full disk, determinants and position agree", kept_from=None)
    store.close()
    assert [row["n"] for row in plain_rows(tmp_path / "out")] == list(range(held.next))


def test_a_hidden_file_that_cannot_be_written_holds_rows_back_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = parquet(tmp_path, publish_s=1e-9)
    store, held = subject.opened(1)
    bundle = bundle_at(subject, held, 5)
    store.write(bundle)

    def refuse(self: PartFile, *args: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(PartFile, "finish", refuse)
        following = bundle_at(subject, after(held, bundle), 5)
        for _ in range(2):
            with pytest.raises(Unavailable, match="Input/output error"):
                store.write(following)
    subject.expect_rows(5, "no more is taken than can go on to files")
    store.write(following)
    store.close()
    assert [row["n"] for row in plain_rows(tmp_path / "out")] == list(range(10))
