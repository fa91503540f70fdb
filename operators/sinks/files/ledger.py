"""The contents of a journal of bundles: the account of its task, and the rows that may be nowhere else yet.

The first record is a state; behind it come bundles, claims of younger incarnations, truncations and withdrawals, each
of which took effect when it was there as a whole.  Nothing here touches a file, so a reader that only looks uses it as
the writer does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from causal.errors import CausalError, CorruptData, invariant
from causal.logs.log import LogDelta
from causal.ports import Bundle, WithdrawPoint
from causal.records.values import decode, encode, encode_loosely
from operators.sinks.contract.account import Account
from operators.sinks.contract.bundle_codec import bundle_fields, bundle_of

_STATE, _BUNDLE, _CLAIMED, _TRUNCATED, _WITHDRAWN = "state", "bundle", "claimed", "truncated", "withdrawn"


@dataclass(slots=True)
class Entry:
    """The rows of one bundle."""

    first: int
    next: int
    rows: bytes
    refused: tuple[int, ...] = ()
    batches: Any = None
    """The same rows as columns, where they have been made already."""


@dataclass(slots=True)
class Ledger:
    """An account and the entries behind it, as the records read so far make them."""

    account: Account
    entries: deque[Entry] = field(default_factory=deque)
    row_bytes: int = 0
    """The bytes of the entries."""

    @classmethod
    def of(cls, records: Sequence[bytes], where: Path) -> Ledger:
        """The ledger of these records.

        Raises:
            CorruptData: they are not those of a journal; names the file.
        """
        try:
            kind, *fields = decode(records[0])
            invariant(kind == _STATE, "a journal begins with a state", kind=kind)
            ledger = _state(*fields)
        except (CausalError, IndexError, TypeError, ValueError) as problem:
            raise CorruptData(f"{where} does not begin with a state ({problem}); restore the file") from None
        ledger.feed(records[1:], where)
        return ledger

    def feed(self, records: Iterable[bytes], where: Path) -> None:
        """Take further records, in their order."""
        for record in records:
            try:
                kind, *fields = decode(record)
                _TAKERS[kind](self, *fields)
            except (CausalError, KeyError, TypeError, ValueError) as problem:
                raise CorruptData(f"{where} holds a record that cannot be ({problem}); restore the file") from None

    @property
    def covered(self) -> int:
        """The position below which rows are never taken back."""
        return covered(self.account)

    def add(self, entry: Entry) -> None:
        """Add rows that the account has taken."""
        self.entries.append(entry)
        self.row_bytes += len(entry.rows)

    def shift(self) -> Entry:
        """Remove the oldest entry and return it."""
        entry = self.entries.popleft()
        self.row_bytes -= len(entry.rows)
        return entry

    def forget(self, position: int) -> None:
        """Drop rows below `position`, which are in files that are named."""
        while self.entries and self.entries[0].next <= position:
            self.shift()

    def _bundle(self, *fields: Any) -> None:
        bundle = bundle_of(fields)
        # A bundle written again after a lost acknowledgement is never in the journal twice.
        invariant(self.account.take(bundle) is not None, "bundles of a journal differ", first=bundle.first)
        if bundle.count:
            self.add(entry_of(bundle))

    def _claimed(self, incarnation: int) -> None:
        self.account.incarnation = incarnation

    def _truncated(self, epoch: int) -> None:
        self.account.truncate(epoch)

    def _withdrawn(self, *fields: Any) -> None:
        next_, digest, epoch, rollback, depends = fields
        self.account.withdraw(WithdrawPoint(next_, digest, epoch, rollback, tuple((o, e, n) for o, e, n in depends)))
        while self.entries and self.entries[-1].next > next_:
            self.row_bytes -= len(self.entries.pop().rows)


_TAKERS = {
    _BUNDLE: Ledger._bundle,
    _CLAIMED: Ledger._claimed,
    _TRUNCATED: Ledger._truncated,
    _WITHDRAWN: Ledger._withdrawn,
}


def entry_of(bundle: Bundle, batches: Any = None) -> Entry:
    """The rows of a bundle that has some."""
    refused = tuple(position for position, _ in bundle.refused)
    return Entry(bundle.first, bundle.first + bundle.count, bundle.rows, refused, batches)


def covered(account: Account) -> int:
    """The end of rows that are never taken back: a checkpoint covers them, the job has ended, or nothing is lost."""
    return account.marks[0].next if account.marks and not account.ended else account.next


def bundle_record(bundle: Bundle) -> bytes:
    """The record of a bundle that the account has taken."""
    return encode_loosely([_BUNDLE, *bundle_fields(bundle)])


def claim_record(incarnation: int) -> bytes:
    """The record behind which every lower incarnation is fenced."""
    return encode([_CLAIMED, incarnation])


def truncation_record(epoch: int) -> bytes:
    """The record of a truncation: determinants of epochs below this one are forgotten."""
    return encode([_TRUNCATED, epoch])


def withdrawal_record(mark: WithdrawPoint) -> bytes:
    """The record of a withdrawal: rows behind the mark are taken back."""
    return encode([_WITHDRAWN, *_mark_fields(mark)])


def _mark_fields(mark: WithdrawPoint) -> list[Any]:
    return [mark.next, mark.digest, mark.epoch, mark.rollback, [list(extent) for extent in mark.depends]]


def state_record(ledger: Ledger) -> bytes:
    """The first record of a new journal, which has the whole state."""
    account = ledger.account
    logs = [(delta.task, delta.epoch, delta.bytes, delta.offset) for delta in account.store_state().logs]
    marks = zip(account.marks, account.mark_bytes, account.mark_refused, strict=True)
    entries = [(entry.first, entry.next, entry.rows, list(entry.refused)) for entry in ledger.entries]
    return encode(
        [
            _STATE,
            (account.task, account.run, account.incarnation, account.next, account.digest, account.last),
            (account.kept_from, account.ended, account.row_bytes, account.withdrawn, account.refused),
            sorted(account.epochs.items()),
            logs,
            [[*_mark_fields(mark), row_bytes, refused] for mark, row_bytes, refused in marks],
            entries,
        ]
    )


def _state(who: Any, counts: Any, epochs: Any, logs: Any, marks: Any, entries: Any) -> Ledger:
    task, run, incarnation, next_, digest, last = who
    kept_from, ended, row_bytes, withdrawn, refused = counts
    account = Account(task, run, incarnation, next_, digest, last, kept_from, ended, dict(epochs))
    account.row_bytes, account.withdrawn, account.refused = row_bytes, withdrawn, refused
    account.merge(LogDelta(owner, epoch, sum(offset), logged) for owner, epoch, logged, *offset in logs)
    for mark_next, mark_digest, epoch, rollback, depends, at_bytes, at_refused in marks:
        account.marks.append(
            WithdrawPoint(mark_next, mark_digest, epoch, rollback, tuple((o, e, n) for o, e, n in depends))
        )
        account.mark_bytes.append(at_bytes)
        account.mark_refused.append(at_refused)
    ledger = Ledger(account)
    for first, end, body, left_out in entries:
        ledger.add(Entry(first, end, body, tuple(left_out)))
    return ledger
