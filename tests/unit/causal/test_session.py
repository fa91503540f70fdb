"""The tables of a session: every state with every frame and every step, against what the tables say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from causal.channels import sender as sender_module
from causal.channels import wire
from causal.channels.exchange import _HANDLERS
from causal.channels.frames import FRAMES, Refusal, Rule
from causal.channels.rolling import RollingDigest
from causal.channels.states import (
    RECEIVER,
    SENDER,
    ReceiverState,
    ReceiverStep,
    SenderState,
    SenderStep,
    transition,
)
from causal.effects import Effect, Reply, Send
from causal.errors import Fenced, InvariantViolation
from causal.logs.deltas import pack_deltas
from causal.records.batch import pack_chunks
from tests.exhaustive.frozen import canonical
from tests.unit.causal.middle import ANNOUNCED, DOWNSTREAM, JOB, LINK, RECORDS, UPSTREAM, Middle, header_of


def _answer(middle: Middle, next_position: int) -> None:
    digest = middle.sender.digest if next_position == middle.sender.position else 0
    hello = middle.sender.hello(True, 0)
    middle.sender.welcome(wire.Welcome(hello.attempt, next_position, digest, [], [], []), True, 0)


def state_of(middle: Middle) -> SenderState:
    """Return the state of the sender, read again at each call."""
    return middle.sender.state


def _absent(middle: Middle) -> None:
    middle.exchange.peer_up(DOWNSTREAM.target, ANNOUNCED, False, 0)
    middle.exchange.peer_down(DOWNSTREAM.target, ANNOUNCED)


def _greeting(middle: Middle) -> None:
    middle.exchange.peer_up(DOWNSTREAM.target, ANNOUNCED, False, 0)


def _comparing(middle: Middle) -> None:
    _greeting(middle)
    _answer(middle, 3)


def _open(middle: Middle) -> None:
    _greeting(middle)
    _answer(middle, 0)


SENDERS: dict[SenderState, Callable[[Middle], None]] = {
    SenderState.ABSENT: _absent,
    SenderState.GREETING: _greeting,
    SenderState.COMPARING: _comparing,
    SenderState.OPEN: _open,
}


def _announce(middle: Middle) -> None:
    middle.exchange.announce(UPSTREAM.source, ANNOUNCED)


def _ready(middle: Middle) -> None:
    middle.exchange.collected()


def _collected(middle: Middle) -> None:
    _announce(middle)
    middle.exchange.collected()


RECEIVERS: dict[ReceiverState, Callable[[Middle], None]] = {
    ReceiverState.UNKNOWN: lambda middle: None,
    ReceiverState.HELD: _announce,
    ReceiverState.READY: _ready,
    ReceiverState.OPEN: _collected,
}
BODIES: dict[int, list[bytes]] = {
    wire.DATA: [b"", pack_chunks([RECORDS])],
    wire.HELLO: [wire.Hello(1, 0, 0, 0, False).pack()],
    wire.WELCOME: [wire.Welcome(99, 0, 0, [], [], []).pack()],
    wire.CREDIT: [],
    wire.FENCED: [],
    wire.LOGS: [pack_deltas([], [])],
}


def test_every_kind_has_a_rule_and_a_handler() -> None:
    assert set(FRAMES) == set(wire.KINDS) - wire.ECHOES == set(_HANDLERS) == set(BODIES)
    assert {kind for kind, rule in FRAMES.items() if rule.from_upstream} == {wire.DATA, wire.HELLO}


@pytest.mark.parametrize("state", SenderState)
@pytest.mark.parametrize("step", SenderStep)
def test_a_sender_takes_the_steps_of_the_table_and_no_other(state: SenderState, step: SenderStep) -> None:
    middle = Middle()
    SENDERS[state](middle)
    assert middle.sender.state is state
    if step in SENDER[state]:
        middle.sender._step(step)
        assert middle.sender.state is SENDER[state][step]
    else:
        with pytest.raises(InvariantViolation, match="no such transition"):
            middle.sender._step(step)
        assert middle.sender.state is state


@pytest.mark.parametrize("state", ReceiverState)
@pytest.mark.parametrize("step", ReceiverStep)
def test_a_receiver_takes_the_steps_of_the_table_and_no_other(state: ReceiverState, step: ReceiverStep) -> None:
    middle = Middle()
    RECEIVERS[state](middle)
    assert middle.receiver.state is state
    if step in RECEIVER[state]:
        middle.receiver._step(step)
        assert middle.receiver.state is RECEIVER[state][step]
    else:
        with pytest.raises(InvariantViolation, match="no such transition"):
            middle.receiver._step(step)
        assert middle.receiver.state is state


def test_every_state_can_be_reached_and_left() -> None:
    for table, first in ((SENDER, SenderState.ABSENT), (RECEIVER, ReceiverState.UNKNOWN)):
        reached, frontier = {first}, [first]
        while frontier:
            steps = table[frontier.pop()]  # type: ignore[index]
            frontier += [state for state in steps.values() if state not in reached]
            reached |= set(steps.values())
        assert reached == set(type(first)) == set(table)
    with pytest.raises(InvariantViolation, match="channel=7"):
        transition(RECEIVER, ReceiverState.OPEN, ReceiverStep.COLLECTED, channel=7)


def _refused(middle: Middle, rule: Rule, refusal: Refusal | str, effects: list[Effect]) -> None:
    """Check that a frame that is not taken was treated as the table says."""
    if refusal is Refusal.FENCE:
        (fenced,) = effects
        assert isinstance(fenced, Reply) and fenced.link == LINK
        header = wire.read_header(fenced.parts, JOB)
        assert (header.kind, header.incarnation) == (wire.FENCED, ANNOUNCED)
    elif refusal is Refusal.KEEP:
        assert effects == [] and middle.receiver._early_hello is not None and not middle.reports
    else:
        assert effects == [] and middle.reports == [f"dropped a frame: {refusal}"]


@pytest.mark.parametrize(
    "kind, state",
    [(k, s) for k, rule in FRAMES.items() for s in (ReceiverState if rule.from_upstream else SenderState)],
    ids=str,
)
@pytest.mark.parametrize("incarnation", [1, ANNOUNCED, 3])
def test_a_frame_is_taken_where_the_table_says_so(
    kind: int, state: ReceiverState | SenderState, incarnation: int
) -> None:
    middle, rule = Middle(), FRAMES[kind]
    if isinstance(state, ReceiverState):
        RECEIVERS[state](middle)
    else:
        SENDERS[state](middle)
    end = middle.receiver if rule.from_upstream else middle.sender
    before = canonical((middle.receiver, middle.sender))
    if kind == wire.FENCED and incarnation > ANNOUNCED:
        with pytest.raises(Fenced):
            middle.receive(kind, incarnation, BODIES[kind])
        return
    effects = middle.receive(kind, incarnation, BODIES[kind])
    announced = end.peer_incarnation
    if kind == wire.FENCED:
        assert effects == [] and middle.reports == [
            "dropped a frame: a FENCED names an incarnation that is not newer than this one"
        ]
    elif incarnation != announced:
        _refused(middle, rule, rule.older if incarnation < announced else rule.younger, effects)
    elif state not in rule.legal:
        _refused(middle, rule, rule.illegal, effects)
    else:
        assert not middle.reports
        return
    if incarnation == announced or rule.younger is not Refusal.KEEP:
        assert canonical((middle.receiver, middle.sender)) == before, "what is dropped changes nothing"


@pytest.mark.parametrize("kind, here", list(product(FRAMES, (False, True))))
def test_a_frame_on_another_channel_is_dropped(kind: int, here: bool) -> None:
    middle, rule = Middle(), FRAMES[kind]
    channel = (DOWNSTREAM.id if rule.from_upstream else UPSTREAM.id) if here else 999
    parts = [header_of(kind, channel, ANNOUNCED).pack(), *BODIES[kind]]
    before = canonical((middle.receiver, middle.sender))
    assert middle.exchange.receive(LINK if rule.from_upstream else b"", parts, True, 0) == []
    assert middle.reports == [f"dropped a frame: {rule.misplaced.format(channel=channel)}"]
    assert canonical((middle.receiver, middle.sender)) == before


def test_an_answer_that_was_under_way_when_its_receiver_died_opens_the_session() -> None:
    """The determinants that it held are true; the next announcement begins again."""
    middle = Middle()
    _absent(middle)
    middle.receive(wire.WELCOME, ANNOUNCED, BODIES[wire.WELCOME])
    assert state_of(middle) is SenderState.OPEN
    middle.exchange.peer_up(DOWNSTREAM.target, 3, False, 0)
    assert state_of(middle) is SenderState.GREETING


def test_what_a_receiver_had_when_it_died_is_still_compared() -> None:
    middle = Middle()
    regenerated = RollingDigest().feed(pack_chunks([RECORDS]))
    _greeting(middle)
    middle.sender.welcome(wire.Welcome(1, 1, regenerated, [], [], []), True, 0)
    assert state_of(middle) is SenderState.COMPARING and middle.sender.expecting
    middle.sender.lose()
    middle.sender.put(RECORDS)
    assert state_of(middle) is SenderState.ABSENT and not middle.sender.expecting


def test_a_session_ends_before_its_frames_cannot_be_numbered_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "FRAMES_MAX", 2)
    middle = Middle()
    _open(middle)
    sent = 0
    while state_of(middle) is SenderState.OPEN:
        assert sent <= 2
        middle.sender.put(RECORDS)
        sent += len(middle.exchange.pump(0))
        credit = header_of(wire.CREDIT, DOWNSTREAM.id, ANNOUNCED)
        credit.position, credit.count = middle.sender.position, 1 << 20
        [*hello] = middle.exchange.receive(b"", [credit.pack()], False, 0)
    assert state_of(middle) is SenderState.GREETING
    assert [wire.read_header(effect.parts, JOB).kind for effect in hello if isinstance(effect, Send)] == [wire.HELLO]
    _answer(middle, middle.sender.position)
    assert state_of(middle) is SenderState.OPEN and middle.sender.sequence == 0
