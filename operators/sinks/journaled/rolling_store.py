"""A journaled store that collects rows until they fill a file or an object, which then never changes.

Rows that may still be withdrawn (below full sharing depth) do not become visible, because this could not be undone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress

from causal.errors import CorruptData, Fenced, PipelineError, Unavailable
from causal.ports import WithdrawPoint
from operators.sinks.contract.account import Account
from operators.sinks.journaled.journaled_store import WithdrawingJournaledStore
from operators.sinks.journaled.ledger import Ledger, covered, truncation_record


class RollingStore(WithdrawingJournaledStore, ABC):
    """The store of one sink task: a journal, and files or objects that each contain the rows of many bundles."""

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`; also publishes rows that have waited long enough."""
        if self._ledger is not None and epoch <= self._ledger.account.kept_from and not self._due(self._ledger):
            return
        with self._locked():
            ledger = self._current()
            if ledger.account.truncate(epoch):
                self._journal.append(truncation_record(epoch))
            self._make_way(ledger)

    def limit(self, rows: int) -> str:
        """See `causal.ports.ReturningStore.limit`."""
        return "withdraws only rows that are in no published file yet"

    def publish(self, uncovered: bool = False) -> None:
        """Publish all rows in the journal.

        Args:
            uncovered: whether to include rows that could be withdrawn if the job were resumed; set this only after the
                job has ended permanently.
        """
        with self._locked():
            ledger = self._current()
            self._publish_below(ledger, ledger.account.next if uncovered else covered(ledger.account))

    def close(self) -> None:
        """Publish as many rows as possible, and close the store; rows that remain in the journal are not lost."""
        if self._ledger is not None:
            with suppress(Fenced, Unavailable, CorruptData):
                self.publish()
        self._release()

    # -- what a subclass provides ------------------------------------------------------------------------------

    @abstractmethod
    def _due(self, ledger: Ledger) -> bool:
        """Return whether rows have waited long enough to be published."""

    @abstractmethod
    def _published(self, ledger: Ledger) -> int:
        """Return the position below which all rows have been published."""

    @abstractmethod
    def _publish_below(self, ledger: Ledger, below: int) -> None:
        """Publish the rows below the given position, except rows that must be published together with later ones."""

    # -- changes to the journaled store ----------------------------------------------------------------------------

    def _publish(self, ledger: Ledger) -> None:
        """Do nothing: rows are collected and published later."""

    def _retract(self, ledger: Ledger, mark: WithdrawPoint) -> None:
        if self._published(ledger) > mark.next:
            raise PipelineError(
                f"{self._place}: rows from {mark.next} on would have to be withdrawn, but were published as rows of a "
                "job that has ended; start a new run elsewhere"
            )
        super()._retract(ledger, mark)

    def _obstacle(self, session: None, account: Account, next_: int) -> str:
        published = self._published(self._read_ledger)
        if published <= next_:
            return ""
        return f"cannot withdraw {published - next_:,} rows, because they are in published files"

    def _go_back(self, ledger: Ledger, next_: int, digest: int) -> None:
        if reason := self._obstacle(None, ledger.account, next_):
            raise PipelineError(f"{self._place} {reason}; start a new run elsewhere")
        super()._go_back(ledger, next_, digest)


def publish_all(accounts: Iterable[Account], store_of: Callable[[str], RollingStore], ended: bool) -> None:
    """Publish all rows that are waiting in the journals of these accounts, for a job that was ended by `kill -9`.

    Args:
        store_of: creates the store of a task.
        ended: whether the job will not be resumed, so that rows that could be withdrawn (below full sharing depth)
            become final.
    """
    for account in accounts:
        store = store_of(account.task)
        store.open(account.task, account.run, account.incarnation)  # opened with the incarnation that last owned it
        try:
            store.publish(uncovered=ended)
        finally:
            store.close()
