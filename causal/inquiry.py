"""A task's part in an inquiry (D9): it stands still from the question until the decision, and answers once it can.

While it stands still nothing is performed, sent or taken in, so what it answered stays true.
"""

from __future__ import annotations

from causal.channels import Channels
from causal.dissemination import Holdings
from causal.effects import Effect, Found
from causal.events import Inquired
from causal.recovery import State
from causal.rollback import Finding, Rollback, beyond, vector_of


class Inquiry:
    """What this task knows of inquiries.

    State: `asked` from a question to the decision; `rollback` from the last decision on.
    """

    def __init__(self, rollback: Rollback) -> None:
        self.rollback = rollback
        self.asked: Inquired | None = None

    def ask(self, event: Inquired) -> None:
        """Take a question, unless it is decided already."""
        if event.number > self.rollback.number:
            self.asked = event

    def decided(self, rollback: Rollback) -> bool:
        """Take a decision that lets this task stay; whether it was news."""
        if rollback.number <= self.rollback.number:
            return False
        self.rollback = rollback
        if self.asked is not None and self.asked.number <= rollback.number:
            self.asked = None
        return True

    def answer(self, state: State, holdings: Holdings, channels: Channels) -> list[Effect]:
        """The answer to the question that is open, once it can be given."""
        asked = self.asked
        # Rows outlive their writer: what the store holds must be known before anybody can say what stands.
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
        return [Found(asked.number, Finding(settled, orphan, stands))]
