"""The state machine of a recovery: the states, the transitions between them, and what a task may do in each state.

A first start, a restart after a total failure and a promotion all follow the same path. In a first start, there is
merely nothing to collect and nothing to replay (D1, D5).
"""

from __future__ import annotations

from enum import Enum

from causal.errors import invariant


class State(Enum):
    """The states of a task from its promotion until it is running."""

    RESTORED = "restored"  # the state at the last complete checkpoint has been loaded; nothing has been sent
    SHADOWING = "shadowing"  # a hot standby performs the events that its task has performed, and sends nothing
    COLLECTING = "collecting"  # the task collects determinants and positions from downstream, but answers no HELLO yet
    REPLAYING = "replaying"  # the task performs the events in the log on elements that the upstream tasks replay
    RUNNING = "running"  # the log has been replayed to its end; new events are performed and logged
    FAILED = "failed"  # the task cannot continue; this state is final


class RecoveryStep(Enum):
    """An event that moves a task from one state to the next."""

    SHADOWED = "shadowed"  # the task's echo can be performed from the loaded state
    STARTED = "started"
    COLLECTED = "collected"  # every output channel and every store has answered
    REPLAYED = "replayed"  # all events in the log have been performed
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
"""The states in which the task performs events that were performed before, as the log or the receivers show."""

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
