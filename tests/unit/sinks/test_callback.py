"""The calls of a callback, whichever process dies: the kit for one that honours keys, and what others see."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from causal.errors import Fenced, OperatorFailed, RowRefused, Unavailable
from causal.ports import Bundle
from causal.shell import outage
from causal.shell.outage import StoreCalls
from causal.storage import file_journal as locked_journal
from causal.task.performer import StoreUnavailable
from operators.sinks import CallbackSink, conformance
from operators.sinks.conformance import EPOCH_ROWS, Subject, bundle_at, expect_held, fill
from operators.sinks.contract.refusals import refusing
from operators.sinks.contract.refused_rows import RefusedRows
from operators.sinks.delivery import outward
from operators.sinks.delivery.outward import Delivery, OutwardStore
from tests.members import campaign
from tests.unit.sinks.bounded import in_bounds
from tests.unit.sinks.receiver import Receiver


def receiver_and_subject(directory: Path, **options: Any) -> tuple[Receiver, Subject]:
    receiver = Receiver(directory)

    def torn(task: str) -> None:
        """The journal promised the bundle, and then its process died in the middle of a note."""
        journal = directory / "deliveries" / "out-0.journal"
        journal.write_bytes(journal.read_bytes()[:-5])

    return receiver, Subject(
        CallbackSink(receiver, **options),
        receiver.rows,
        job_directory=directory,
        away=receiver.away,
        tears=(torn,),
        poison=lambda: {"n": -1},
    )


def receiver_and_subject_on_disk(directory: Path) -> tuple[Receiver, Subject]:
    return receiver_and_subject(directory, durability="os")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for a process that was stopped while it had the lock."""
    monkeypatch.setattr(outward, "BUSY_MS", 50)


@pytest.mark.parametrize("make", [receiver_and_subject, campaign(receiver_and_subject_on_disk)])
@pytest.mark.parametrize("check", in_bounds(conformance.CHECKS), ids=lambda check: check.__name__)
def test_callbacks_conform_where_keys_are_honoured(
    check: Callable[[Subject], None], make: Callable[[Path], tuple[Receiver, Subject]], tmp_path: Path
) -> None:
    receiver, subject = make(tmp_path)
    check(subject)
    positions = [position for position, _ in receiver.deliveries()]
    assert receiver.doubled() or positions == sorted(positions), "what comes once comes in order"


def test_a_callback_gets_rows_in_order_in_batches_with_keys(tmp_path: Path) -> None:
    deliveries: list[Delivery] = []
    subject = Subject(CallbackSink(deliveries.append, batch_rows=3), lambda task: None, job_directory=tmp_path)
    store, state = subject.opened()
    state = fill(subject, store, state, 10)
    assert [list(delivery.positions) for delivery in deliveries] == [[0, 1, 2], [3, 4, 5], [6], [7, 8, 9]]
    assert deliveries[1].keys == ["run-1/out/0/3", "run-1/out/0/4", "run-1/out/0/5"]
    assert len({delivery.key for delivery in deliveries}) == 4
    assert [row["n"] for delivery in deliveries for row in delivery.records] == list(range(10))
    store.write(Bundle(10, 0, b"", state.digest, 0, 1, (), ended=True))
    assert len(deliveries) == 4, "the end alone is no delivery"
    store.close()


def test_a_function_that_fails_now_and_then_is_not_away_while_it_takes_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns, called = 1, 0

    def fn(delivery: Delivery) -> None:
        nonlocal now_ns, called
        now_ns, called = now_ns + 600_000_000, called + 1
        if called % 4 == 0:
            raise ConnectionResetError("busy")

    monkeypatch.setattr(outage, "monotonic_ns", lambda: now_ns)
    calls = StoreCalls("out/0", 2.0, lambda kind, facts: None)
    subject = Subject(CallbackSink(fn, batch_rows=1), lambda task: None, job_directory=tmp_path)
    store, state = subject.opened()
    bundle, failed = bundle_at(subject, state, 40), 0
    while called < 40 + failed:
        try:
            calls.make(partial(store.write, bundle))
        except StoreUnavailable:
            failed += 1
            now_ns = calls.again_ns
    assert failed == 13 and calls.waiting is None
    store.close()


def test_a_row_that_is_put_aside_ends_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 1

    def fn(delivery: Delivery) -> None:
        nonlocal now_ns
        now_ns += 900_000_000
        raise RowRefused(delivery.positions[0], "no")

    monkeypatch.setattr(outage, "monotonic_ns", lambda: now_ns)
    calls = StoreCalls("out/0", 2.0, lambda kind, facts: None)
    sink = CallbackSink(fn)
    letters = RefusedRows(tmp_path / "letters", "out/0", "run-1")
    store = refusing(sink.open_store("out/0", tmp_path), sink, "out", "out/0", letters)
    state = store.open("out/0", "run-1", 1)
    overdue: list[str | None] = []
    keep = letters.keep

    def seen(*each: Any) -> None:
        overdue.append(calls.overdue())
        keep(*each)

    monkeypatch.setattr(letters, "keep", seen)
    calls.make(partial(store.write, bundle_at(Subject(sink, lambda task: None), state, 5)))
    assert overdue == [None] * 5 and store.refused == 5
    store.close()


