"""A writer of Parquet files dies at every system call, or finds the disk full: no row is lost or doubled for anybody.

Two readers are asked each time: ours, which sees every row, and one that knows no more than the names `*.parquet`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")

from causal.errors import Unavailable
from operators.sinks.conformance import Subject, after, bundle_at, fill
from operators.sinks.parquet.parquet_file import PartFile
from tests.members import sample
from tests.unit.sinks.deaths import dies_at_every_call, fills_the_disk
from tests.unit.sinks.parquet_scene import parquet, plain_rows


def expect_plain(place: Path, least: int, most: int) -> None:
    """Expect whole files, no row twice, none missing in between, none that the store does not have."""
    numbers = [row["n"] for row in plain_rows(place / "out")]
    assert numbers == list(range(len(numbers))) and least <= len(numbers) <= most
    assert least < most or not list((place / "out" / "_causal").glob("*.part"))


@pytest.mark.parametrize(("durability", "half", "stride"), sample([("process", False, 3), ("os", True, 2)], 1))
def test_death_at_every_system_call(durability: str, half: bool, stride: int, tmp_path: Path) -> None:
    def make(place: Path) -> Subject:
        return parquet(place, publish_s=1e-9, durability=durability)

    dies_at_every_call(make, tmp_path, half, stride, expect_plain)


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


def test_a_full_disk_is_told_and_nothing_is_half_done(tmp_path: Path) -> None:
    rows = fills_the_disk(parquet(tmp_path, publish_s=1e-9), tmp_path, (3000, 6000, 9000), 40)
    expect_plain(tmp_path, rows, rows)


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
