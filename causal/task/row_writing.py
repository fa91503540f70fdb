"""Writes a task's rows to its stores, sends its requests, and reports its end.

A request is sent only after the determinants on which it depends have been stored, so that a replay cannot produce a
different request (D4).
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.channels.ends import Channels
from causal.cut import Cut
from causal.effects import Effect, Phase, SendRequests, WriteBundle
from causal.logs.dissemination import Holdings
from causal.ports import Request
from causal.task.batch_sizer import BatchSizer
from causal.task.checkpointing import Checkpointing
from causal.task.recovery import Recovery, State
from causal.task.schedule import Schedule


class RowWriting:
    """The bundles and requests of one incarnation of one task.

    Args:
        logging: whether bundles carry determinants.
        cut: the position of the task at the restored checkpoint.

    Attributes:
        wrote: whether this incarnation has written a bundle of rows.
        staged: whether the task has finished and all its rows are staged or visible.
        covered: whether no row is waiting for a checkpoint, either because a complete checkpoint contains the finished
            task or because rows are never staged.
        rollback: the number of the last known decision about lost determinants, which every bundle carries.
    """

    def __init__(
        self, recovery: Recovery, channels: Channels, holdings: Holdings, schedule: Schedule,
        checkpointing: Checkpointing, pace: BatchSizer, logging: bool, cut: Cut, incarnation: int,
    ) -> None:  # fmt: skip
        self.wrote = self.staged = self.reported_finished = False
        self.covered = cut.finished or not any(sink.staging for sink in channels.sinks.values())
        self.rollback = 0
        self.incarnation = incarnation
        self._recovery = recovery
        self._sinks = channels.sinks
        self._holdings = holdings
        self._schedule = schedule
        self._checkpointing = checkpointing
        self._pace = pace
        self._logging = logging
        self._asked: dict[tuple[int, int], None] = {}
        self._unsent: list[Request] = []
        """The requests whose determinants have not been stored yet."""

    def ask(self, requests: Sequence[Request]) -> None:
        """Queue requests to be sent with the next bundles, but never before their determinants are stored (D4)."""
        if requests and not self._schedule.standing:
            self._asked.update(dict.fromkeys((each.operator, each.number) for each in requests))
            self._unsent += requests

    def answered(self, operator: int, number: int) -> bool:
        """Record a response; return whether it is the first response to a request of this incarnation."""
        return self._asked.pop((operator, number), self) is None

    def flush(self, effects: list[Effect], force: bool) -> None:
        """Write the waiting rows if there are many or `force` is set, and then send requests.

        Report the end of the task if these were its last rows. A hot standby keeps its rows instead.
        """
        if self._recovery.state is State.SHADOWING:
            return
        pace, sinks = self._pace, self._sinks.values()
        for sink in sinks:
            rows = sink.waiting
            if rows and (force or sink.full or (pace.reduced and rows >= pace.elements)):
                pace.turn_elements = max(pace.turn_elements, rows)
                holdings = self._holdings if self._logging else None
                bundle, origins = sink.bundle(holdings, self.incarnation, self.rollback)
                effects.append(WriteBundle(sink.id, bundle, [] if sink.requests else origins))
                self.wrote = self.wrote or not sink.requests
        if self._unsent and not any(sink.waiting for sink in sinks if sink.requests):
            effects.append(SendRequests(self._unsent))
            self._unsent = []
        if self._schedule.finished and not self.reported_finished and self._recovery.state is State.RUNNING:
            if not any(sink.waiting for sink in sinks):
                self._report_end(effects)

    def cover(self, epoch: int) -> None:
        """Record that all rows staged before barrier `epoch` are visible."""
        cut = self._checkpointing.cuts.get(epoch)
        self.covered = self.covered or (cut is not None and cut.finished)

    def last_bundles(self) -> list[Effect]:
        """Return the bundles that inform every store at the end of the job that its rows are final."""
        if not self.reported_finished:
            return []
        partial = self._logging and self._holdings.partial
        sinks = self._sinks.values()
        return [WriteBundle(sink.id, sink.last(partial, self.incarnation, self.rollback), []) for sink in sinks]

    def _report_end(self, effects: list[Effect]) -> None:
        """Report the end once all rows are in the store: "finished", or "staged" if rows wait for a checkpoint."""
        if self.covered:
            self.reported_finished = True
            effects.append(Phase("finished"))
        elif not self.staged:
            self.staged = True
            effects.append(Phase("staged"))
