"""Sinks for systems without transactions: a journal of ours says what was promised to them, and what they have taken.

A bundle is first appended to the journal, rows, determinants, position and all, in one write: from there on these rows
and no others will be delivered, whatever dies.  Then they go out, in order and in batches, and each batch that was
taken is noted.  The next process that opens the store delivers what a dead one left behind, from the journal, with the
same idempotency keys.  So nothing is lost or contradicted.  What was taken and could not be noted any more comes again
with the same key: each row is there exactly once if the other side honours keys, at least once if it does not.

`open` puts a new journal in the place of the old one, under a lock.  A zombie that wakes up finds its journal replaced
before the next batch; the batch that it was delivering may arrive late, once more, and with the same keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from causal.errors import CausalError, CorruptData, PipelineError, RowRefused, invariant
from causal.ports import Bundle, StoreState
from causal.records.values import decode, encode, encode_loosely
from operators.sinks.contract.account import Account, check_newest, fenced, fingerprint
from operators.sinks.contract.account_bytes import packed, unpacked
from operators.sinks.contract.bundle_codec import bundle_fields, bundle_of
from operators.sinks.contract.sink import lines_of
from operators.sinks.files.locked_journal import LockedJournal
from operators.sinks.storage.journal import sync_directory
from operators.sinks.storage.lock import outside

BUSY_MS = 2000
_STATE, _BUNDLE, _TAKEN = "state", "bundle", "taken"


class DeliveryRefused(CausalError):
    """The other side refuses a delivery of several rows and has taken none of them: it is delivered in halves."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery of rows of one sink task, in order; the same rows always come with the same positions."""

    run: str
    """The run of the job; kept by `--resume`."""
    task: str
    positions: Sequence[int]
    """The positions of the rows, ascending; without gaps but for rows that were refused."""
    lines: Sequence[str]
    """The rows as JSON."""

    @property
    def records(self) -> list[Any]:
        """The rows, from their JSON."""
        return list(map(json.loads, self.lines))

    @property
    def keys(self) -> list[str]:
        """The idempotency keys of the rows."""
        return [f"{self.run}/{self.task}/{position}" for position in self.positions]

    @property
    def key(self) -> str:
        """An idempotency key of the whole delivery."""
        return f"{self.run}/{self.task}/{self.positions[0]}-{self.positions[-1]}:{len(self.positions)}"

    def halves(self) -> tuple[Delivery, Delivery]:
        """The first rows, and the others."""
        middle = len(self.positions) // 2
        first = replace(self, positions=self.positions[:middle], lines=self.lines[:middle])
        return first, replace(self, positions=self.positions[middle:], lines=self.lines[middle:])


