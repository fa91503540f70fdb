"""The session of a channel as two tables, one per end, with the states and the transitions between them.

A session carries elements from one incarnation of a sender to one incarnation of a receiver. Both ends outlive a
session: when a peer dies, the supervisor replaces it and announces the replacement, and HELLO and WELCOME begin the
next session (D5). A task that is still collecting holds the HELLOs of its senders, so that chains of failed neighbours
recover in order. `causal.channels.frames` lists the legal frames of each state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from causal.errors import invariant


class SenderState(Enum):
    """The state of the sending end of a channel."""

    ABSENT = "absent"  # no receiver is announced, or it has died: elements are kept but not sent
    GREETING = "greeting"  # HELLO is sent and repeated until a WELCOME arrives; nothing else is sent
    COMPARING = "comparing"  # nothing is sent until the replay has regenerated all elements that the receiver has
    OPEN = "open"  # DATA is sent as far as credit allows


class SenderStep(Enum):
    """An event that changes the state of the sending end."""

    ANNOUNCED = "announced"  # the supervisor names an incarnation of the receiver and its address
    LOST = "lost"  # the supervisor reports that the receiver has died
    WELCOMED = "welcomed"  # a WELCOME requests elements that are in the in-flight log
    OVERTAKEN = "overtaken"  # a WELCOME reports more elements than have been regenerated so far
    REGENERATED = "regenerated"  # the replay has reached the receiver's position, and the digests are equal


class ReceiverState(Enum):
    """The state of the receiving end of a channel."""

    UNKNOWN = "unknown"  # no sender is announced, and this task is still collecting
    HELD = "held"  # a sender is announced, but this task is still collecting: HELLO waits, and DATA is refused
    READY = "ready"  # this task has collected, but no sender is announced
    OPEN = "open"  # HELLO is answered with WELCOME, and DATA is accepted


class ReceiverStep(Enum):
    """An event that changes the state of the receiving end."""

    ANNOUNCED = "announced"  # the supervisor names an incarnation of the sender
    COLLECTED = "collected"  # this task has collected its determinants, and may answer upstream


SENDER: Mapping[SenderState, Mapping[SenderStep, SenderState]] = {
    SenderState.ABSENT: {
        SenderStep.ANNOUNCED: SenderState.GREETING,
        SenderStep.LOST: SenderState.ABSENT,
        SenderStep.WELCOMED: SenderState.OPEN,  # the WELCOME was in transit when the receiver died
        SenderStep.OVERTAKEN: SenderState.COMPARING,
        SenderStep.REGENERATED: SenderState.ABSENT,  # the elements that the dead receiver had came from the same log
    },
    SenderState.GREETING: {
        SenderStep.ANNOUNCED: SenderState.GREETING,
        SenderStep.LOST: SenderState.ABSENT,
        SenderStep.WELCOMED: SenderState.OPEN,
        SenderStep.OVERTAKEN: SenderState.COMPARING,
    },
    SenderState.COMPARING: {
        SenderStep.ANNOUNCED: SenderState.GREETING,
        SenderStep.LOST: SenderState.ABSENT,
        SenderStep.WELCOMED: SenderState.OPEN,
        SenderStep.OVERTAKEN: SenderState.COMPARING,
        SenderStep.REGENERATED: SenderState.OPEN,
    },
    SenderState.OPEN: {
        SenderStep.ANNOUNCED: SenderState.GREETING,
        SenderStep.LOST: SenderState.ABSENT,
        SenderStep.WELCOMED: SenderState.OPEN,  # the next session begins because a frame was lost or an answer was late
        SenderStep.OVERTAKEN: SenderState.COMPARING,
    },
}

RECEIVER: Mapping[ReceiverState, Mapping[ReceiverStep, ReceiverState]] = {
    ReceiverState.UNKNOWN: {
        ReceiverStep.ANNOUNCED: ReceiverState.HELD,
        ReceiverStep.COLLECTED: ReceiverState.READY,
    },
    ReceiverState.HELD: {
        ReceiverStep.ANNOUNCED: ReceiverState.HELD,
        ReceiverStep.COLLECTED: ReceiverState.OPEN,
    },
    ReceiverState.READY: {
        ReceiverStep.ANNOUNCED: ReceiverState.OPEN,
    },
    ReceiverState.OPEN: {
        ReceiverStep.ANNOUNCED: ReceiverState.OPEN,  # a new incarnation numbers its sessions from 1 again
    },
}

State = TypeVar("State", bound=Enum)
Step = TypeVar("Step", bound=Enum)


def transition(table: Mapping[State, Mapping[Step, State]], state: State, step: Step, **where: object) -> State:
    """Return the state that follows `state` after `step`; every state change of a session goes through this function.

    Args:
        where: the context to name in an error, for example the channel of the session.

    Raises:
        InvariantViolation: the table has no such step in this state.
    """
    after = table[state].get(step)
    invariant(after is not None, "no such transition", **where, state=state, step=step)
    return after  # type: ignore[return-value]
