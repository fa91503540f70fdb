"""The account that a store keeps of one sink task, and the rules by which every store accepts bundles (D8).

This module is pure: it uses no file and no database. A store loads an `Account`, asks it to accept a bundle, and makes
exactly the resulting account durable in one atomic step. If that step fails, the store discards the account and loads
it again, so that the account in memory is never ahead of the stored one. A store that appends keeps an account as
numbers and parts; a store that rewrites the whole account keeps it as bytes (`packed`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import lt

from xxhash import xxh3_128

from causal.channels.sink_channel import depended, truncated
from causal.errors import CausalError, CorruptData, PipelineError, Superseded, fenced, invariant
from causal.logs.log import DeterminantLog, LogDelta
from causal.ports import Bundle, StoreState, WithdrawPoint
from causal.records.values import decode, encode, encode_loosely
from causal.runs import start_of
from operators.records.seconds import seconds_of


def fingerprint(bundle: Bundle) -> bytes:
    """Return 16 bytes that identify a bundle, so that a bundle whose acknowledgement was lost can be recognised."""
    logs = [[delta.task, delta.epoch, delta.offset, delta.bytes] for delta in bundle.logs]
    fields = [bundle.first, bundle.count, bundle.digest, bundle.epoch, bundle.incarnation, logs, bundle.ended]
    if bundle.depends is not None:
        fields += [[list(extent) for extent in bundle.depends], bundle.rollback]
    if bundle.refused:
        fields.append({"refused": [list(row) for row in bundle.refused]})
    # All values are plain, and a stricter encoder would slow down every bundle.
    hashed = xxh3_128(encode_loosely(fields))
    hashed.update(bundle.rows)
    return hashed.digest()


@dataclass(slots=True)
class Account:
    """The position, digest, incarnation and determinants of one sink task, as kept by its store."""

    task: str
    run: str
    incarnation: int
    next: int = 0
    digest: int = 0
    last: bytes = b""
    """The `fingerprint` of the bundle taken last."""
    kept_from: int = 0
    """The epoch below which determinants are forgotten permanently."""
    ended: bool = False
    epochs: dict[int, int] = field(default_factory=dict)
    """The position of the first row of each epoch that no complete checkpoint covers."""
    logs: dict[int, DeterminantLog] = field(default_factory=dict)
    row_bytes: int = 0
    """The bytes of all rows taken."""
    withdrawn: int = 0
    """The number of rows ever taken back."""
    marks: list[WithdrawPoint] = field(default_factory=list)
    """The points that rows can be taken back to; empty where bundles come without dependencies."""
    mark_bytes: list[int] = field(default_factory=list)
    """The `row_bytes` at each mark."""
    refused: int = 0
    """The number of rows below `next` that were left out."""
    mark_refused: list[int] = field(default_factory=list)
    """The `refused` at each mark."""

    def take(self, bundle: Bundle) -> tuple[LogDelta, ...] | None:
        """Account for `bundle`, and return the log bytes that are new, or None if it is the last bundle again.

        Raises:
            InvariantViolation: the bundle does not begin at the next position, or its sizes do not agree.
            PeerViolation: a delta leaves a gap or contradicts the held determinants. The account is then unusable and
                must be discarded.
        State: everything changes unless the result is None.
        """
        mark = fingerprint(bundle)
        if mark == self.last and bundle.first + bundle.count == self.next:
            return None
        facts = {"task": self.task, "first": bundle.first, "count": bundle.count, "next": self.next}
        invariant(bundle.first == self.next, "a bundle begins where the last one ended", **facts)
        invariant(bundle.count >= 0 and bool(bundle.count) == bool(bundle.rows), "rows and their count agree", **facts)
        invariant(not (self.ended and bundle.count), "no rows follow the end", **facts)
        invariant(0 <= bundle.digest < 1 << 64, "a digest has 64 bits", task=self.task, digest=bundle.digest)
        out = [bundle.first - 1, *(position for position, _ in bundle.refused), bundle.first + bundle.count]
        invariant(all(map(lt, out, out[1:])), "refused rows are of the bundle, ascending", **facts)
        fresh = self.merge(bundle.logs)
        if bundle.epoch >= self.kept_from:
            self.epochs.setdefault(bundle.epoch, bundle.first)
        if bundle.depends is not None and not self.marks:
            self._mark(WithdrawPoint(self.next, self.digest, bundle.epoch, bundle.rollback, ()))
        self.next += bundle.count
        self.row_bytes += len(bundle.rows)
        self.refused += len(bundle.refused)
        self.digest, self.last, self.ended = bundle.digest, mark, self.ended or bundle.ended
        if bundle.depends is not None:
            self._mark(WithdrawPoint(self.next, self.digest, bundle.epoch, bundle.rollback, bundle.depends))
        return fresh

    def _mark(self, mark: WithdrawPoint) -> None:
        self.marks.append(mark)
        self.mark_bytes.append(self.row_bytes)
        self.mark_refused.append(self.refused)

    def leave_out(self, before: Bundle, bundle: Bundle) -> None:
        """Replace the last bundle, `before`, with one that leaves out more rows, possibly from another incarnation."""
        again = replace(before, refused=bundle.refused, incarnation=bundle.incarnation)
        same = self.last == fingerprint(before) and again == bundle
        invariant(same, "only the last bundle can be taken otherwise", task=self.task, first=bundle.first)
        self.refused += len(bundle.refused) - len(before.refused)
        self.last = fingerprint(bundle)
        if bundle.depends is not None:
            self.mark_refused[-1] = self.refused

    def withdraw(self, mark: WithdrawPoint) -> None:
        """Withdraw all bundles after `mark`, together with the determinants that arrived with them."""
        invariant(mark in self.marks, "rows are taken back to a mark of the store", task=self.task, next=mark.next)
        while self.marks[-1] != mark:
            self.marks.pop()
            self.mark_bytes.pop()
            self.mark_refused.pop()
        if len(self.marks) == 1:
            self.marks = [replace(mark, depends=())]
        self.withdrawn += self.next - mark.next
        self.next, self.digest, self.row_bytes = mark.next, mark.digest, self.mark_bytes[-1]
        self.refused = self.mark_refused[-1]
        self.last, self.ended = b"", False
        self.epochs = {e: first for e, first in self.epochs.items() if first < mark.next}
        stands = depended(self.marks)
        for log in self.logs.values():
            log.cut({epoch: extent for (task, epoch), extent in stands.items() if task == log.task})

    def check_return(self, next_: int, digest: int) -> None:
        """Raise `InvariantViolation` unless the account can have been at this position with this digest."""
        invariant(0 <= next_ <= self.next, "a store returns to a position that it had", task=self.task, next=next_)
        invariant(next_ < self.next or digest == self.digest, "rows that stay are the same", task=self.task, next=next_)

    def return_to(self, next_: int, digest: int, refused: int, row_bytes: int) -> None:
        """Withdraw all rows from position `next_` on, whichever checkpoints cover them, and everything about epochs.

        The job continues with epochs that are higher than any before, so `kept_from` remains valid.

        Args:
            digest: the rolling digest of the rows below `next_`.
            refused, row_bytes: the values of the attributes at `next_`.
        """
        self.check_return(next_, digest)
        self.withdrawn += self.next - next_
        self.next, self.digest, self.refused, self.row_bytes = next_, digest, refused, row_bytes
        self.last, self.ended = b"", False
        self.epochs, self.logs = {}, {}
        self.marks, self.mark_bytes, self.mark_refused = [], [], []

    def merge(self, deltas: Iterable[LogDelta]) -> tuple[LogDelta, ...]:
        """Store determinants, and return only new ones, as deltas that each begin where the stored log ended."""
        fresh = []
        for delta in deltas:
            log = self.logs.get(delta.task)
            if log is None:
                log = self.logs[delta.task] = DeterminantLog(delta.task, self.kept_from)
            taken = log.merge(delta)
            if taken and not delta.bytes:  # the earlier bytes are stable, and will never arrive here
                fresh.append(delta)
            elif taken:
                start = log.extent(delta.epoch) - taken
                fresh.append(LogDelta(delta.task, delta.epoch, start, delta.bytes[len(delta.bytes) - taken :]))
        return tuple(fresh)

    def truncate(self, epoch: int) -> bool:
        """Discard the determinants and starts of epochs below `epoch`; return False if there was nothing to discard."""
        if epoch <= self.kept_from:
            return False
        self.kept_from = epoch
        self.epochs = {e: first for e, first in self.epochs.items() if e >= epoch}
        for log in self.logs.values():
            log.truncate(epoch)
        self.marks = truncated(self.marks, epoch)
        if self.marks and self.marks[-1].epoch < epoch and self.marks[-1].next < self.next:
            self.marks = []  # rows written before an upgrade have no dependencies and cannot be withdrawn
        self.mark_bytes = self.mark_bytes[len(self.mark_bytes) - len(self.marks) :]
        self.mark_refused = self.mark_refused[len(self.mark_refused) - len(self.marks) :]
        return True

    def store_state(self) -> StoreState:
        """Return the state that `SinkStore.open` returns, with the whole logs ordered by task and epoch."""
        whole = tuple(delta for task in sorted(self.logs) for delta in self.logs[task].whole())
        return StoreState(self.next, self.digest, whole, tuple(self.marks), self.withdrawn, self.refused)

    def fence(self, run: str, incarnation: int) -> None:
        """Raise `Fenced` unless this account still belongs to the given incarnation of the given run.

        Raises:
            Superseded: the account belongs to a newer run.
        """
        check_newest(f"the store of sink task {self.task}", run, self.run)
        if (self.run, self.incarnation) != (run, incarnation):
            raise fenced(self.task, incarnation)


def shown(run: str) -> str:
    """Return a run's identity and, if known, its start time, for messages."""
    start = start_of(run)
    if not start:
        return run
    return f"{run} (started {datetime.fromtimestamp(seconds_of(start), UTC):%Y-%m-%d %H:%M:%S} UTC)"


