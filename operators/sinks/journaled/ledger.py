"""The account of a sink task and its pending bundles, as derived from the records of a journal.

The first record is a state. It is followed by bundles, publications, cuts, claims of newer incarnations, truncations,
withdrawals and returns to savepoints, each of which takes effect once its record is complete. Nothing in this module
changes a file, so readers use it in the same way as the writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from causal.errors import CausalError, CorruptData, PipelineError, invariant
from causal.logs.log import LogDelta
from causal.ports import Bundle, WithdrawPoint
from causal.records.values import decode, encode, encode_loosely
from causal.storage.framing import bodies
from operators.sinks.contract.account import Account, packed, unpacked


def bundle_fields(bundle: Bundle) -> list[Any]:
    """Return the bundle as a list of plain values that `bundle_of` can read."""
    deltas = [[delta.task, delta.epoch, delta.offset, delta.bytes] for delta in bundle.logs]
    depends = None if bundle.depends is None else [list(extent) for extent in bundle.depends]
    refused = [list(row) for row in bundle.refused]
    placed = [bundle.first, bundle.count, bundle.rows, bundle.digest, bundle.epoch, bundle.incarnation]
    return [*placed, deltas, bundle.ended, depends, bundle.rollback, refused]


def bundle_of(fields: Sequence[Any]) -> Bundle:
    """Return the bundle that consists of these fields.

    Raises:
        TypeError, ValueError: the fields are not those of a bundle.
    """
    first, count, rows, digest, epoch, incarnation, deltas, ended, depends, rollback, refused = fields
    logs = tuple(LogDelta(*delta) for delta in deltas)
    on = None if depends is None else tuple((owner, at, extent) for owner, at, extent in depends)
    out = tuple((position, reason) for position, reason in refused)
    return Bundle(first, count, rows, digest, epoch, incarnation, logs, ended, on, rollback, out)


_STATE, _BUNDLE, _PUBLISHED, _CLAIMED, _TRUNCATED, _WITHDRAWN, _CUT, _RETURNED = (
    "ledger", "bundle", "published", "claimed", "truncated", "withdrawn", "cut", "returned",
)  # fmt: skip


@dataclass(slots=True)
class Entry:
    """A bundle whose rows are pending."""

    bundle: Bundle
    columns: Any = None
    """The rows as columns, if they have already been converted."""

    @property
    def first(self) -> int:
        """The position of the first row."""
        return self.bundle.first

    @property
    def next(self) -> int:
        """The position after the last row."""
        return self.bundle.first + self.bundle.count

    @property
    def refused(self) -> list[int]:
        """The positions whose rows were left out."""
        return [position for position, _ in self.bundle.refused]


@dataclass(slots=True)
class Ledger:
    """An account and its pending bundles, built from the records read so far."""

    account: Account
    entries: deque[Entry] = field(default_factory=deque)
    published: int = 0
    """The position below which no row is pending."""
    row_bytes: int = 0
    """The bytes of the pending rows."""
    reach: int = 0
    """The most bytes that the rows taken ever had since the state; rows that were withdrawn may not be cut off yet."""
    cuts: deque[tuple[int, int]] = field(default_factory=deque)
    """The (first, next) of pending rows that it is decided to publish together."""

    @classmethod
    def of(cls, records: Sequence[bytes], where: object) -> Ledger:
        """Return the ledger that these records describe.

        Raises:
            CorruptData: the records are not those of a journal; the message names the file.
            PipelineError: an earlier version of this package wrote the records.
        """
        try:
            kind, *fields = decode(records[0])
            if kind != _STATE:
                raise PipelineError(
                    f"{where} was written by an earlier version of this package; finish its job with that "
                    "version, then use another directory or empty this one"
                )
            task, account, published, pending = fields
            ledger = cls(unpacked(task, account), published=published)
            ledger.reach = ledger.account.row_bytes
            for bundle in pending:
                ledger._add(bundle_of(bundle))
        except PipelineError:
            raise
        except (CausalError, IndexError, TypeError, ValueError) as problem:
            raise CorruptData(f"{where} does not begin with a state ({problem}); restore the file") from None
        ledger.feed(records[1:], where)
        return ledger

    def feed(self, records: Iterable[bytes], where: object) -> None:
        """Read further records, in the order in which they were written."""
        for record in records:
            try:
                kind, *fields = decode(record)
                _TAKERS[kind](self, *fields)
            except (CausalError, KeyError, TypeError, ValueError) as problem:
                raise CorruptData(f"{where} has an invalid record ({problem}); restore the file") from None

    def take(self, bundle: Bundle) -> bool:
        """Accept a bundle, or a version of the pending bundle that leaves out more rows; return False if it is known.

        Raises: the same errors as `Account.take`.
        """
        pending = self.entries[-1].bundle if self.entries else None
        if pending is not None and pending.first == bundle.first:
            if pending == replace(bundle, incarnation=pending.incarnation):
                return False
            self.account.leave_out(pending, bundle)
            self.entries[-1] = Entry(bundle)
            return True
        if self.account.take(bundle) is None:
            return False
        self.reach = max(self.reach, self.account.row_bytes)
        if bundle.count:
            self._add(bundle)
        return True

    def _add(self, bundle: Bundle) -> None:
        self.entries.append(Entry(bundle))
        self.row_bytes += len(bundle.rows)

    def shift(self) -> Entry:
        """Remove the oldest entry and return it."""
        entry = self.entries.popleft()
        self.row_bytes -= len(entry.bundle.rows)
        return entry

    def publish(self, position: int) -> None:
        """Record that no rows below `position` are pending any longer."""
        self.published = max(self.published, position)
        while self.entries and self.entries[0].next <= position:
            self.shift()
        while self.cuts and self.cuts[0][1] <= position:
            self.cuts.popleft()

    def cut(self, position: int) -> None:
        """Record that all pending rows below `position` that are not yet in a cut are published together."""
        self.cuts.append((self.cuts[-1][1] if self.cuts else self.published, position))

    def withdraw(self, mark: WithdrawPoint) -> None:
        """Withdraw the rows after the mark; see `Account.withdraw`."""
        self.account.withdraw(mark)
        self.published = min(self.published, mark.next)
        while self.entries and self.entries[-1].next > mark.next:
            self.row_bytes -= len(self.entries.pop().bundle.rows)

    def return_to(self, next_: int, digest: int, row_bytes: int) -> None:
        """Withdraw the rows from position `next_` on; see `Account.return_to`."""
        self.published = min(self.published, next_)
        refused = self.account.refused
        while self.entries and self.entries[-1].next > next_:
            entry = self.entries.pop()
            self.row_bytes -= len(entry.bundle.rows)
            refused -= len(entry.refused)
        self.account.return_to(next_, digest, refused, row_bytes)

    def bytes_at(self, next_: int) -> int:
        """Return the bytes of all rows below `next_`, which is the end of a pending bundle or of the rows before."""
        return self.account.row_bytes - sum(len(each.bundle.rows) for each in self.entries if each.next > next_)

    def _bundle(self, *fields: Any) -> None:
        bundle = bundle_of(fields)
        # A bundle that is written again after a lost acknowledgement does not appear in the journal again.
        invariant(self.take(bundle), "bundles of a journal differ", first=bundle.first)

    def _claimed(self, incarnation: int) -> None:
        self.account.incarnation = incarnation

    def _truncated(self, epoch: int) -> None:
        self.account.truncate(epoch)

    def _withdrawn(self, next_: int, digest: int, epoch: int, rollback: int, depends: Any) -> None:
        self.withdraw(WithdrawPoint(next_, digest, epoch, rollback, tuple((o, e, n) for o, e, n in depends)))


_TAKERS = {
    _BUNDLE: Ledger._bundle,
    _PUBLISHED: Ledger.publish,
    _CUT: Ledger.cut,
    _CLAIMED: Ledger._claimed,
    _TRUNCATED: Ledger._truncated,
    _WITHDRAWN: Ledger._withdrawn,
    _RETURNED: Ledger.return_to,
}


def ledger_in(journal: Path) -> Ledger:
    """Return the ledger of a journal as it is now, without disturbing the journal's writer."""
    return Ledger.of(bodies(journal.read_bytes(), journal)[0], journal)


