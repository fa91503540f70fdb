"""The store of requests: it returns what it took, refuses zombies, survives torn writes, begins again for a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from causal.errors import CorruptData, Fenced
from causal.logs.log import LogDelta
from causal.ports import Bundle, WithdrawingStore
from operators.sinks.journaled.request_store import RequestStore


def store(directory: Path, task: str = "rate/0") -> RequestStore:
    return RequestStore(task, directory / "requests", sync=False)


def bundle(
    first: int, count: int, incarnation: int = 1, offset: int = 0, log: bytes = b"order", **more: object
) -> Bundle:
    logs = (LogDelta(0, 0, offset, log),)
    return Bundle(first, count, b"k" * count, first + count, 0, incarnation, logs, **more)  # type: ignore[arg-type]


def test_it_is_a_store_that_can_take_requests_back(tmp_path: Path) -> None:
    assert isinstance(store(tmp_path), WithdrawingStore)


def test_it_gives_back_position_and_determinants(tmp_path: Path) -> None:
    first = store(tmp_path)
    assert first.open("rate/0", "run", 1).next == 0
    first.write(bundle(0, 2))
    first.write(bundle(2, 1, offset=5, log=b"more"))
    first.write(bundle(2, 1, offset=5, log=b"more"))  # its acknowledgement was lost
    state = store(tmp_path).open("rate/0", "run", 2)
    assert (state.next, state.digest) == (3, 3)
    assert state.logs == (LogDelta(0, 0, 0, b"ordermore"),)


def test_a_zombie_stores_nothing(tmp_path: Path) -> None:
    zombie, young = store(tmp_path), store(tmp_path)
    zombie.open("rate/0", "run", 1)
    zombie.write(bundle(0, 1))
    young.open("rate/0", "run", 2)
    with pytest.raises(Fenced):
        zombie.write(bundle(1, 1, offset=5))
    with pytest.raises(Fenced):
        store(tmp_path).open("rate/0", "run", 1)
    assert young.last_bundle().next == 1


def test_a_torn_bundle_was_never_written(tmp_path: Path) -> None:
    writer = store(tmp_path)
    writer.open("rate/0", "run", 1)
    writer.write(bundle(0, 2))
    journal = tmp_path / "requests" / "rate-0.journal"
    whole = journal.read_bytes()
    writer.write(bundle(2, 2, offset=5))
    journal.write_bytes(journal.read_bytes()[: len(whole) + 20])
    assert store(tmp_path).open("rate/0", "run", 2).next == 2


def test_what_is_no_journal_is_corrupt(tmp_path: Path) -> None:
    store(tmp_path).open("rate/0", "run", 1)
    (tmp_path / "requests" / "rate-0.journal").write_bytes(b"")
    with pytest.raises(CorruptData, match="rate-0.journal"):
        store(tmp_path).open("rate/0", "run", 2)


def test_another_run_begins_anew(tmp_path: Path) -> None:
    old, new = store(tmp_path), store(tmp_path)
    old.open("rate/0", "old", 7)
    old.write(bundle(0, 2, incarnation=7))
    assert new.open("rate/0", "new", 1).next == 0
    with pytest.raises(Fenced):
        old.write(bundle(2, 1, incarnation=7, offset=5))


def test_a_complete_checkpoint_makes_it_forget_and_it_can_go_back_to_a_mark(tmp_path: Path) -> None:
    writer = store(tmp_path)
    writer.open("rate/0", "run", 1)
    writer.write(bundle(0, 2, depends=((0, 0, 5),)))
    writer.write(bundle(2, 3, offset=5, depends=((0, 0, 10),)))
    marks = writer.last_bundle().marks
    state = writer.withdraw(marks[1])
    assert (state.next, state.withdrawn) == (2, 3)
    writer.truncate(1)
    assert store(tmp_path).open("rate/0", "run", 2).logs == ()
