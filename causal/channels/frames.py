"""The frames of a session as a table: which end accepts each kind, in which states, and how it is refused otherwise.

The handling of illegal frames is data rather than code. `causal.channels.exchange` looks up the kind here, and compares
the frame's incarnation with the announced one and the state of the end with `legal`. If either does not match, it
follows the rule. No frame can change the announced incarnation; only the supervisor can (D6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from causal.channels import wire
from causal.channels.states import ReceiverState, SenderState


class Refusal(Enum):
    """A way of handling a frame with an unannounced incarnation that is not simply to drop it."""

    FENCE = "fence"  # the sender is a zombie: reply with FENCED
    KEEP = "keep"  # the frame arrived before its incarnation was announced: keep it until then


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for one kind of frame.

    Attributes:
        name: the frame kind's name in the documentation.
        from_upstream: whether the frame comes from an upstream task. If true, it arrives at the socket that this task
            has bound, and a receiver accepts it. Otherwise it is an answer on a connection that this task has opened,
            and a sender accepts it.
        legal: the states in which this end accepts the frame.
        illegal: the message reported when the frame is dropped in any other state.
        older, younger: the handling of a frame whose incarnation is lower or higher than the announced one. A string
            means that the frame is dropped and the string is reported.
        misplaced: the message reported if the channel has no such end in this task.
        of_peer: whether the frame carries the incarnation of the peer that sent it.
    """

    name: str
    from_upstream: bool
    legal: tuple[ReceiverState | SenderState, ...]
    illegal: str
    older: Refusal | str
    younger: Refusal | str
    misplaced: str
    of_peer: bool = True


_EARLY_DATA = "DATA arrived before the handshake"


def _answer(name: str, of_peer: bool = True) -> Rule:
    """Return the rule for an answer, which a sender accepts in every state because its content is always valid."""
    return Rule(
        name,
        from_upstream=False,
        legal=tuple(SenderState),
        illegal="",
        older="an answer came from an old incarnation",
        younger="an answer came from an incarnation that the supervisor has not announced",
        misplaced="an answer arrived on channel {channel}, which does not start at this task",
        of_peer=of_peer,
    )


FRAMES: Mapping[int, Rule] = {
    wire.DATA: Rule(
        "DATA",
        from_upstream=True,
        legal=(ReceiverState.OPEN,),
        illegal=_EARLY_DATA,
        older=Refusal.FENCE,
        younger=_EARLY_DATA,
        misplaced="DATA arrived on channel {channel}, which does not end at this task",
    ),
    wire.HELLO: Rule(
        "HELLO",
        from_upstream=True,
        legal=(ReceiverState.OPEN, ReceiverState.HELD),
        illegal="a HELLO came from a sender that the supervisor has not announced",
        older=Refusal.FENCE,
        younger=Refusal.KEEP,
        misplaced="a HELLO arrived on channel {channel}, which does not end at this task",
    ),
    wire.WELCOME: _answer("WELCOME"),
    wire.CREDIT: _answer("CREDIT"),
    wire.FENCED: _answer("FENCED", of_peer=False),
    wire.LOGS: _answer("LOGS"),
}