def check_newest(place: object, run: str, *others: str | None) -> None:
    """Raise `Superseded` if any of the other runs that have started writing at `place` is newer than `run` (D15)."""
    newest = max([other for other in others if other], default="")
    if newest > run:
        raise Superseded(
            f"{place} belongs to a newer run, {shown(newest)}, which has started writing there; this run, "
            f"{shown(run)}, must neither write there again nor be resumed: give one of the two runs another "
            "path and restart that run"
        )


def foreign_rows(place: object, sink: str) -> PipelineError:
    """Return the error for a store that contains rows of another run."""
    return PipelineError(
        f"{place} holds rows of another run; resume that run if it has not ended "
        f'(causal run PIPELINE.py --resume), use another path, or empty this one with {sink}(…, existing="replace")'
    )


LOG, MARK = 0, 1
Part = tuple[int, int, bytes]
"""A part (LOG or MARK, epoch, body)."""


def log_parts(deltas: Iterable[LogDelta]) -> list[Part]:
    """Return one part per epoch, so that later deltas can be appended without changing stored parts."""
    by_epoch: dict[int, list[list[object]]] = {}
    for delta in deltas:  # lists, because encoding a tuple in MessagePack takes five times as long
        by_epoch.setdefault(delta.epoch, []).append([delta.task, delta.offset, delta.bytes])
    return [(LOG, epoch, encode_loosely(entries)) for epoch, entries in by_epoch.items()]


