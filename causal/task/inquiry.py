"""A task's part in an inquiry (D9): the task pauses from the question to the decision, and answers once it can.

While paused, the task does not perform, send or accept anything, so its answer remains true.
"""

from __future__ import annotations

from causal.channels.ends import Channels
from causal.effects import Effect, OrphanReport
from causal.events import OrphanQuery
from causal.logs.dissemination import Holdings
from causal.logs.rollback import OrphanAnswer, Rollback, beyond, vector_of
from causal.task.recovery import State


class Inquiry:
    """The open inquiry, and the last decision known to this task.

    State: `asked` is set from the arrival of a question until the decision; `rollback` is the last decision.
    """

    def __init__(self, rollback: Rollback) -> None:
        self.rollback = rollback
        self.asked: OrphanQuery | None = None

    def ask(self, event: OrphanQuery) -> None:
        """Open an inquiry, unless it has already been decided."""
        if event.number > self.rollback.number:
            self.asked = event

    def decided(self, rollback: Rollback) -> bool:
        """Adopt a decision that does not roll back this task; return whether the decision is new."""
        if rollback.number <= self.rollback.number:
            return False
        self.rollback = rollback
        if self.asked is not None and self.asked.number <= rollback.number:
            self.asked = None
        return True

    def answer(self, state: State, holdings: Holdings, channels: Channels) -> list[Effect]:
        """Return the answer to the open question, once it can be determined."""
        asked = self.asked
        # Rows outlive the process that wrote them, so their extents can be determined only after the store has reported
        # its rows.
        if asked is None or not all(sink.opened for sink in channels.sinks.values()):
            return []
        settled = state is not State.COLLECTING
        depends = vector_of(holdings.dependencies()) if settled else {}
        orphan = beyond(depends, asked.lost)
        if orphan is not None:
            depends = {}
            for sink in channels.sinks.values():
                depends |= sink.stands(asked.lost)
        stands = tuple((task, epoch, extent) for (task, epoch), extent in sorted(depends.items()))
        return [OrphanReport(asked.number, OrphanAnswer(settled, orphan, stands))]
