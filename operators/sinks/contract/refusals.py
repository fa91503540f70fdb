"""The treatment of rows that a store will never accept: the job ends with an error, or the row is set aside.

`refusing` wraps any store. To set a row aside, it first keeps the row's letter where no reader sees it, and then writes
the bundle without the row. In the same step, the store records that the row was left out. The row's position is still
counted, so that a replay, which regenerates the row, matches. Finally the letter is shown, exactly once, whichever
process dies (`operators.sinks.contract.letters`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

from causal.errors import OperatorFailed, RowRefused, invariant
from causal.ports import (
    Bundle,
    LastingStore,
    PreparedStore,
    ReturningStore,
    SinkStore,
    StoreState,
    WithdrawingStore,
    WithdrawPoint,
)
from causal.shell.outage import progressed
from operators.sinks.contract.letters import Kept, Letters, letter_of
from operators.sinks.contract.sink import Sink, encode_json

SHOWN_MAX = 200
NEVER = "cannot withdraw rows"
"""The limit of a store that is no `causal.ports.ReturningStore`."""


@runtime_checkable
class PromisingStore(Protocol):
    """A store that records a bundle before the outside world has accepted its rows."""

    def promised_bundle(self) -> Bundle | None:
        """Return the recorded bundle that was not delivered completely and must be written again, or None."""
        ...


def obstacle(store: SinkStore, next_: int) -> str:
    """Return why a store cannot return to a position, as a clause; see `causal.ports.ReturningStore.obstacle`."""
    return store.obstacle(next_) if isinstance(store, ReturningStore) else NEVER


def limit_of(store: SinkStore, rows: int) -> str:
    """Return why a store cannot withdraw its last rows, as a clause; see `causal.ports.ReturningStore.limit`."""
    return store.limit(rows) if isinstance(store, ReturningStore) else NEVER


class RefusingStore:
    """A store that stops the job at a refused row, or sets the row aside.

    State: `refused` is the total number of rows that the store has left out below its position.
    """

    def __init__(self, inner: SinkStore, sink: Sink, name: str, task: str, letters: Letters | None) -> None:
        self.refused = 0
        self._inner = inner
        self._sink = sink
        self._name = name
        self._task = task
        self._letters = letters
        self._run, self._incarnation = "", 0
        self._of: tuple[int, int, int] | None = None
        self._out: dict[int, str] = {}
        """The rows that are left out of the bundle of `_of`, which may come again without the same ones."""
        self._kept = 0
        """The number of these whose letters are kept, and not shown yet."""

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`."""
        self._run, self._incarnation = run, incarnation
        state = self._settled(self._inner.open(task, run, incarnation), incarnation)
        pending = self._inner.promised_bundle() if isinstance(self._inner, PromisingStore) else None
        if pending is None:
            return state
        self.write(pending)
        return self._noted(self._inner.last_bundle())

    def prepare(self) -> None:
        """See `causal.ports.PreparedStore.prepare`."""
        if isinstance(self._inner, PreparedStore):
            self._inner.prepare()

    def expect(self, counted: bool) -> None:
        """See `causal.ports.LastingStore.expect`."""
        if isinstance(self._inner, LastingStore):
            self._inner.expect(counted)

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`."""
        return self._noted(self._inner.last_bundle())

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`.

        Raises:
            OperatorFailed: the store refuses a row, and the job is configured to stop at refused rows.
        """
        this = (bundle.first, bundle.count, bundle.digest)
        if self._of != this:
            if self._kept:
                self._settled(self._inner.last_bundle(), bundle.incarnation)
            self._of, self._out = this, dict(bundle.refused)
        while True:
            try:
                self._inner.write(replace(bundle, refused=tuple(sorted(self._out.items()))) if self._out else bundle)
            except RowRefused as refused:
                self._set_aside(bundle, {p: reason for p, reason in refused.rows if p not in self._out})
                continue
            if self._kept and self._letters is not None:
                self._letters.show(bundle.incarnation)
            self.refused += self._kept
            self._of, self._out, self._kept = None, {}, 0
            return

    def _set_aside(self, bundle: Bundle, fresh: Mapping[int, str]) -> None:
        facts = {"task": self._task, "first": bundle.first, "count": bundle.count, "refused": sorted(fresh)}
        invariant(fresh, "a store does not refuse a row that is left out", **facts)
        invariant(all(0 <= p - bundle.first < bundle.count for p in fresh), "a refused row is of its bundle", **facts)
        rows = {p: (self._sink.shown_row(bundle.rows, p - bundle.first), reason) for p, reason in sorted(fresh.items())}
        if self._letters is None:
            position, (record, reason) = next(iter(rows.items()))
            raise OperatorFailed(
                f"sink {self._name!r}, position {position} of {self._task}: its store refused the row: "
                f"{' '.join(reason.split())[: 2 * SHOWN_MAX]}; record {encode_json(record)[:SHOWN_MAX]}; "
                "correct the pipeline or the store, or resume with --on-error dead-letter to write such rows "
                "to the dead letters"
            )
        letters = [letter_of(self._name, self._task, self._run, p, *row) for p, row in rows.items()]
        next_, before = bundle.first + bundle.count, self.refused + self._kept
        self._letters.keep(Kept(self._run, bundle.first, next_, bundle.digest, before, letters), bundle.incarnation)
        self._out.update(fresh)
        self._kept += len(fresh)
        progressed()

    def truncate(self, epoch: int) -> None:
        """See `causal.ports.SinkStore.truncate`."""
        self._inner.truncate(epoch)

    def limit(self, rows: int) -> str:
        """See `causal.ports.ReturningStore.limit`."""
        return limit_of(self._inner, rows)

    def obstacle(self, next_: int) -> str:
        """See `causal.ports.ReturningStore.obstacle`."""
        return obstacle(self._inner, next_)

    def return_to(self, next_: int, digest: int) -> StoreState:
        """See `causal.ports.ReturningStore.return_to`; the letters of withdrawn rows are removed, too."""
        store = self._inner
        invariant(isinstance(store, ReturningStore), "only a store that can returns", task=self._task)
        return self._settled(store.return_to(next_, digest), self._incarnation)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close the store."""
        self._inner.close()

    def _settled(self, state: StoreState, incarnation: int) -> StoreState:
        """Reconcile the letters with the given state of the store, to which no other process is writing."""
        if self._letters is not None:
            self._letters.settle(state, incarnation)
            if state.withdrawn:
                self._letters.withdraw(state.next)
        self._of, self._out, self._kept = None, {}, 0
        return self._noted(state)

    def _noted(self, state: StoreState) -> StoreState:
        self.refused = state.refused
        return replace(state, place=self._sink.place)


class WithdrawingRefusingStore(RefusingStore):
    """A `RefusingStore` for a store that can withdraw rows."""

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """See `causal.ports.WithdrawingStore.withdraw`."""
        store = self._inner
        invariant(isinstance(store, WithdrawingStore), "only a store that can takes rows back", task=self._task)
        return self._settled(store.withdraw(mark), self._incarnation)  # type: ignore[attr-defined]


def refusing(inner: SinkStore, sink: Sink, name: str, task: str, letters: Letters | None) -> RefusingStore:
    """Return `inner`, wrapped so that a refused row stops the job or is set aside.

    Args:
        name: the name of the sink's operator.
        letters: the destination of the dead letters for refused rows; None stops the job instead.
    """
    kind = WithdrawingRefusingStore if isinstance(inner, WithdrawingStore) else RefusingStore
    return kind(inner, sink, name, task, letters)
