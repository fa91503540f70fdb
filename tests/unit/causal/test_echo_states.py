"""The tables of an echo: every state with every step and every frame, against what the tables say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from causal.channels import wire
from causal.channels.echo_headers import EchoedHeader, EchoHeader, read_echo, read_echoed
from causal.errors import PeerViolation
from causal.task.echo_states import (
    ANSWERS,
    ARRIVALS,
    Action,
    Arrival,
    EchoState,
    ShadowState,
)
from causal.task.shadow import Shadow
from tests.exhaustive.frozen import canonical
from tests.unit.causal.echoing import INPUT, JOB, LINK, begun, hot

LIVING, FOLLOWED = 1, 2
"""The incarnation, and the number of the echo, that the shadow follows; its frame 0 has come."""


def echo_of(number: int, echo: int = FOLLOWED, incarnation: int = LIVING) -> list[bytes]:
    """Return a frame of an echo in which nothing was taken; the first one says where the echo starts."""
    start = wire.Header(wire.DATA, JOB, INPUT, 0).pack() if not number else b""
    header = EchoHeader(0, incarnation, echo, number, bool(start), 0, 0, False, len(start))
    return [header.pack(JOB), b"", start]


FRAMES: dict[Arrival, Callable[[int, int], list[bytes]]] = {
    Arrival.FOREIGN: lambda echo, following: echo_of(0, echo + 1, LIVING + 1),
    Arrival.PAST: lambda echo, following: echo_of(1, echo - 1),
    Arrival.REPEATED: lambda echo, following: echo_of(following - 1, echo),
    Arrival.NEXT: lambda echo, following: echo_of(following, echo),
    Arrival.AHEAD: lambda echo, following: echo_of(following + 1, echo),
    Arrival.FIRST: lambda echo, following: echo_of(0, echo + 1),
    Arrival.HEADLESS: lambda echo, following: echo_of(1, echo + 1),
}
"""Each with the number of the echo that the shadow follows, and of the frame of it that is next."""
IMPOSSIBLE = {
    (ShadowState.UNKNOWN, Arrival.PAST),
    (ShadowState.UNKNOWN, Arrival.REPEATED),
    (ShadowState.LOST, Arrival.REPEATED),  # a lost echo is counted no more
}


def shadow_in(state: ShadowState) -> Shadow:
    """Return a shadow in that state, which has nothing to answer."""
    standby = hot([], loaded=state is ShadowState.PERFORMING)
    shadow: Shadow = standby._shadow
    if state is not ShadowState.UNKNOWN:
        standby.receive(LINK, echo_of(0), 0)
    if state is ShadowState.LOST:
        shadow.lose()
    shadow.acknowledgement()
    assert shadow.state is state
    return shadow


def state_of(shadow: Shadow) -> ShadowState:
    """Return the state of a shadow, read again at each call."""
    return shadow.state


@pytest.mark.parametrize("state, arrival", [each for each in product(ShadowState, Arrival) if each not in IMPOSSIBLE])
def test_a_frame_is_taken_where_the_table_says_so(state: ShadowState, arrival: Arrival) -> None:
    shadow = shadow_in(state)
    action, before = ARRIVALS[state][arrival], canonical(shadow)
    echo, frame = shadow._echo, FRAMES[arrival](shadow._echo, shadow._following)
    if action is Action.LOSE:
        with pytest.raises(PeerViolation, match="the next frame is"):
            shadow.receive(LINK, frame)
    else:
        void = shadow.receive(LINK, frame)
        assert void is (action is Action.BEGIN and state is ShadowState.PERFORMING)
    after = {Action.BEGIN: ShadowState.BUFFERING, Action.LOSE: ShadowState.LOST}.get(action, state)
    assert state_of(shadow) is after and (shadow.task is not None) is (after is ShadowState.PERFORMING)
    assert (canonical(shadow) == before) is (action is Action.DROP), "what is dropped changes nothing"
    answer = shadow.acknowledgement()
    assert (answer is not None) is (action in (Action.LOSE, Action.ANSWER))
    if answer is not None:
        report = read_echoed(wire.read_header(answer[1], JOB))
        assert report == EchoedHeader(LIVING, echo + (arrival is Arrival.HEADLESS), lost=True, performed=0)


@pytest.mark.parametrize("state", EchoState)
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("incarnation, number", [(1, 1), (1, 2), (2, 1)])
def test_an_answer_counts_where_the_table_says_so_and_for_the_last_echo_alone(
    state: EchoState, lost: bool, incarnation: int, number: int
) -> None:
    sending = begun()
    sending.due()
    if state is EchoState.WAITING:
        sending.echo.give_up(0)
    elif state is EchoState.ABSENT:
        sending.echo.end()
    before = canonical(sending.echo)
    header = wire.read_header([EchoedHeader(incarnation, number, lost, 0).pack(JOB)], JOB)
    sending.echo.answered(header, 0)
    counts = ANSWERS[state] and (incarnation, number) == (1, 1)
    assert (canonical(sending.echo) != before) is counts, "what is dropped changes nothing"
    assert (sending.state() is not state) is (counts and lost)


@pytest.mark.parametrize("flag", ["origin_ns", "count"])
def test_a_flag_of_a_header_is_set_or_clear(flag: str) -> None:
    kind, read = (wire.ECHO, read_echo) if flag == "origin_ns" else (wire.ECHOED, read_echoed)
    header = wire.Header(kind, JOB, 0, 1, 1)
    for value in (0, 1):
        setattr(header, flag, value)
        assert read(header)[7 if kind == wire.ECHO else 2] is bool(value)
    setattr(header, flag, 2)
    with pytest.raises(PeerViolation, match="not a valid ECHO"):
        read(header)
    with pytest.raises(PeerViolation, match="not a valid ECHO"):
        read(wire.Header(wire.DATA, JOB, 0, 1))
