"""Recovery as a table: which state follows which, and what each state may do.

A first start, a restart after total failure and a promotion walk the same path; a first start merely
finds nothing to collect and nothing to replay (D1, D5).
"""

from __future__ import annotations

from enum import Enum

from causal.errors import invariant


class State(Enum):
    """Where a task is between being chosen and running."""

    RESTORED = "restored"  # the state at the last complete checkpoint is loaded; nobody has been spoken to
    COLLECTING = "collecting"  # asks everybody downstream for determinants and positions; answers nobody upstream
    REPLAYING = "replaying"  # performs what the log tells, with elements replayed by upstream
    RUNNING = "running"  # the log is at its end: what arrives is performed and logged
    FAILED = "failed"  # absorbing


class Step(Enum):
    """What moves a task from one state to the next."""

    STARTED = "started"
    COLLECTED = "collected"  # every output channel and every store has answered
    REPLAYED = "replayed"  # the log has been performed to its end
    FAILED = "failed"


TRANSITIONS: dict[tuple[State, Step], State] = {
    (State.RESTORED, Step.STARTED): State.COLLECTING,
    (State.COLLECTING, Step.COLLECTED): State.REPLAYING,
    (State.REPLAYING, Step.REPLAYED): State.RUNNING,
    (State.RESTORED, Step.FAILED): State.FAILED,
    (State.COLLECTING, Step.FAILED): State.FAILED,
    (State.REPLAYING, Step.FAILED): State.FAILED,
    (State.RUNNING, Step.FAILED): State.FAILED,
    (State.FAILED, Step.FAILED): State.FAILED,
}

ANSWERS_UPSTREAM = frozenset((State.REPLAYING, State.RUNNING))
"""A task that is still collecting defers its WELCOME, so chains of failed neighbours recover in order (D5)."""

PERFORMS = frozenset((State.REPLAYING, State.RUNNING))
"""Only here are events of the schedule performed."""


class Recovery:
    """The state of one task, and the story of how it got there."""

    def __init__(self, task_name: str) -> None:
        self.task_name = task_name
        self.state = State.RESTORED
        self.story: list[tuple[int, str]] = []

    def step(self, step: Step, now_ns: int) -> State:
        """Take the step, which must be legal here."""
        after = TRANSITIONS.get((self.state, step))
        invariant(
            after is not None, "no such transition", task=self.task_name, state=self.state, step=step, story=self.story
        )
        self.state = after  # type: ignore[assignment]
        self.story.append((now_ns, self.state.value))
        return self.state