class OutwardStore:
    """The outside world of one sink task, and its journal.  One thread at a time.

    Args:
        directory: of the journals; its parent is there.
        carry: delivers, and returns when the other side has taken all of it.  It raises `Unavailable` where it may be
            tried again, `RowRefused` where nothing was taken because of rows that never will be, and `DeliveryRefused`
            where nothing was and it cannot say because of which row.
        let_go: called by `close`.
        batch_rows: the most rows of a delivery.
        sync: whether the journal is on the disk before rows go out.
    """

    def __init__(
        self,
        task: str,
        directory: Path,
        carry: Callable[[Delivery], None],
        let_go: Callable[[], None],
        batch_rows: int,
        sync: bool,
    ) -> None:
        self._task = task
        self._carry = carry
        self._let_go = let_go
        self._batch_rows = batch_rows
        self._directory = directory
        path = directory / f"{task.replace('/', '-')}.journal"
        self._journal = LockedJournal(task, path, directory / f".{path.stem}.lock", path, self._forget)
        self._journal.sync = sync
        self._run = ""
        self._incarnation = -1
        self._account: Account | None = None
        self._pending: Bundle | None = None
        """The bundle that is promised, and not known to have been taken as a whole."""
        self._taken = 0
        """The position below which rows have been taken."""

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`; what was promised and not taken is delivered first."""
        invariant(task == self._task, "a store is opened by the task it was made for", made_for=self._task, task=task)
        self.close()
        self._run, self._incarnation = run, incarnation
        try:
            with outside(self._directory):
                self._directory.mkdir(exist_ok=True)
                if self._journal.sync:
                    sync_directory(self._directory.parent)
            with self._journal.locked(BUSY_MS):
                self._account = account = self._claimed()
            with suppress(
                RowRefused
            ):  # reported when the bundle is written again, by `operators.sinks.contract.refusals`
                self._deliver()
            return account.store_state()
        except BaseException:
            self.close()
            raise

    def promised_bundle(self) -> Bundle | None:
        """The bundle that was promised and not taken as a whole; to be written again before any other."""
        return self._pending

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        with self._journal.locked(BUSY_MS):
            return self._current().store_state()

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`; of the rows of one bundle, those before a refused one stay delivered."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        with self._journal.locked(BUSY_MS):
            account = self._current()
            if self._journal.is_due():
                self._renew(account)
            if self._promised(account, bundle):
                self._journal.append(encode_loosely([_BUNDLE, *bundle_fields(bundle)]))
        self._deliver()

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`; the journal is rewritten, so it does not grow without bound."""
        if self._account is not None and epoch <= self._account.kept_from:
            return
        with self._journal.locked(BUSY_MS):
            account = self._current()
            if account.truncate(epoch):
                self._renew(account)

    def close(self) -> None:
        """Close the journal and the connection to the other side."""
        self._forget()
        self._journal.close()
        self._let_go()

    def _promised(self, account: Account, bundle: Bundle) -> bool:
        """Take the bundle; returns whether the journal lacks it: another one, or the last with more rows left out."""
        pending = self._pending
        if pending is not None and replace(pending, refused=()) == replace(bundle, refused=()):
            if pending.refused == bundle.refused:
                return False
            account.leave_out(pending, bundle)
        elif account.take(bundle) is None:
            return False
        else:
            owed = pending is not None and self._taken < pending.first + pending.count
            invariant(not owed, "a bundle is taken before the next one", task=self._task, first=bundle.first)
            self._taken = bundle.first
        self._pending = bundle
        return True

    def _deliver(self) -> None:
        """Deliver what is pending, a batch at a time, and note each."""
        pending = self._pending
        if pending is None:
            return
        numbered, kept = lines_of(pending)
        positions, lines = list(numbered), list(kept)
        due = [place for place, position in enumerate(positions) if position >= self._taken]
        for start in range(due[0] if due else len(positions), len(positions), self._batch_rows):
            stop = start + self._batch_rows
            self._bring(Delivery(self._run, self._task, positions[start:stop], lines[start:stop]))
        self._note(pending.first + pending.count)
        self._pending = None

    def _bring(self, delivery: Delivery) -> None:
        if not self._journal.is_ours(self._incarnation):
            raise fenced(self._task, self._incarnation)
        try:
            self._carry(delivery)
        except DeliveryRefused as problem:
            if len(delivery.positions) == 1:
                raise RowRefused(delivery.positions[0], " ".join(str(problem).split())) from problem
            for half in delivery.halves():
                self._bring(half)
            return
        self._note(delivery.positions[-1] + 1)

    def _note(self, taken: int) -> None:
        """Remember that all rows below that position have been taken."""
        if taken > self._taken:
            with self._journal.guarded():
                self._journal.append(encode([_TAKEN, taken]), lasting=False)
            self._taken = taken

    def _current(self) -> Account:
        """The account, if no younger process has put its journal in the place of ours."""
        ours = self._journal.is_ours(self._incarnation)
        if self._account is None or not ours:
            self._account = self._load()
        return self._account

    def _forget(self) -> None:
        self._account = None

    def _claimed(self) -> Account:
        """Fence every lower incarnation: a journal of this one takes the place of theirs."""
        if self._journal.is_there:
            account = self._load()
        else:
            account, self._pending, self._taken = Account(self._task, self._run, self._incarnation), None, 0
        account.incarnation = self._incarnation
        if self._pending is not None:
            self._pending = replace(self._pending, incarnation=self._incarnation)
            account.last = fingerprint(self._pending)
        self._renew(account)
        return account

    def _load(self) -> Account:
        """Read the journal and cut off its torn tail."""
        place = self._journal.path
        records = self._journal.read()
        try:
            entries = [decode(record) for record in records]
            account, pending, self._taken = _state(entries[0], self._task)
            check_newest(place, self._run, account.run)
            if account.run != self._run:
                raise PipelineError(
                    f"{place} holds rows that another run has promised; resume that run "
                    "(causal run PIPELINE.py --resume), or give another --state-dir"
                )
            if account.incarnation > self._incarnation:
                raise fenced(self._task, self._incarnation)
            self._pending = pending
            for kind, *fields in entries[1:]:
                if kind == _BUNDLE:
                    invariant(self._promised(account, bundle_of(fields)), "bundles of a journal differ", at=place)
                else:
                    (self._taken,) = fields
                    if self._pending is not None and self._taken == self._pending.first + self._pending.count:
                        self._pending = None
        except (IndexError, TypeError, ValueError) as problem:
            raise CorruptData(f"{place} holds a record that is none ({problem}); restore the file") from None
        self._journal.cut()
        return account

    def _renew(self, account: Account) -> None:
        """Put a journal with nothing but the state in the place of the one that is there."""
        self._journal.renew(encode(_state_fields(account, self._pending, self._taken)))


def _state_fields(account: Account, pending: Bundle | None, taken: int) -> list[Any]:
    return [_STATE, packed(account), None if pending is None else bundle_fields(pending), taken]


def _state(fields: Sequence[Any], task: str) -> tuple[Account, Bundle | None, int]:
    """The account, the pending bundle and the position up to which rows are taken, from a journal's first record."""
    _, account, owed, taken = fields
    return unpacked(task, account), None if owed is None else bundle_of(owed), taken
