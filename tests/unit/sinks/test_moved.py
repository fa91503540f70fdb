"""A place that is moved away while a sink's task is dead: it is not made again, and is gone on with when it is back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from causal.errors import Unavailable
from causal.ports import LastingStore
from operators.sinks import JsonLinesSink, ParquetSink
from operators.sinks.conformance import Subject, bundle_at, fill
from tests.unit.sinks.parquet_scene import subject_of
from tests.unit.sinks.test_conformance import lines, sqlite


def parquet(directory: Path) -> Subject:
    return subject_of(ParquetSink(directory / "out"))


def objects(directory: Path) -> Subject:
    pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")
    return Subject(JsonLinesSink((directory / "out").as_uri(), publish_s=0.001), list)


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("make", [lines, sqlite, parquet, objects])
def test_a_place_that_a_checkpoint_counts_rows_in_is_waited_for_also_by_tasks_without_rows(
    make: Callable[[Path], Subject], mounted: bool, tmp_path: Path
) -> None:
    place, kept = tmp_path / "place", tmp_path / "kept"
    place.mkdir()
    subject = make(place)
    store, state = subject.opened()
    state = fill(subject, store, state, 5)
    store.close()
    there = next(place.glob("out*"))
    there.rename(kept)
    if mounted and kept.is_dir():
        there.mkdir()  # the mount point stays, and is empty
    young = subject.sink.open_store("out/0", tmp_path)
    assert isinstance(young, LastingStore)
    young.expect(True)
    rowless = subject.sink.open_store("out/1", tmp_path)
    assert isinstance(rowless, LastingStore)
    rowless.expect(False)
    for waiting, task in 2 * [(rowless, "out/1"), (young, "out/0")]:
        with pytest.raises(Unavailable, match="put it back"):
            waiting.open(task, "run-1", 2)
    assert there.exists() == (mounted and kept.is_dir()), "nothing is made that is in the way of what is put back"
    if there.exists():
        shutil.rmtree(there)  # what is below a mount is hidden by it
    kept.rename(there)
    assert rowless.open("out/1", "run-1", 2).next == 0
    rowless.close()
    assert young.open("out/0", "run-1", 2).next == state.next == 5
    young.write(bundle_at(subject, state, 3, 2))
    assert young.last_bundle().next == 8
    young.close()


@pytest.mark.parametrize(("make", "journal"), [(lines, ".out-0.journal"), (parquet, "_causal")])
def test_a_journal_that_was_not_copied_with_the_rows_is_named(
    make: Callable[[Path], Subject], journal: str, tmp_path: Path
) -> None:
    subject = make(tmp_path)
    store, state = subject.opened()
    fill(subject, store, state, 5)
    store.close()
    there = next(tmp_path.glob("out*"))
    shutil.move(there, tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", there, ignore=shutil.ignore_patterns(".*", "_*"))
    young = subject.sink.open_store("out/0", tmp_path)
    assert isinstance(young, LastingStore)
    young.expect(True)
    with pytest.raises(
        Unavailable,
        match=rf"/{journal}\S*, .* is missing .*put the journal back \(a copy must include the hidden files",
    ):
        young.open("out/0", "run-1", 2)
