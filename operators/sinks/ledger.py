"""What a journal of bundles says: the account of its task, and the rows that may be nowhere else yet.

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
from causal.log import LogDelta
from causal.ports import Bundle, Mark
from causal.values import decode, encode, encode_loosely
from operators.sinks.account import Account
from operators.sinks.bundle_told import told, understood

_STATE, _BUNDLE, _CLAIMED, _TRUNCATED, _WITHDRAWN = "state", "bundle", "claimed", "truncated", "withdrawn"


@dataclass(slots=True)
class Entry:
    """The rows of one bundle."""

    first: int
    next: int
    rows: bytes
    refused: tuple[int, ...] = ()
    batches: Any = None
    """The same rows as columns, where somebody has made them already."""


@dataclass(slots=True)
class Ledger:
    """An account and the entries behind it, as the records read so far make them."""

    account: Account
    entries: deque[Entry] = field(default_factory=deque)
    row_bytes: int = 0
    """Of the entries."""

    @classmethod
    def of(cls, records: Sequence[bytes], where: Path) -> Ledger:
        """What these records say.

        Raises:
            CorruptData: they are not those of a journal; names the file.
        """
        try:
            kind, *told = decode(records[0])
            invariant(kind == _STATE, "a journal begins with a state", kind=kind)
            ledger = _state(*told)
        except (CausalError, IndexError, TypeError, ValueError) as problem:
            raise CorruptData(f"{where} does not begin with a state ({problem}); restore the file") from None
        ledger.feed(records[1:], where)
        return ledger

    def feed(self, records: Iterable[bytes], where: Path) -> None:
        """Take further records, in their order."""
        for record in records:
            try:
                kind, *told = decode(record)
                _TAKERS[kind](self, *told)
            except (CausalError, KeyError, TypeError, ValueError) as problem:
                raise CorruptData(f"{where} holds a record that cannot be ({problem}); restore the file") from None

    @property
    def covered(self) -> int:
        """Rows below this position are never taken back."""
        return covered(self.account)

    def add(self, entry: Entry) -> None:
        """The account has taken these rows."""
        self.entries.append(entry)
        self.row_bytes += len(entry.rows)

    def shift(self) -> Entry:
        """The oldest entry, which somebody else has from now on."""
        entry = self.entries.popleft()
        self.row_bytes -= len(entry.rows)
        return entry

    def forget(self, position: int) -> None:
        """Rows below it are in files that are named."""
        while self.entries and self.entries[0].next <= position:
            self.shift()

    def _bundle(self, *told: Any) -> None:
        bundle = understood(told)
        # A bundle written again after a lost acknowledgement is never in the journal twice.
        invariant(self.account.take(bundle) is not None, "bundles of a journal differ", first=bundle.first)
        if bundle.count:
            self.add(entry_of(bundle))

    def _claimed(self, incarnation: int) -> None:
        self.account.incarnation = incarnation

    def _truncated(self, epoch: int) -> None:
        self.account.truncate(epoch)

    def _withdrawn(self, *told: Any) -> None:
        next_, digest, epoch, rollback, depends = told
        self.account.withdraw(Mark(next_, digest, epoch, rollback, tuple((o, e, n) for o, e, n in depends)))
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
    """Rows below it are never taken back: a complete checkpoint covers them, the job has ended, or nothing is lost."""
    return account.marks[0].next if account.marks and not account.ended else account.next


def bundle_record(bundle: Bundle) -> bytes:
    """A bundle that the account has taken."""
    return encode_loosely([_BUNDLE, *told(bundle)])


def claim_record(incarnation: int) -> bytes:
    """Every lower incarnation is fenced from here on."""
    return encode([_CLAIMED, incarnation])


def truncation_record(epoch: int) -> bytes:
    """Determinants of epochs below this one are forgotten."""
    return encode([_TRUNCATED, epoch])


def withdrawal_record(mark: Mark) -> bytes:
    """Rows behind the mark are taken back."""
    return encode([_WITHDRAWN, *_told(mark)])


def _told(mark: Mark) -> list[Any]:
    return [mark.next, mark.digest, mark.epoch, mark.rollback, [list(extent) for extent in mark.depends]]


def state_record(ledger: Ledger) -> bytes:
    """Everything: what a new journal begins with."""
    account = ledger.account
    logs = [(delta.task, delta.epoch, delta.bytes, delta.offset) for delta in account.held().logs]
    marks = zip(account.marks, account.mark_bytes, account.mark_refused, strict=True)
    entries = [(entry.first, entry.next, entry.rows, list(entry.refused)) for entry in ledger.entries]
    return encode(
        [
            _STATE,
            (account.task, account.run, account.incarnation, account.next, account.digest, account.last),
            (account.kept_from, account.ended, account.row_bytes, account.withdrawn, account.refused),
            sorted(account.epochs.items()),
            logs,
            [[*_told(mark), row_bytes, refused] for mark, row_bytes, refused in marks],
            entries,
        ]
    )


def _state(who: Any, counts: Any, epochs: Any, logs: Any, marks: Any, entries: Any) -> Ledger:
    task, run, incarnation, next_, digest, last = who
    kept_from, ended, row_bytes, withdrawn, refused = counts
    account = Account(task, run, incarnation, next_, digest, last, kept_from, ended, dict(epochs))
    account.row_bytes, account.withdrawn, account.refused = row_bytes, withdrawn, refused
    account.merge(LogDelta(owner, epoch, sum(offset), held) for owner, epoch, held, *offset in logs)
    for mark_next, mark_digest, epoch, rollback, depends, at_bytes, at_refused in marks:
        account.marks.append(Mark(mark_next, mark_digest, epoch, rollback, tuple((o, e, n) for o, e, n in depends)))
        account.mark_bytes.append(at_bytes)
        account.mark_refused.append(at_refused)
    ledger = Ledger(account)
    for first, end, body, left_out in entries:
        ledger.add(Entry(first, end, body, tuple(left_out)))
    return ledger
