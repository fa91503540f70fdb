"""A task's part in an inquiry (D9): it stands still from the question until the decision, and answers once it can.

While it stands still nothing is performed, sent or taken in, so what it answered stays true.
"""

from __future__ import annotations

from causal.channels.ends import Channels
from causal.effects import Effect, OrphanReport
from causal.events import OrphanQuery
from causal.logs.dissemination import Holdings
from causal.logs.rollback import OrphanAnswer, Rollback, beyond, vector_of
from causal.task.recovery import State


class Inquiry:
    """The inquiry that is open, and the last decision that this task knows.

    State: `asked` from a question to the decision; `rollback` from the last decision on.
    """

    def __init__(self, rollback: Rollback) -> None:
        self.rollback = rollback
        self.asked: OrphanQuery | None = None

    def ask(self, event: OrphanQuery) -> None:
        """Process a question, unless it is already decided."""
        if event.number > self.rollback.number:
            self.asked = event

    def decided(self, rollback: Rollback) -> bool:
        """Adopt a decision that lets this task stay; returns whether it was new."""
        if rollback.number <= self.rollback.number:
            return False
        self.rollback = rollback
        if self.asked is not None and self.asked.number <= rollback.number:
            self.asked = None
        return True

    def answer(self, state: State, holdings: Holdings, channels: Channels) -> list[Effect]:
        """Return the answer to the open question, once it can be determined."""
        asked = self.asked
        # Rows outlive their writer: what the store holds must be known before it can be decided what stands.
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