def test_what_was_promised_comes_again_from_the_journal_with_the_same_keys(tmp_path: Path) -> None:
    calls: list[list[str]] = []
    broken = True

    def fn(delivery: Delivery) -> None:
        calls.append(delivery.keys)
        if broken and delivery.positions[0] >= 4:
            raise ConnectionResetError("in the middle")

    subject = Subject(CallbackSink(fn, batch_rows=4), lambda task: None, job_directory=tmp_path)
    store, state = subject.opened()
    with pytest.raises(Unavailable, match="in the middle"):
        store.write(bundle_at(subject, state, 7))
    store.close()
    with pytest.raises(Unavailable):
        subject.opened(2)
    broken = False
    store, state = subject.opened(3)
    keys = [f"run-1/out/0/{position}" for position in range(7)]
    assert calls == [keys[:4], keys[4:], keys[4:], keys[4:]], "what was taken does not come again"
    assert state.next == 7
    expect_held(subject, state, "the journal holds what the promised rows depend on")
    store.close()


def test_rows_behind_a_refused_one_come_once_it_is_put_aside_also_by_the_next_process(tmp_path: Path) -> None:
    receiver, subject = receiver_and_subject(tmp_path, batch_rows=2)
    sink = subject.sink
    letters = RefusedRows(tmp_path / "letters", "out/0", "run-1")
    store, state = subject.opened()
    poison = sink.encode([{"n": -1}])
    bundle = bundle_at(subject, state, 7)
    lines = bundle.rows.splitlines(keepends=True)
    bundle = Bundle(0, 7, b"".join([*lines[:3], poison, *lines[4:]]), 9, 0, 1, bundle.logs)
    with pytest.raises(RowRefused):
        store.write(bundle)
    assert [row["n"] for row in receiver.rows()] == [0, 1]
    store.close()
    inner, state = subject.opened(2)
    assert isinstance(inner, OutwardStore) and inner.promised_bundle() is not None and state.next == 7
    inner.close()
    assert [row["n"] for row in receiver.rows()] == [0, 1], "nothing behind a refused row overtakes it"
    strict = refusing(sink.open_store("out/0", tmp_path), sink, "out", "out/0", None)
    with pytest.raises(OperatorFailed, match="position 3 of out/0: its store refused the row: n is too small"):
        strict.open("out/0", "run-1", 3)
    strict.close()
    lenient = refusing(sink.open_store("out/0", tmp_path), sink, "out", "out/0", letters)
    state = lenient.open("out/0", "run-1", 4)
    assert (state.next, state.refused, lenient.refused) == (7, 1, 1)
    assert [row["n"] for row in receiver.rows()] == [0, 1, 2, 4, 5, 6]
    assert len(letters.path.read_text().splitlines()) == 1 and receiver.doubled() == 0
    lenient.close()
    again = refusing(sink.open_store("out/0", tmp_path), sink, "out", "out/0", letters)
    assert again.open("out/0", "run-1", 5).refused == 1
    again.close()


def test_a_zombie_in_the_middle_of_a_bundle_stops_at_the_next_batch(tmp_path: Path) -> None:
    receiver, subject = receiver_and_subject(tmp_path, batch_rows=2)
    taken: list[list[int]] = []

    def fn(delivery: Delivery) -> None:
        receiver(delivery)
        taken.append(list(delivery.positions))
        if len(taken) == 1:
            young, state = subject.opened(2)  # a successor is promoted, and delivers what the journal promises
            fill(subject, young, state, 12, 2)
            young.close()

    subject.sink = CallbackSink(fn, batch_rows=2)
    store, state = subject.opened()
    with pytest.raises(Fenced):
        store.write(bundle_at(subject, state, 6))
    subject.expect_rows(12, "rows of both took effect once")
    assert taken[:2] == [[0, 1], [0, 1]] and receiver.doubled() == 2, "only what the zombie had in its hands"
    store.close()


def test_journals_do_not_grow_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked_journal, "JOURNAL_BYTES_MAX", 4000)
    receiver, subject = receiver_and_subject(tmp_path)
    store, state = subject.opened()
    state = fill(subject, store, state, 20 * EPOCH_ROWS)
    store.truncate(20)
    journal = tmp_path / "deliveries" / "out-0.journal"
    assert journal.stat().st_size < 500
    store.close()
    store, state = subject.opened(2)
    assert state.next == 20 * EPOCH_ROWS
    subject.expect_rows(state.next, "every row is there")
    store.close()


@pytest.mark.parametrize("problem", [ValueError("no such\ncustomer"), KeyError("id")])
def test_a_function_that_raises_ends_the_job_in_one_line(tmp_path: Path, problem: Exception) -> None:
    def fn(delivery: Delivery) -> None:
        raise problem

    subject = Subject(CallbackSink(fn), lambda task: None, job_directory=tmp_path)
    store, state = subject.opened()
    with pytest.raises(OperatorFailed) as caught:
        store.write(bundle_at(subject, state, 3))
    line = str(caught.value)
    assert line.startswith(f"sink task out/0, positions 0 to 2: its function raised {type(problem).__name__}: ")
    assert len(line.splitlines()) == 1
    store.close()
