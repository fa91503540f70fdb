"""The session of a channel as two tables: which state of an end follows which, by what step.

A session carries elements from one incarnation of a sender to one incarnation of a receiver.  Both ends outlive it:
their peers die, are replaced and announced by the supervisor, and HELLO and WELCOME begin the next session (D5).  A
task that still collects holds the HELLOs of its senders, so chains of failed neighbours recover in order.
`causal.channels.frames` lists the legal frames of each state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from causal.errors import invariant


class SenderState(Enum):
    """The state of the sending end of a channel."""

    ABSENT = "absent"  # no receiver is announced, or it has died: elements are kept, nothing is sent
    GREETING = "greeting"  # HELLO is sent, and repeated until a WELCOME; nothing else is sent
    COMPARING = "comparing"  # the receiver has more than the replay has regenerated: nothing is sent until it is there
    OPEN = "open"  # DATA is sent as far as credit goes


class SenderStep(Enum):
    """A step from one state of a sender to the next."""

    ANNOUNCED = "announced"  # the supervisor names an incarnation of the receiver and where it is
    LOST = "lost"  # the supervisor reports that the receiver has died
    WELCOMED = "welcomed"  # a WELCOME asks for elements that are in the in-flight log
    OVERTAKEN = "overtaken"  # a WELCOME reports more elements than have been regenerated so far
    REGENERATED = "regenerated"  # the replay has reached that position, and the digests are equal


class ReceiverState(Enum):
    """The state of the receiving end of a channel."""

    UNKNOWN = "unknown"  # no sender is announced, and this task still collects
    HELD = "held"  # a sender is announced, this task still collects: its HELLO waits, DATA is refused
    READY = "ready"  # this task has collected, no sender is announced
    OPEN = "open"  # HELLO is answered with WELCOME, DATA is taken


class ReceiverStep(Enum):
    """A step from one state of a receiver to the next."""

    ANNOUNCED = "announced"  # the supervisor names an incarnation of the sender
    COLLECTED = "collected"  # this task has collected its determinants, and may answer upstream


SENDER: Mapping[SenderState, Mapping[SenderStep, SenderState]] = {
    SenderState.ABSENT: {
        SenderStep.ANNOUNCED: SenderState.GREETING,
        SenderStep.LOST: SenderState.ABSENT,
        SenderStep.WELCOMED: SenderState.OPEN,  # the answer was under way when the receiver died
        SenderStep.OVERTAKEN: SenderState.COMPARING,
        SenderStep.REGENERATED: SenderState.ABSENT,  # what it had when it died was made from the same log
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
        SenderStep.WELCOMED: SenderState.OPEN,  # the next session: a frame was lost, or an answer was late
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
        ReceiverStep.ANNOUNCED: ReceiverState.OPEN,  # another incarnation: its sessions are numbered from 1 again
    },
}

State = TypeVar("State", bound=Enum)
Step = TypeVar("Step", bound=Enum)


def transition(table: Mapping[State, Mapping[Step, State]], state: State, step: Step, **where: object) -> State:
    """Return the state that follows `state` by `step`; the only place where one comes from.

    Args:
        where: what an error names, the channel of a session for example.

    Raises:
        InvariantViolation: the table has no such step in this state.
    """
    after = table[state].get(step)
    invariant(after is not None, "no such transition", **where, state=state, step=step)
    return after  # type: ignore[return-value]
