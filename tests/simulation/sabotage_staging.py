"""Ways to break what the guarantee `epoch` rests on, one rule each (see `sabotage`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import causal.task.task
from causal.channels.sink_channel import SinkChannel
from causal.effects import CommitRows, OpenSink, StageRows
from causal.task.row_writing import RowWriting
from causal.task.step import Step
from standby.supervision.reconciler import Reconciler
from standby.supervision.staging import Staging
from tests.simulation.breaking import Patches, found_by


@found_by(0)
def _visible_at_the_barrier() -> Patches:
    """Rows do not wait for the other tasks' part of the checkpoint."""
    barrier = Step._pass_barrier

    def hasty(self: Step, epoch: int, final: bool, effects: list[Any]) -> None:
        barrier(self, epoch, final, effects)
        effects += [CommitRows(effect.channel, epoch) for effect in effects if isinstance(effect, StageRows)]

    return {(Step, "_pass_barrier"): hasty}


def _restored_at(instead: Callable[[int], int]) -> Patches:
    def opening(channel: int, restored: int | None, expected: bool, counted: bool) -> OpenSink:
        return OpenSink(channel, None if restored is None else instead(restored), expected, counted)

    return {(causal.task.task, "OpenSink"): opening}


@found_by(11)
def _nothing_is_discarded() -> Patches:
    """A restored task makes all staged rows visible, whatever checkpoint covers them."""
    return _restored_at(lambda epoch: 1 << 40)


@found_by(32)
def _nothing_is_committed_when_restored() -> Patches:
    """A restored task forgets all staged rows."""
    return _restored_at(lambda epoch: 0)


@found_by(0)
def _acknowledged_before_staged() -> Patches:
    """Rows that wait for their bundle are left behind a barrier."""
    barrier, flush = Step._pass_barrier, RowWriting.flush

    def hasty(self: Step, epoch: int, final: bool, effects: list[Any]) -> None:
        self._writing.__dict__["hasty"] = any(sink.staging for sink in self._channels.sinks.values())
        barrier(self, epoch, final, effects)
        self._writing.__dict__["hasty"] = False

    def unless(self: RowWriting, effects: list[Any], force: bool) -> None:
        if not self.__dict__.get("hasty"):
            flush(self, effects, force)

    return {(Step, "_pass_barrier"): hasty, (RowWriting, "flush"): unless}


@found_by(237)
def _staged_and_not_durable() -> Patches:
    """Staged rows are not made durable before the snapshot."""
    barrier = Step._pass_barrier

    def careless(self: Step, epoch: int, final: bool, effects: list[Any]) -> None:
        barrier(self, epoch, final, effects)
        effects[:] = [effect for effect in effects if not isinstance(effect, StageRows)]

    return {(Step, "_pass_barrier"): careless}


@found_by(7)
def _staged_is_finished() -> Patches:
    """A sink whose last rows are staged says that it has finished."""
    report = RowWriting._report_end

    def early(self: RowWriting, effects: list[Any]) -> None:
        self.covered = True
        report(self, effects)

    return {(RowWriting, "_report_end"): early}


@found_by(327)
def _never_committed() -> Patches:
    """A sink does not hear that a checkpoint is complete."""
    return {(SinkChannel, "commit"): lambda self, epoch: False}


@found_by(17)
def _alone_back() -> Patches:
    """The failed task alone is rolled back, though nothing is logged."""
    back = Reconciler.roll_back

    def stay(self: Reconciler, now_ns: int, outbox: Any) -> None:
        if not self._coordinator.__dict__.get("staged"):
            back(self, now_ns, outbox)

    def marked(self: Staging) -> bool:
        self.coordinator.__dict__["staged"] = self.enabled
        return hurries(self)

    hurries = Staging.hurries
    return {(Reconciler, "roll_back"): stay, (Staging, "hurries"): marked}
