"""The frames of a session as a table: which end accepts a kind, in which states, and what happens to it otherwise.

An illegal frame is not a case in code: `causal.channels.exchange` looks the kind up here, compares the incarnation of
the frame with the one that is announced and the state of the end with `legal`, and otherwise does what the rule says.
Nothing that a frame does can change what is announced: only the supervisor does (D6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from causal.channels import wire
from causal.channels.states import ReceiverState, SenderState


class Refusal(Enum):
    """Names what becomes of a frame of another incarnation than the announced one, where it is not merely dropped."""

    FENCE = "fence"  # its sender is a zombie: FENCED is sent back
    KEEP = "keep"  # it came before its announcement, and waits for it


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of one kind of frame.

    Attributes:
        name: as in the documentation.
        from_upstream: it arrives at the socket that this task has bound, and a receiver accepts it; otherwise it is an
            answer on a connection that this task has made, and a sender accepts it.
        legal: the states of its end in which it is accepted.
        illegal: the report of it in any other state; a frame that is dropped changes nothing.
        older, younger: what happens to it if its incarnation is below or above the announced one: a line means that it
            is dropped with this report.
        misplaced: the report of it on a channel that has no such end here.
        of_peer: its incarnation is that of the peer which has sent it.
    """

    name: str
    from_upstream: bool
    legal: tuple[ReceiverState | SenderState, ...]
    illegal: str
    older: Refusal | str
    younger: Refusal | str
    misplaced: str
    of_peer: bool = True


_EARLY_DATA = "data before the handshake"


def _answer(name: str, of_peer: bool = True) -> Rule:
    """Return the rule of an answer, which a sender accepts in every state: its report is true in all of them."""
    return Rule(
        name,
        from_upstream=False,
        legal=tuple(SenderState),
        illegal="",
        older="an answer of an old incarnation",
        younger="an answer of an incarnation that the supervisor has not announced",
        misplaced="an answer on channel {channel}, which does not start here",
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
        misplaced="data on channel {channel}, which does not end here",
    ),
    wire.HELLO: Rule(
        "HELLO",
        from_upstream=True,
        legal=(ReceiverState.OPEN, ReceiverState.HELD),
        illegal="a HELLO of a sender that is not announced",
        older=Refusal.FENCE,
        younger=Refusal.KEEP,
        misplaced="a HELLO on channel {channel}, which does not end here",
    ),
    wire.WELCOME: _answer("WELCOME"),
    wire.CREDIT: _answer("CREDIT"),
    wire.FENCED: _answer("FENCED", of_peer=False),
    wire.LOGS: _answer("LOGS"),
}
