"""The state machine of a recovery: the states, the transitions between them, and what a task may do in each state.

A first start, a restart after a total failure and a promotion follow the same path; a first start merely has nothing
to collect and nothing to replay (D1, D5).
"""

from __future__ import annotations

from enum import Enum

from causal.errors import invariant


class State(Enum):
    """The states of a task from its promotion until it is running."""

    RESTORED = "restored"  # the state at the last complete checkpoint is loaded; nothing has been sent
    SHADOWING = "shadowing"  # a hot standby performs the events that its task has performed, and sends nothing
    COLLECTING = "collecting"  # asks all tasks downstream for determinants and positions; answers none upstream
    REPLAYING = "replaying"  # performs the events in the log, on elements replayed by the tasks upstream
    RUNNING = "running"  # the log has been replayed to its end; new events are performed and logged
    FAILED = "failed"  # absorbing


class RecoveryStep(Enum):
    """The transitions of a task from one state to the next."""

    SHADOWED = "shadowed"  # the loaded state is one from which the task's echo can be performed
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
"""The states in which a task performs events that the log or the receivers' positions show were performed before."""

PERFORMS = REPLAYS | {State.RUNNING}
"""The states in which events of the schedule are performed."""


class Recovery:
    """The recovery state of one task, and the history of its states."""

    def __init__(self, task_name: str) -> None:
        self.task_name = task_name
        self.state = State.RESTORED
        self.story: list[tuple[int, str]] = []

    @property
    def replays(self) -> bool:
        """Whether the event being performed was performed before, so that its effects are not new (D22)."""
        return self.state in REPLAYS

    def step(self, step: RecoveryStep, now_ns: int) -> State:
        """Perform `step`, which must be legal in the current state, and return the new state."""
        after = TRANSITIONS.get((self.state, step))
        invariant(
            after is not None, "no such transition", task=self.task_name, state=self.state, step=step, story=self.story
        )
        self.state = after  # type: ignore[assignment]
        self.story.append((now_ns, self.state.value))
        return self.state
