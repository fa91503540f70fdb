"""The store of one sink task on top of a journal: the code that all stores in files on one host share.

A bundle is first appended to the journal with its rows, determinants, position and digest, in one write: this is the
atomic step. From then on, its rows are pending until the store has published them in its own form: lines in a file,
Parquet files, or deliveries. Publishing can be repeated: if a process dies, the next one that opens the store completes
it.

The journal is a file (`locked_journal`) or consists of objects in a shared store (`shared_journal`). `open` replaces
the old journal with a new one that contains its incarnation. A zombie that resumes notices this before its next step
takes effect, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from causal.errors import CausalError, PipelineError, fenced, invariant
from causal.ports import Bundle, WithdrawPoint
from causal.storage.journal import Journal
from causal.storage.lock import absent, outside
from operators.sinks.contract.account import Account, check_newest
from operators.sinks.contract.account_store import AccountStore, WithdrawingAccountStore
from operators.sinks.journaled.ledger import Ledger, bundle_record, return_record, state_record, withdrawal_record


class JournaledStore(AccountStore[None]):
    """The store of one sink task: a journal, and the data published from it. Only one thread may use it at a time.

    Args:
        place: the store's location as users know it, for error messages.
    """

    def __init__(self, task: str, journal: Journal, place: object) -> None:
        super().__init__(task, place)
        self._use(journal)
        self._expected = self._counted = False
        self._ledger: Ledger | None = None

    def _use(self, journal: Journal) -> None:
        """Use this journal from now on."""
        self._journal = journal
        journal.forget = self._forget

    def expect(self, counted: bool) -> None:
        """See `causal.ports.LastingStore.expect`."""
        self._expected, self._counted = True, counted

    # -- what a subclass provides ------------------------------------------------------------------------

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Claim the place for this run; the journal is claimed inside the context."""
        self._journal.prepare()
        yield

    def _begin(self) -> None:
        """Prepare for the task's first journal."""

    def _settle(self, ledger: Ledger) -> None:
        """Check the published data against a ledger that has just been read, and make the data agree with it."""

    def _fitted(self, ledger: Ledger, bundle: Bundle) -> Any:
        """Check a bundle's rows before the bundle is accepted; return them as columns, or None."""

    def _publish(self, ledger: Ledger) -> None:
        """Publish pending rows after a bundle was accepted; by default, rows are kept only in the journal."""
        ledger.publish(ledger.account.next)

    def _make_way(self, ledger: Ledger) -> None:
        """Rewrite the journal if it has grown too large."""
        if self._journal.is_due():
            self._renew(ledger)

    def _renew(self, ledger: Ledger) -> None:
        """Replace the existing journal with one that contains only the current state."""
        self._journal.renew(state_record(ledger))

    def _foreign(self) -> CausalError:
        """Return the error for a journal that an older run wrote."""
        return fenced(self._task, self._incarnation)

    def _release(self) -> None:
        """Release the journal and its files."""
        self._forget()
        self._journal.close()

    # -- the account in the journal ------------------------------------------------------------------------

    @contextmanager
    def _opening(self) -> Iterator[None]:
        with outside(self._place), self._room(), self._locked():
            yield

    def _asking(self, bundle: Bundle | None = None) -> AbstractContextManager[None]:
        return self._locked()

    def _locked(self) -> AbstractContextManager[None]:
        return self._journal.locked()

    def _forget(self) -> None:
        super()._forget()
        self._ledger = None

    def _claimed(self, session: None) -> Account:
        self._ledger = ledger = self._claim()
        return ledger.account

    def _owned(self, session: None) -> Account:
        return self._current().account

    def _taken(self, session: None, account: Account, bundle: Bundle) -> bool:
        ledger = self._read_ledger
        self._make_way(ledger)
        columns = self._fitted(ledger, bundle)
        if ledger.take(bundle):
            self._journal.append(bundle_record(bundle))
            if bundle.count:
                ledger.entries[-1].columns = columns
                self._publish(ledger)
        return True  # a repeated bundle needs no further check: `_owned` has already checked the owner

    def _truncated(self, session: None, account: Account, epoch: int) -> None:
        self._renew(self._read_ledger)  # otherwise, the journal would grow without bound

    @property
    def _read_ledger(self) -> Ledger:
        invariant(self._ledger is not None, "a ledger is read before a step", task=self._task)
        return self._ledger  # type: ignore[return-value]

    def _claim(self) -> Ledger:
        """Fence all lower incarnations, and return the ledger."""
        while self._journal.is_there:
            ledger = self._load()
            if self._journal.seize():
                ledger.account.incarnation = self._incarnation
                self._sign(ledger)
                return ledger
        self._check_counted()
        self._begin()
        ledger = Ledger(Account(self._task, self._run, self._incarnation))
        self._renew(ledger)
        return ledger

    def _check_there(self, proof: Path) -> None:
        """Raise `Unavailable` if the place should exist but the file `proof`, which every task creates, is missing."""
        if self._expected and not proof.exists():
            raise absent(self._place, self._journal.where)

    def _check_counted(self) -> None:
        """Raise `Unavailable` if the journal is missing although a checkpoint counts rows in it."""
        if self._counted and not self._journal.is_there:
            raise absent(self._place, self._journal.where)

    def _sign(self, ledger: Ledger) -> None:
        """Record this incarnation in the journal, which fences all lower ones."""
        self._renew(ledger)

    def _current(self) -> Ledger:
        """Return the ledger, unless a newer process has claimed the journal."""
        ours = self._journal.is_ours(self._incarnation)
        if self._ledger is None or not ours:
            self._forget()
            self._ledger = ledger = self._load()
            self._account = ledger.account
        return self._ledger

    def _load(self) -> Ledger:
        """Read the journal, publish rows that its writer left unpublished, and cut off an incomplete last record."""
        ledger = Ledger.of(self._journal.read(), self._journal.where)
        account = ledger.account
        if account.task != self._task:
            raise PipelineError(f"{self._place} belongs to sink task {account.task}; give the sinks different names")
        check_newest(self._place, self._run, account.run)
        if account.run != self._run:
            raise self._foreign()
        if account.incarnation > self._incarnation:
            raise fenced(self._task, self._incarnation)
        self._settle(ledger)
        self._publish(ledger)
        self._journal.cut()
        return ledger


class WithdrawingJournaledStore(WithdrawingAccountStore[None], JournaledStore):
    """A `JournaledStore` whose rows can be withdrawn."""

    def _taken_back(self, session: None, account: Account, mark: WithdrawPoint) -> None:
        self._retract(self._read_ledger, mark)

    def _retract(self, ledger: Ledger, mark: WithdrawPoint) -> None:
        """Withdraw the rows in the journal, which is the atomic step; the published data changes afterwards."""
        ledger.withdraw(mark)
        self._journal.append(withdrawal_record(mark))

    def _returned(self, session: None, account: Account, next_: int, digest: int) -> None:
        self._go_back(self._read_ledger, next_, digest)

    def _go_back(self, ledger: Ledger, next_: int, digest: int) -> None:
        """Withdraw the rows from `next_` on in the journal, which is the atomic step, as for `_retract`."""
        row_bytes = self._bytes_at(ledger, next_)
        ledger.return_to(next_, digest, row_bytes)
        self._journal.append(return_record(next_, digest, row_bytes))

    def _bytes_at(self, ledger: Ledger, next_: int) -> int:
        """Return the bytes of all rows below `next_`; by default, the bundles after it are still pending."""
        return ledger.bytes_at(next_)
