"""A store's account returns to a savepoint: nothing of the withdrawn time is left in it, and its position is right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from causal.errors import InvariantViolation
from causal.logs.log import LogDelta
from causal.ports import Bundle, ReturningStore
from operators.outputs import open_output
from operators.sinks import CallbackSink, ConsoleSink, JsonLinesSink, SqliteSink
from operators.sinks.conformance import Subject, after, bundle_at, fill, record_at
from operators.sinks.contract import Account, packed, unpacked
from operators.sinks.contract.refusals import limit_of, obstacle, refusing
from operators.sinks.journaled.ledger import Ledger, bundle_record, return_record, state_record
from operators.sinks.staging.staged_place import staged_in_directory


def written(account: Account, *counts: int) -> None:
    """Take bundles with these numbers of rows, each of an epoch of its own, which a checkpoint covers afterwards."""
    for count in counts:
        epoch = 1 + max(account.epochs, default=account.kept_from)
        logs = (LogDelta(0, epoch, 0, b"abc"),)
        rows, refused = b"x" * count, ((account.next, "why"),)
        account.take(
            Bundle(account.next, count, rows, account.next + count, epoch, 1, logs, depends=(), refused=refused)
        )
        account.truncate(epoch)


def test_nothing_of_the_withdrawn_time_is_left_in_an_account() -> None:
    account = Account("out/0", "run", 1)
    written(account, 3, 4, 5)
    account.take(Bundle(12, 0, b"", 12, 4, 1, (), ended=True, depends=()))
    account.return_to(3, 3, 1, 3)
    assert (account.next, account.digest, account.refused, account.row_bytes) == (3, 3, 1, 3)
    assert (account.withdrawn, account.ended, account.last) == (9, False, b"")
    assert (account.epochs, account.logs, account.marks, account.mark_bytes, account.mark_refused) == (
        {},
        {},
        [],
        [],
        [],
    )
    assert account.kept_from == 3, "epochs only rise"
    assert unpacked("out/0", packed(account)) == account
    account.return_to(3, 3, 1, 3)
    assert account.withdrawn == 9
    written(account, 2)
    assert account.next == 5 and account.epochs == {4: 3}


@pytest.mark.parametrize(("next_", "digest"), [(13, 0), (-1, 0), (12, 5)])
def test_an_account_does_not_return_to_rows_that_it_never_had(next_: int, digest: int) -> None:
    account = Account("out/0", "run", 1)
    written(account, 3, 4, 5)
    with pytest.raises(InvariantViolation):
        account.return_to(next_, digest, 0, 0)
    assert account.next == 12


def test_a_journal_with_a_return_is_read_as_it_was_written() -> None:
    bundles = [
        Bundle(first, 2, b"a\nb\n", first + 2, 1, 1, (), depends=(), refused=((first, "why"),))
        for first in range(0, 8, 2)
    ]
    ledger = Ledger(Account("out/0", "run", 1))
    records = [state_record(ledger)]
    for bundle in bundles:
        ledger.take(bundle)
        records.append(bundle_record(bundle))
    ledger.return_to(4, 4, ledger.bytes_at(4))
    records.append(return_record(4, 4, 8))
    read = Ledger.of(records, "a journal")
    assert (read.account, list(read.entries), read.row_bytes) == (
        ledger.account,
        list(ledger.entries),
        ledger.row_bytes,
    )
    assert (read.account.refused, read.account.row_bytes, read.row_bytes) == (2, 8, 8)


def test_a_reader_of_lines_sees_the_lines_that_replace_withdrawn_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.outputs.lines._SCANNED_BYTES", 100)
    monkeypatch.setattr("operators.sinks.files.jsonlines.COUNTED_BYTES", 100)
    subject = Subject(JsonLinesSink(tmp_path / "out"), lambda task: None)
    store, state = subject.opened()
    savepoint = fill(subject, store, state, 17)
    state = fill(subject, store, savepoint, 120)
    store.truncate(3)
    output = open_output(tmp_path / "out")
    output.look()
    assert output.ends(False) == {"out/0": 120}
    assert isinstance(store, ReturningStore)
    state = store.return_to(savepoint.next, savepoint.digest)
    output.look()
    assert output.ends(False) == output.ends(True) == {"out/0": 17}
    row = subject.sink.encode([{"another": "x" * 50}])
    for _ in range(50):
        store.write(bundle := Bundle(state.next, 1, row, state.next, 9, 1, ()))
        state = after(state, bundle)
    output.look()
    rows = [
        json.loads(row)
        for _, rows in output.rows("out/0", 10, 67, output.hint("out/0", 60)[:0] or None)
        for row in rows
    ]
    assert rows == [record_at("out/0", position) for position in range(10, 17)] + [{"another": "x" * 50}] * 50
    [(_, last)] = output.rows("out/0", 66, 67, output.hint("out/0", 66))
    assert json.loads(last[0]) == {"another": "x" * 50}
    store.close()


def test_staged_rows_are_discarded_and_visible_ones_withdrawn(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "out.db")
    subject = Subject(sink, lambda task: None)
    store = staged_in_directory(sink.open_store("out/0", tmp_path), "out/0", tmp_path / "staged", 1 << 20)
    state = savepoint = store.open("out/0", "run-1", 1)
    for epoch in range(4):
        bundle = replace(bundle_at(subject, state, 5), epoch=epoch, logs=())
        store.write(bundle)
        state = after(state, bundle)
        store.stage(epoch + 1)
        while epoch < 3 and store.commit(epoch + 1):
            pass
        savepoint = state if epoch == 0 else savepoint
    assert store.staged()[0] == 5 and store.obstacle(5) == ""
    left = store.return_to(savepoint.next, savepoint.digest)
    assert (left.next, left.digest, store.staged()) == (5, savepoint.digest, (0, 0))
    store.close()
    store = staged_in_directory(sink.open_store("out/0", tmp_path), "out/0", tmp_path / "staged", 1 << 20)
    assert store.open("out/0", "run-1", 2) == left
    store.close()


def test_a_store_says_what_it_can_never_withdraw(tmp_path: Path) -> None:
    for sink, words in (
        (SqliteSink(tmp_path / "out.db"), ""),
        (JsonLinesSink(tmp_path / "rows"), ""),
        (CallbackSink(lambda delivery: None), "cannot withdraw rows"),
        (ConsoleSink(), "until the first checkpoint"),
    ):
        store = refusing(sink.open_store("out/0", tmp_path), sink, "out", "out/0", None)
        staged = staged_in_directory(store, "out/0", tmp_path / "staged", 1 << 20)
        for each in (store, staged):
            assert words in limit_of(each, 1) and bool(limit_of(each, 1)) is bool(words)


def test_the_console_returns_only_to_lines_whose_place_it_knows(tmp_path: Path) -> None:
    subject = Subject(ConsoleSink(), lambda task: None, job_directory=tmp_path)
    store, state = subject.opened()
    state = fill(subject, store, state, 20)
    assert obstacle(store, 20) == "" and "may have been printed" in obstacle(store, 7)
    store.close()
