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
from operators.sinks.parquet.parquet_file import PartFile
from tests.unit.sinks.parquet_scene import parquet, plain_rows
from tests.unit.sinks.test_crash_points import armed, full_disk, in_a_child


def expect_plain(directory: Path, rows_max: int) -> None:
    """Expects whole files, no row twice, none missing in between, none that the store does not have."""
    numbers = [row["n"] for row in plain_rows(directory)]
    assert numbers == list(range(len(numbers))) and len(numbers) <= rows_max


@pytest.mark.parametrize(("durability", "half", "stride"), [("process", False, 3), ("os", True, 2)])
def test_death_at_every_system_call(durability: str, half: bool, stride: int, tmp_path: Path) -> None:
    for countdown in range(1, 200, stride):
        place = tmp_path / f"at-{countdown}"
        place.mkdir()
        subject = parquet(place, publish_s=1e-9, durability=durability)
        store, state = subject.opened(1)
        fill(subject, store, state, EPOCH_ROWS + 5)
        store.close()

        def step(subject: Subject = subject, countdown: int = countdown) -> None:
            armed(countdown, half)
            store, state = subject.opened(2)
            state = fill(subject, store, state, EPOCH_ROWS + 12, 2)
            store.truncate(1)
            fill(subject, store, state, EPOCH_ROWS + 19, 2)
            store.close()

        status = in_a_child(step)
        expect_plain(place / "out", EPOCH_ROWS + 19)
        store, state = subject.opened(3)
        assert state.next in (EPOCH_ROWS + 5, EPOCH_ROWS + 12, EPOCH_ROWS + 19)
        subject.expect_rows(state.next, f"death at call {countdown}")
        expect_plain(place / "out", state.next)
        expect_held(subject, state, f"death at call {countdown}", kept_from=None)
        state = fill(subject, store, state, EPOCH_ROWS + 30, 3)
        store.close()
        assert [row["n"] for row in plain_rows(place / "out")] == list(range(EPOCH_ROWS + 30))
        assert not list((place / "out" / "_causal").glob("*.part"))
        if status == 0:
            assert countdown > 20, "the child must have died at every call before"
            return
        assert status == -signal.SIGKILL
    raise AssertionError("the child never came to its end")


def test_death_between_the_name_of_a_file_and_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest cannot be written: the file that has its name already is not written a second time."""
    subject = parquet(tmp_path, publish_s=3600)
    store, state = subject.opened(1)
    state = fill(subject, store, state, 20)

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("operators.sinks.parquet.parquet_rolling.store_manifest", refuse)
        for _ in range(2):
            with pytest.raises(Unavailable, match="No space left on device; check the disk"):
                store.publish()  # type: ignore[attr-defined]
            assert len(plain_rows(tmp_path / "out")) == 20
            subject.expect_rows(20, "what cannot be published is still there")
    state = fill(subject, store, state, 33)
    store.close()
    names = [path.name for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert names == ["out-0-000000000000-000000000020.parquet", "out-0-000000000020-000000000033.parquet"]


def test_a_named_file_that_is_not_whole_is_made_again(tmp_path: Path) -> None:
    subject = parquet(tmp_path, publish_s=3600)
    store, state = subject.opened(1)
    fill(subject, store, state, 20)
    torn = tmp_path / "out" / "out-0-000000000000-000000000014.parquet"
    torn.write_bytes(b"PAR1")  # what a loss of power may leave
    store, state = subject.opened(2)
    assert not torn.exists()
    subject.expect_rows(20, "rows are in the journal")
    store.close()
    assert [row["n"] for row in plain_rows(tmp_path / "out")] == list(range(20))


def test_a_full_disk_is_told_and_nothing_is_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = parquet(tmp_path, publish_s=1e-9)
    store, state = subject.opened(1)
    fill(subject, store, state, 10)
    store.close()
    read_end, write_end = os.pipe()

    def step() -> None:
        import resource

        store, state = subject.opened(2)
        for limit in (3000, 6000, 9000):
            full_disk(limit)
            try:
                while True:
                    bundle = bundle_at(subject, state, 40, 2)
                    store.write(bundle)
                    state = after(state, bundle)
                    store.truncate(state.next // EPOCH_ROWS)
            except Unavailable as problem:
                os.write(write_end, f"{problem}\n".encode())
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            store.write(bundle)
            if after(state, bundle).next > state.next:
                state = after(state, bundle)
            subject.expect_rows(state.next, "after there was room again, every row is there once")
        store.close()

    assert in_a_child(step) == 0
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        messages = pipe.read().splitlines()
    assert len(messages) == 3 and all(str(tmp_path) in message for message in messages)
    store, state = subject.opened(3)
    expect_held(subject, state, "after a full disk, determinants and position agree", kept_from=None)
    store.close()
    assert [row["n"] for row in plain_rows(tmp_path / "out")] == list(range(state.next))


def test_a_hidden_file_that_cannot_be_written_holds_rows_back_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = parquet(tmp_path, publish_s=1e-9)
    store, state = subject.opened(1)
    bundle = bundle_at(subject, state, 5)
    store.write(bundle)

    def refuse(self: PartFile, *args: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(PartFile, "finish", refuse)
        following = bundle_at(subject, after(state, bundle), 5)
        for _ in range(2):
            with pytest.raises(Unavailable, match="Input/output error"):
                store.write(following)
    subject.expect_rows(5, "no more is taken than can be written to files")
    store.write(following)
    store.close()
    assert [row["n"] for row in plain_rows(tmp_path / "out")] == list(range(10))
