"""The store of one sink task in a database: what all databases do alike, whatever their statements are.

What was asked and not answered may still happen in the database.  Each change names the account that it follows, so it
happens once or not at all, and after any error the account is read again, behind whatever is under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from causal.errors import DeterminantsLost, Unavailable, invariant
from causal.ports import Bundle, StoreState, WithdrawPoint
from operators.sinks.contract.account import Account, check_newest, fenced
from operators.sinks.databases.database import Before, Database


class DatabaseStore:
    """A store without `withdraw`, for a database that cannot take rows back.  One thread at a time."""

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        self._task = database.task
        self._run = ""
        self._incarnation = -1
        self._account: Account | None = None
        """The stored account; None where it is to be read again."""
        self._acknowledged = 0

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`; raises `PipelineError` also for tables that are not fit."""
        invariant(task == self._task, "a store is opened by the task it was made for", made_for=self._task, task=task)
        self.close()
        self._run, self._incarnation = run, incarnation
        try:
            with self._step():
                account = self._database.claim(run, incarnation)
        except BaseException:
            self.close()
            raise
        self._account, self._acknowledged = account, account.next
        return account.store_state()

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        with self._step():
            return self._read().store_state()

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`."""
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        with self._step():
            account = self._current()
            before = _before(account)
            fresh = account.take(bundle)
            if fresh is None:
                self._read()
                return
            self._check_changed(self._database.append(before, account, fresh, bundle))
        self._acknowledged = account.next

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`."""
        if self._account is not None and epoch <= self._account.kept_from:
            return
        with self._step():
            account = self._current()
            if account.truncate(epoch):
                self._check_changed(self._database.truncate(account))

    def close(self) -> None:
        """Close the connection; what was written stays."""
        self._run, self._account = "", None
        self._database.close()

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Surround one call; after any error the account is read again."""
        if not self._run:
            raise Unavailable(f"the store of sink task {self._task} is not open; open it first")
        try:
            with self._database.step():
                yield
        except BaseException:
            self._account = None
            raise

    def _current(self) -> Account:
        """The account in memory, or read again after a failure; never one of a younger incarnation."""
        return self._account if self._account is not None else self._read()

    def _read(self) -> Account:
        """Read the account.

        Raises:
            Fenced: another process has taken this one's place.
            DeterminantsLost: the database has less than it acknowledged.
        """
        database = self._database
        account = database.load()
        if account is None or account.run != self._run:
            check_newest(database.output, self._run, database.newest_run())
        if account is not None:
            account.fence(self._run, self._incarnation)
        at = 0 if account is None else account.next
        if at < self._acknowledged:
            raise DeterminantsLost(
                f"{database.place}: rows of {self._task} up to {self._acknowledged} were acknowledged, and it has "
                f"rows up to {at}: {database.lost}; bring them back, or resume (--resume): they come again, perhaps "
                "in another order"
            )
        if account is None:
            raise fenced(self._task, self._incarnation)
        self._account = account
        return account

    def _check_changed(self, changed: bool) -> None:
        """Raise the reason why a change was not made: another writer, or an earlier try that was made after all."""
        if not changed:
            self._read()
            raise Unavailable(f"{self._database.place}: an earlier try of the same was still under way; retry")


class WithdrawingDatabaseStore(DatabaseStore):
    """A store for a database that knows the task and the position of each row, so that they can be taken back."""

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.WithdrawingStore.withdraw`."""
        with self._step():
            account = self._current()
            before = _before(account)
            account.withdraw(mark)
            self._check_changed(self._database.withdraw(before, account))
        self._acknowledged = account.next
        return account.store_state()


def _before(account: Account) -> Before:
    return Before(account.next, account.last, len(account.marks))
