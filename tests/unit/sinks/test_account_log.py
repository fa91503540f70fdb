"""The account of a sink as a log of messages: what counts, from whom, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from causal.errors import CorruptData
from causal.logs.log import LogDelta
from causal.ports import Bundle
from operators.sinks.contract.account import Account, log_parts, packed
from operators.sinks.messages import account_log
from operators.sinks.messages.account_log import (
    AccountLog,
    claim_record,
    logs_record,
    messages_of,
    rows_record,
    step_record,
    whole_record,
)

TASK = "out/0"


def writer(incarnation: int = 1, run: str = "run-1") -> Account:
    return Account(TASK, run, incarnation)


def step(account: Account, rows: int, log: bytes = b"") -> bytes:
    """Write a bundle of that many rows to the account, and return its record."""
    before, start = (account.next, account.last), 0
    log_before = account.logs.get(7)
    start = log_before.extent(0) if log_before is not None else 0
    logs = (LogDelta(7, 0, start, log),) if log else ()
    bundle = Bundle(account.next, rows, b"x" * rows, account.digest + rows, 0, account.incarnation, logs)
    fresh = account.take(bundle)
    assert fresh is not None
    return step_record(account, before, log_parts(fresh))


def folded(*records: bytes) -> Account | None:
    log = AccountLog(TASK, "here")
    for record in records:
        for message in messages_of(record):
            log.take(message)
    return log.account


def test_steps_add_up_to_the_account_that_wrote_them() -> None:
    account = writer()
    records = [whole_record(account), *(step(account, rows, b"log%d" % rows) for rows in (1, 5, 2))]
    read = folded(*records)
    assert read is not None and read.next == 8 and packed(read) == packed(account)


def test_a_step_that_was_written_twice_counts_once() -> None:
    account = writer()
    begin, one = whole_record(account), step(account, 3, b"log")
    assert folded(begin, one, one).next == 3  # type: ignore[union-attr]


def test_what_a_replaced_writer_appends_is_passed_over() -> None:
    account, begin = writer(), whole_record(writer())
    one = step(account, 3)
    late, gone = step(account, 4), whole_record(account)
    for zombie in (late, gone, logs_record(account, log_parts([LogDelta(7, 0, 0, b"lost")])), claim_record("run-1", 0)):
        read = folded(begin, one, claim_record("run-1", 2), zombie)
        assert read is not None and (read.incarnation, read.next, read.logs) == (2, 3, {})


def test_the_account_of_a_newer_run_replaces_an_older_one_and_never_the_other_way() -> None:
    old, new = whole_record(writer(9)), whole_record(writer(-1, "run-2"))
    assert folded(old, new).run == "run-2"  # type: ignore[union-attr]
    assert folded(new, old).run == "run-2"  # type: ignore[union-attr]
    assert folded(old, new, claim_record("run-1", 10)).incarnation == -1  # type: ignore[union-attr]
    assert folded(claim_record("run-1", 1)) is None


def test_determinants_that_came_before_their_rows_stay_with_the_next_writer() -> None:
    account = writer()
    begin = whole_record(account)
    parts = log_parts([LogDelta(7, 0, 0, b"dice")])
    read = folded(begin, logs_record(account, parts), claim_record("run-1", 2))
    assert read is not None and read.next == 0 and read.store_state().logs == (LogDelta(7, 0, 0, b"dice"),)


def test_rows_that_came_before_their_step_are_known_to_the_next_writer() -> None:
    account = writer()
    log = AccountLog(TASK, "here")
    records = [whole_record(account), rows_record(account, 5), claim_record("run-1", 2), rows_record(account, 9)]
    account.incarnation = 2
    for record, written in zip([*records, step(account, 2), step(account, 4)], [0, 5, 5, 5, 5, 6], strict=True):
        for message in messages_of(record, 3):
            log.take(message)
        assert log.written == written
    assert log.account is not None and log.account.next == 6
    log.take(*messages_of(whole_record(writer(-1, "run-2"))))
    assert log.written == 0, "a new run has no rows"


def test_large_records_count_when_their_last_part_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_log, "PART_BYTES", 50)
    account = writer()
    begin, one, two = whole_record(account), step(account, 3, bytes(range(200))), step(account, 1)
    parts = messages_of(one)
    assert len(parts) > 3
    for missing in range(len(parts)):
        log = AccountLog(TASK, "here")
        for message in [*messages_of(begin), *parts[:missing], *parts[missing + 1 :], *messages_of(two)]:
            log.take(message)
        assert log.account is not None and log.account.next == 0
    assert packed(folded(begin, one, two)) == packed(account)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "damage", [lambda m: b"", lambda m: m[:-1], lambda m: b"\xc1" + m, lambda m: b"\x94\xc4\x01a\x05\x02\xc0"]
)
def test_what_is_no_account_is_refused(damage: Callable[[bytes], bytes]) -> None:
    [message] = messages_of(whole_record(writer()))
    with pytest.raises(CorruptData, match="here does not hold an account of out/0"):
        AccountLog(TASK, "here").take(damage(message))


@pytest.mark.parametrize("seed", range(20))
def test_damaged_messages_are_refused_or_change_nothing_else(seed: int) -> None:
    chance, account = Random(seed), writer()
    records = [whole_record(account), *(step(account, 2, b"log%d" % n) for n in range(5))]
    messages = [message for record in records for message in messages_of(record)]
    at = chance.randrange(len(messages))
    damaged = bytearray(messages[at])
    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    log = AccountLog(TASK, "here")
    try:
        for message in [*messages[:at], bytes(damaged), *messages[at + 1 :]]:
            log.take(message)
    except CorruptData:
        pass