def covered(account: Account) -> int:
    """Return the position below which rows are never withdrawn.

    Rows are final if a checkpoint covers them, if the job has ended, or if no determinant can be lost.
    """
    return account.marks[0].next if account.marks and not account.ended else account.next


def state_record(ledger: Ledger) -> bytes:
    """Return the first record of a new journal, which contains the whole state."""
    account, pending = ledger.account, [bundle_fields(entry.bundle) for entry in ledger.entries]
    return encode([_STATE, account.task, packed(account), ledger.published, pending])


def bundle_record(bundle: Bundle) -> bytes:
    """Return the record of a bundle that the ledger has accepted."""
    return encode_loosely([_BUNDLE, *bundle_fields(bundle)])


def publication_record(position: int) -> bytes:
    """Return the record of a publication: no row below `position` is pending."""
    return encode([_PUBLISHED, position])


def cut_record(position: int) -> bytes:
    """Return the record of a cut: the pending rows below `position` are published together."""
    return encode([_CUT, position])


def claim_record(incarnation: int) -> bytes:
    """Return the record of a claim: all lower incarnations are fenced after it."""
    return encode([_CLAIMED, incarnation])


def truncation_record(epoch: int) -> bytes:
    """Return the record of a truncation: determinants of epochs below `epoch` are discarded."""
    return encode([_TRUNCATED, epoch])


def withdrawal_record(mark: WithdrawPoint) -> bytes:
    """Return the record of a withdrawal: rows after the mark are withdrawn."""
    depends = [list(extent) for extent in mark.depends]
    return encode([_WITHDRAWN, mark.next, mark.digest, mark.epoch, mark.rollback, depends])


def return_record(next_: int, digest: int, row_bytes: int) -> bytes:
    """Return the record of a return to a savepoint: rows from position `next_` on are withdrawn."""
    return encode([_RETURNED, next_, digest, row_bytes])
