"""The state machine of a recovery: which state follows which, and what each state may do.

A first start, a restart after total failure and a promotion take the same path; a first start merely
has nothing to collect and nothing to replay (D1, D5).
"""

from __future__ import annotations

from enum import Enum

from causal.errors import invariant


class State(Enum):
    """The states of a task from its promotion to running."""

    RESTORED = "restored"  # the state at the last complete checkpoint is loaded; nothing has been sent
    SHADOWING = "shadowing"  # a hot standby: performs what its task has performed, and sends nothing
    COLLECTING = "collecting"  # asks all tasks downstream for determinants and positions; answers none upstream
    REPLAYING = "replaying"  # performs the events of the log, with elements replayed by upstream
    RUNNING = "running"  # the log is at its end: what arrives is performed and logged
    FAILED = "failed"  # absorbing


class RecoveryStep(Enum):
    """The transitions of a task from one state to the next."""

    SHADOWED = "shadowed"  # the task's echo follows the state that is loaded
    STARTED = "started"
    COLLECTED = "collected"  # every output channel and every store has answered
    REPLAYED = "replayed"  # the log has been performed to its end
    FAILED = "failed"


TRANSITIONS: dict[tuple[State, RecoveryStep], State] = {
    (State.RESTORED, RecoveryStep.STARTED): State.COLLECTING,
    (State.RESTORED, RecoveryStep.SHADOWED): State.SHADOWING,
    (State.SHADOWING, RecoveryStep.STARTED): State.COLLECTING,
    (State.SHADOWING, RecoveryStep.FAILED): State.FAILED,
    (State.COLLECTING, RecoveryStep.COLLECTED): State.REPLAYING,
    (State.REPLAYING, RecoveryStep.REPLAYED): State.RUNNING,
    (State.RESTORED, RecoveryStep.FAILED): State.FAILED,
    (State.COLLECTING, RecoveryStep.FAILED): State.FAILED,
    (State.REPLAYING, RecoveryStep.FAILED): State.FAILED,
    (State.RUNNING, RecoveryStep.FAILED): State.FAILED,
    (State.FAILED, RecoveryStep.FAILED): State.FAILED,
}

REPLAYS = frozenset((State.SHADOWING, State.REPLAYING))
"""The states in which events are performed that were performed before, by the log or by receivers of the output."""

PERFORMS = REPLAYS | {State.RUNNING}
"""The states in which events of the schedule are performed."""


class Recovery:
    """The state of one task, and the history of its states."""

    def __init__(self, task_name: str) -> None:
        self.task_name = task_name
        self.state = State.RESTORED
        self.story: list[tuple[int, str]] = []

    @property
    def replays(self) -> bool:
        """Whether an event that is performed now was performed before, so that its effects are not new (D22)."""
        return self.state in REPLAYS

    def step(self, step: RecoveryStep, now_ns: int) -> State:
        """Take the step, which must be legal in the current state."""
        after = TRANSITIONS.get((self.state, step))
        invariant(
            after is not None, "no such transition", task=self.task_name, state=self.state, step=step, story=self.story
        )
        self.state = after  # type: ignore[assignment]
        self.story.append((now_ns, self.state.value))
        return self.state
