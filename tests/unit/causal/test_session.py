"""The tables of sessions and echoes, and moments of a session that no table shows."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from causal.channels import sender as sender_module
from causal.channels import wire
from causal.channels.exchange import _HANDLERS
from causal.channels.frames import FRAMES
from causal.channels.rolling import RollingDigest
from causal.channels.states import RECEIVER, SENDER, ReceiverStep, SenderState, SenderStep, transition
from causal.effects import Send
from causal.errors import InvariantViolation
from causal.records.batch import pack_chunks
from causal.task.echo_states import ECHO, SHADOW, EchoStep, ShadowStep
from tests.unit.causal.middle import ANNOUNCED, DOWNSTREAM, JOB, RECORDS, Middle, header_of

TABLES: list[tuple[Mapping[Any, Mapping[Any, Any]], type[Enum]]] = [
    (SENDER, SenderStep),
    (RECEIVER, ReceiverStep),
    (ECHO, EchoStep),
    (SHADOW, ShadowStep),
]
every_table = pytest.mark.parametrize("table, steps", TABLES, ids=["sender", "receiver", "echo", "shadow"])


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


def _open(middle: Middle) -> None:
    _greeting(middle)
    _answer(middle, 0)


def test_every_kind_has_a_rule_and_a_handler() -> None:
    assert set(FRAMES) == set(wire.KINDS) - wire.ECHOES == set(_HANDLERS)
    assert {kind for kind, rule in FRAMES.items() if rule.from_upstream} == {wire.DATA, wire.HELLO}


@every_table
def test_a_table_has_no_other_transitions_than_it_says(
    table: Mapping[Any, Mapping[Any, Any]], steps: type[Enum]
) -> None:
    for state in table:
        for step in steps:
            if step in table[state]:
                assert transition(table, state, step) is table[state][step]
            else:
                with pytest.raises(InvariantViolation, match="no such transition.*channel=7"):
                    transition(table, state, step, channel=7)


@every_table
def test_every_state_can_be_reached_and_left(table: Mapping[Any, Mapping[Any, Any]], steps: type[Enum]) -> None:
    """A receiver stays open for the rest of its life; all other states can be reached from any."""
    for begin in [*table][:1] if table is RECEIVER else table:
        reached, frontier = {begin}, [begin]
        while frontier:
            following = table[frontier.pop()]
            frontier += [state for state in following.values() if state not in reached]
            reached |= set(following.values())
        assert reached == set(type(begin).__members__.values()) == set(table)


def test_a_late_report_of_a_dead_incarnation_does_not_undo_what_is_known_of_its_successor() -> None:
    middle = Middle()
    _open(middle)
    middle.exchange.peer_down(DOWNSTREAM.target, ANNOUNCED - 1)
    middle.exchange.peer_up(DOWNSTREAM.target, ANNOUNCED - 1, False, 0)
    assert (state_of(middle), middle.sender.peer_incarnation) == (SenderState.OPEN, ANNOUNCED)


def test_an_answer_that_was_under_way_when_its_receiver_died_opens_the_session() -> None:
    """The determinants that it held are true; the next announcement begins again."""
    middle = Middle()
    _absent(middle)
    middle.receive(wire.WELCOME, ANNOUNCED, [wire.Welcome(99, 0, 0, [], [], []).pack()])
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
