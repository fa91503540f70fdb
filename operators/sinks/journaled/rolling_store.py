"""A journaled store whose rows wait for others that go to the same file or object, which never changes.

Rows that may still be withdrawn (below full sharing depth) do not become visible: that could not be undone.
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
    """The outside world of one sink task, in a journal and what many bundles of it are published as."""

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`; rows that have waited for long enough are published."""
        if self._ledger is not None and epoch <= self._ledger.account.kept_from and not self._due(self._ledger):
            return
        with self._locked():
            ledger = self._current()
            if ledger.account.truncate(epoch):
                self._journal.append(truncation_record(epoch))
            self._make_way(ledger)

    def publish(self, uncovered: bool = False) -> None:
        """Publish all rows of the journal.

        Args:
            uncovered: also those that could be withdrawn if the job were resumed; only after it ended permanently.
        """
        with self._locked():
            ledger = self._current()
            self._publish_below(ledger, ledger.account.next if uncovered else covered(ledger.account))

    def close(self) -> None:
        """Publish rows as far as that can be done, and close; rows that stay in the journal are not lost."""
        if self._ledger is not None:
            with suppress(Fenced, Unavailable, CorruptData):
                self.publish()
        self._release()

    # -- what a store of its own kind adds -------------------------------------------------------------------

    @abstractmethod
    def _due(self, ledger: Ledger) -> bool:
        """Return whether rows have waited for long enough."""

    @abstractmethod
    def _published(self, ledger: Ledger) -> int:
        """Return the position below which all rows are published."""

    @abstractmethod
    def _publish_below(self, ledger: Ledger, below: int) -> None:
        """Publish the rows below that position, as far as none with others after it are published with them."""

    # -- what it changes of a journaled store ----------------------------------------------------------------

    def _publish(self, ledger: Ledger) -> None:
        """Do nothing: rows wait for others."""

    def _retract(self, ledger: Ledger, mark: WithdrawPoint) -> None:
        if self._published(ledger) > mark.next:
            raise PipelineError(
                f"{self._place}: rows from {mark.next} on would have to be withdrawn, but were published as rows of a "
                "job that has ended; start a new run elsewhere"
            )
        super()._retract(ledger, mark)


def publish_all(accounts: Iterable[Account], store_of: Callable[[str], RollingStore], ended: bool) -> None:
    """Publish all rows that wait in the journals of these accounts: for a job whose end came by `kill -9`.

    Args:
        store_of: makes the store of a task.
        ended: the job will not be resumed, so rows that could be withdrawn (below full sharing depth) become final.
    """
    for account in accounts:
        store = store_of(account.task)
        store.open(account.task, account.run, account.incarnation)  # as the process that had it last
        try:
            store.publish(uncovered=ended)
        finally:
            store.close()
