"""Rows that wait for a checkpoint, in memory that survives every crash (guarantee `epoch`).

What was staged and not made durable is lost when everything dies together, as with the power of a host.  Each step of
a commit is a write of its own, so a death finds it half done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from causal.errors import fenced
from causal.ports import Bundle, StoreState
from tests.simulation.peers import Store, Violated

BUNDLES_PER_STEP = 3


class StagedRows:
    """The rows that one sink task has staged in front of its store.

    Args:
        durable: the epoch of the last checkpoint that is complete, as the observer knows it.
    """

    def __init__(self, store: Store, durable: Callable[[], int]) -> None:
        self._store = store
        self._durable = durable
        self._owner = 0
        self._bundles: list[Bundle] = []
        self._synced = 0
        self._visible = 0
        """Position after the last row that is visible, as this run knows it: a newer run may have the store by now."""

    @property
    def next(self) -> int:
        """Position after the last row, staged or visible."""
        last = self._bundles[-1] if self._bundles else None
        return self._visible if last is None else last.first + last.count

    def next_at(self, epoch: int) -> int:
        """Position after the last row of the epochs below `epoch`."""
        ends = [bundle.first + bundle.count for bundle in self._bundles if bundle.epoch < epoch]
        return max(ends, default=self._visible)

    def open(self, incarnation: int) -> None:
        if incarnation < self._owner:
            raise fenced(self._store.task, incarnation)
        self._owner = incarnation
        self._visible = self._store.open(incarnation).next

    def write(self, bundle: Bundle) -> None:
        self._fence(bundle.incarnation)
        if bundle.first != self.next:
            raise Violated(f"staged: a bundle of {self._store.task} begins at {bundle.first}, not at {self.next}")
        self._bundles.append(bundle)

    def stage(self, epoch: int, incarnation: int) -> None:
        self._fence(incarnation)
        self._synced = len(self._bundles)

    def commit(self, epoch: int, incarnation: int) -> bool:
        """One step; true while more is left."""
        self._fence(incarnation)
        due = [bundle for bundle in self._bundles if bundle.epoch < epoch][:BUNDLES_PER_STEP]
        if not due:
            self._store.truncate(epoch, incarnation)
            return False
        if due[-1].epoch >= self._durable():
            raise Violated(
                f"visible too early: rows of epoch {due[-1].epoch} of {self._store.task}, checkpoint "
                f"{self._durable()} is the last complete one"
            )
        rows, count = b"".join(bundle.rows for bundle in due), sum(bundle.count for bundle in due)
        merged = replace(due[-1], first=due[0].first, count=count, rows=rows, incarnation=incarnation)
        self._store.write(merged)
        self._visible = merged.first + merged.count
        del self._bundles[: len(due)]
        self._synced = max(0, self._synced - len(due))
        return True

    def discard(self, epoch: int, incarnation: int) -> StoreState:
        self._fence(incarnation)
        self._bundles = [bundle for bundle in self._bundles if bundle.epoch < epoch]
        self._synced = min(self._synced, len(self._bundles))
        last, state = (self._bundles[-1] if self._bundles else None), self._store.account.store_state()
        return state if last is None else StoreState(last.first + last.count, last.digest, ())

    def lose_power(self) -> None:
        """Lose what was not made durable."""
        del self._bundles[self._synced :]

    def _fence(self, incarnation: int) -> None:
        if incarnation != self._owner:
            raise fenced(self._store.task, incarnation)