def mark_parts(account: Account, start: int) -> list[Part]:
    """Return the account's marks, beginning with index `start`, as parts."""
    return [
        (MARK, mark.epoch, encode([mark.next, mark.digest, mark.rollback, mark.depends, refused]))
        for mark, refused in zip(account.marks[start:], account.mark_refused[start:], strict=True)
    ]


def take_part(account: Account, kind: int, epoch: int, body: bytes) -> None:
    """Add a stored part to the account; parts must be added in the order in which they were stored.

    Raises:
        CausalError, TypeError, ValueError: `body` is not a valid part.
    """
    if kind == LOG:
        account.merge(LogDelta(owner, epoch, start, bytes_) for owner, start, bytes_ in decode(body))
        return
    next_, digest, rollback, depends, refused = decode(body)
    extents = tuple((owner, at, extent) for owner, at, extent in depends)
    account.marks.append(WithdrawPoint(next_, digest, epoch, rollback, extents))
    account.mark_bytes.append(0)
    account.mark_refused.append(refused)


def packed(account: Account) -> bytes:
    """Return the account as bytes that `unpacked` can read."""
    numbers = [account.run, account.incarnation, account.next, account.digest, account.last, account.kept_from]
    more = [account.ended, account.row_bytes, account.withdrawn, account.refused]
    parts = [*log_parts(account.store_state().logs), *mark_parts(account, 0)]
    return encode([[*numbers, *more], sorted(account.epochs.items()), parts, account.mark_bytes])


def unpacked(task: str, body: bytes) -> Account:
    """Return the account of `task` from bytes that `packed` returned.

    Raises:
        CorruptData: `body` is not a valid account.
    """
    try:
        (*numbers, ended, row_bytes, withdrawn, refused), epochs, parts, mark_bytes = decode(body)
        account = Account(task, *numbers)
        account.ended, account.epochs, account.row_bytes = ended, dict(epochs), row_bytes
        account.withdrawn, account.refused = withdrawn, refused
        for kind, epoch, part in parts:
            take_part(account, kind, epoch, part)
        account.mark_bytes = mark_bytes
    except (CausalError, TypeError, ValueError) as problem:
        raise CorruptData(f"the stored account of sink task {task} is invalid: {problem}; restore it") from None
    return account
