"""Sinks for systems without transactions: a journal records which rows were promised and which were accepted.

A bundle is first appended to the journal with its rows, determinants and position, in one write. From then on, exactly
these rows will be delivered, whichever process dies. The rows are then sent in order, in batches, and each accepted
batch is recorded. If the process dies, the next process that opens the store delivers the remaining rows from the
journal, with the same idempotency keys, so nothing is lost or contradicted. Rows that were accepted but not recorded
are delivered again with the same keys. Each row takes effect exactly once if the other side honours keys, and at least
once otherwise.

A zombie that resumes notices before its next batch that its journal was replaced. The batch that it was delivering may
still arrive late, in addition to its successor's delivery, with the same keys.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from causal.errors import CausalError, PipelineError, RowRefused, fenced, invariant
from causal.ports import Bundle, StoreState
from causal.shell.outage import progressed
from causal.storage.file_journal import FileJournal
from operators.sinks.contract.sink import lines_of
from operators.sinks.journaled.journaled_store import JournaledStore
from operators.sinks.journaled.ledger import Ledger, publication_record

BUSY_MS = 2000


class DeliveryRefused(CausalError):
    """The error for a delivery of which the other side has accepted no row.

    A delivery of several rows is then halved.
    """


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery of some rows of one sink task, in order; the same row always has the same position."""

    run: str
    """The run of the job, which `--resume` continues."""
    task: str
    positions: Sequence[int]
    """The positions of the rows, ascending, without gaps except for refused rows."""
    lines: Sequence[str]
    """The rows as JSON."""

    @property
    def records(self) -> list[Any]:
        """The rows, decoded from JSON."""
        return list(map(json.loads, self.lines))

    @property
    def keys(self) -> list[str]:
        """The idempotency keys of the rows."""
        return [f"{self.run}/{self.task}/{position}" for position in self.positions]

    @property
    def key(self) -> str:
        """The idempotency key of the whole delivery."""
        return f"{self.run}/{self.task}/{self.positions[0]}-{self.positions[-1]}:{len(self.positions)}"

    def halves(self) -> tuple[Delivery, Delivery]:
        """Return the delivery in two halves."""
        middle = len(self.positions) // 2
        first = replace(self, positions=self.positions[:middle], lines=self.lines[:middle])
        return first, replace(self, positions=self.positions[middle:], lines=self.lines[middle:])


class OutwardStore(JournaledStore):
    """The delivery of one sink task's rows, and its journal. Only one thread may use it at a time.

    Args:
        directory: the directory of the journals; its parent must exist.
        carry: delivers rows, and returns when the other side has accepted all of them. It raises `Unavailable` if the
            delivery may be retried, `RowRefused` if nothing was accepted because of rows that will never be accepted,
            and `DeliveryRefused` if nothing was accepted and the refused row is unknown.
        let_go: releases the resources of `carry`; called by `close`.
        batch_rows: the maximum number of rows per delivery.
        sync: whether the journal must be on disk before rows are sent.
    """

    _journal: FileJournal

    def __init__(
        self,
        task: str,
        directory: Path,
        carry: Callable[[Delivery], None],
        let_go: Callable[[], None],
        batch_rows: int,
        sync: bool,
    ) -> None:
        path = directory / f"{task.replace('/', '-')}.journal"
        super().__init__(task, FileJournal(task, path, directory / f".{path.stem}.lock", path, BUSY_MS, sync), path)
        self._carry = carry
        self._let_go = let_go
        self._batch_rows = batch_rows

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`; rows that were promised but not accepted are delivered first."""
        state = super().open(task, run, incarnation)
        try:
            with suppress(RowRefused):  # raised again when `operators.sinks.contract.refusals` rewrites the bundle
                self._deliver()
            return state
        except BaseException:
            self.close()
            raise

    def promised_bundle(self) -> Bundle | None:
        """Return the bundle that was promised but not completely accepted, or None; it must be rewritten first."""
        if self._ledger is None or not self._ledger.entries:
            return None
        return replace(self._ledger.entries[0].bundle, incarnation=self._incarnation)

    def write(self, bundle: Bundle) -> None:
        """See `causal.ports.SinkStore.write`; rows that were delivered before a refused row remain delivered."""
        super().write(bundle)
        self._deliver()

    def close(self) -> None:
        """Close the journal, and release the connection to the other side."""
        super().close()
        self._let_go()

    def _fitted(self, ledger: Ledger, bundle: Bundle) -> None:
        ready = not ledger.entries or ledger.entries[0].first == bundle.first
        invariant(ready, "a bundle is taken before the next one", task=self._task, first=bundle.first)

    def _publish(self, ledger: Ledger) -> None:
        """Do nothing: rows are sent after the lock is released, because sending may take a long time."""

    def _deliver(self) -> None:
        """Deliver the pending rows one batch at a time, and record each batch."""
        if self._ledger is None or not self._ledger.entries:
            return
        pending = self._ledger.entries[0].bundle
        numbered, kept = lines_of(pending)
        positions, lines = list(numbered), list(kept)
        for start in range(bisect_left(positions, self._ledger.published), len(positions), self._batch_rows):
            stop = start + self._batch_rows
            self._bring(Delivery(self._run, self._task, positions[start:stop], lines[start:stop]))
        self._note(pending.first + pending.count)

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

    def _note(self, position: int) -> None:
        """Record that all rows below `position` have been accepted."""
        if self._ledger is not None and self._ledger.published < position:
            with self._journal.guarded():  # no lock is needed, because a newer process replaces the journal
                self._journal.append(publication_record(position), lasting=False)
            self._ledger.publish(position)
            progressed()

    def _foreign(self) -> CausalError:
        return PipelineError(
            f"{self._place} has rows that another run still has to send; resume that run (causal run "
            "PIPELINE.py --resume), or use another --state-dir"
        )
