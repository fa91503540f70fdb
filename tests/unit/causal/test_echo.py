"""The echo of a task and the shadow that performs it: what is refused, what is bounded, and who may take over."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.channels import wire
from causal.channels.echo_headers import read_echo, read_echoed
from causal.channels.wire import Header
from causal.cut import Cut
from causal.errors import PeerViolation
from causal.logs.deltas import unpack_deltas
from causal.logs.rollback import Rollback, TaskRollback
from causal.ports import PlainChain
from causal.task import echo as echo_module
from causal.task.checkpointing import Checkpointing
from causal.task.echo import AGAIN_NS_MAX, AGAIN_NS_MIN
from causal.task.echo_states import EchoState
from causal.task.shadow import read_frames
from operators.runtime.hot_standby import Promotion
from tests.unit.causal.echoing import INPUT, JOB, LINK, Sending, barriers, begun, following, hot


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(0, 60), st.integers(0, 255))
def test_the_frames_of_an_echo_are_read_as_they_were_written_or_refused(
    payloads: list[bytes], at: int, other: int
) -> None:
    inner = [Header(wire.DATA, JOB, INPUT, 1, count=1, position=i, plain_bytes=len(p)) for i, p in enumerate(payloads)]
    body = b"".join(header.pack() + payload for header, payload in zip(inner, payloads, strict=True))
    count = len(payloads)
    assert [(header, bytes(payload)) for header, payload in read_frames(JOB, count, body)] == [*zip(inner, payloads)]
    for damaged in (body[:-1], body + b"x"):
        if payloads or damaged:
            with pytest.raises(PeerViolation):
                read_frames(JOB, count, damaged)
    if at < len(body) and body[at] != other:
        try:
            read_frames(JOB, count, body[:at] + bytes((other,)) + body[at + 1 :])
        except PeerViolation:
            pass  # the only error that a damaged frame raises


def test_an_echo_begins_with_the_positions_of_its_inputs_and_continues_with_what_was_taken() -> None:
    sending = begun()
    first, second = barriers(2)
    sending.take(first)
    [opening] = sending.due()
    header = wire.read_header(opening, JOB)
    [start, taken] = read_frames(JOB, header.count, opening[2])
    assert (start[0].count, start[0].position, taken[0].position, bytes(taken[1])) == (0, 0, 0, first)
    assert sending.due() == []
    sending.take(second)
    [following] = sending.due()
    assert wire.read_header(following, JOB).sequence == 1


def test_a_standby_that_lags_costs_the_echo_and_another_one_begins_later_and_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(echo_module, "ECHO_BYTES_MAX", 200)
    sending, now_ns, waits = begun(), 0, []
    payloads = iter(barriers(40))
    for _ in range(3):
        while sending.state() is EchoState.ACTIVE:
            sending.take(next(payloads))
            sending.due(now_ns)
        ended_ns = now_ns
        while not sending.due(now_ns):
            now_ns += AGAIN_NS_MIN // 4
        waits.append((now_ns - ended_ns) // AGAIN_NS_MIN)
    assert waits == [1, 2, 4]


def test_what_a_turn_has_taken_travels_in_frames_that_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may take more between two turns than one frame may hold; its standby performs it together."""
    monkeypatch.setattr(echo_module, "FRAME_BYTES_TARGET", 200)
    sending, standby = begun(), hot([])
    for payload in barriers(10):
        sending.take(payload)
    frames = sending.due()
    assert len(frames) > 3 and all(len(parts[2]) <= 200 for parts in frames)
    headers = [read_echo(wire.read_header(parts, JOB)) for parts in frames]
    assert [header.more for header in headers] == [True] * (len(frames) - 1) + [False]
    for parts in frames[:-1]:
        standby.receive(LINK, parts, 0)
        standby.turn(0)
    assert standby.shadowing and standby.facts["behind"] == 0
    standby.receive(LINK, frames[-1], 0)
    standby.turn(0)
    assert standby.facts["behind"] == 10


def test_an_echo_ends_before_its_frames_cannot_be_numbered_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo_module, "FRAMES_MAX", 3)
    sending = begun()
    for payload in barriers(3):
        assert sending.state() is EchoState.ACTIVE
        sending.take(payload)
        assert len(sending.due()) == 1
    assert sending.state() is EchoState.WAITING
    [opening] = sending.due(AGAIN_NS_MIN)
    assert read_echo(wire.read_header(opening, JOB)).number == 0


def test_what_elements_depend_on_is_echoed_once_a_turn() -> None:
    """A frame names a bounded number of extents."""
    sending = begun(depth=1)
    for extent, payload in enumerate(barriers(100)):
        sending.take(payload, [(0, 0, extent), (0, 1, extent)])
    [frame] = sending.due()
    assert unpack_deltas(frame[1])[1] == [(0, 0, 99), (0, 1, 99)]


def test_a_standby_that_keeps_up_costs_nothing_however_much_is_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo_module, "ECHO_BYTES_MAX", 200)
    sending = begun()
    for payload in barriers(40):
        sending.take(payload)
        assert len(sending.due()) == 1
        sending.acknowledge(sending.receiver.next)
    assert sending.state() is EchoState.ACTIVE


def test_a_shadow_takes_nothing_from_another_incarnation_or_job_or_of_a_session() -> None:
    [opening] = begun().due()
    shadow = following(incarnation=2)
    foreign = Header(wire.ECHO, JOB + 1, INPUT, 2, 1).pack()
    data = Header(wire.DATA, JOB, INPUT, 2, count=1).pack()
    for parts in (opening, [foreign, b"", b""], [data, b"", b""], [b"short"]):
        assert shadow.receive(LINK, parts) is False
    assert not shadow.follows(Cut()) and shadow.acknowledgement() is None


def test_an_echo_whose_first_frame_came_too_early_is_asked_for_again() -> None:
    """The order of the supervisor and the first frame come by different ways."""
    sending = begun()
    [early] = sending.due()
    sending.take(barriers(1)[0])
    [later] = sending.due()
    shadow = following(incarnation=0)
    assert shadow.receive(LINK, early) is False and shadow.acknowledgement() is None
    shadow.announce(1)
    with pytest.raises(PeerViolation, match="frame 1 of an echo arrived, but the next frame is 0"):
        shadow.receive(LINK, later)
    assert not shadow.follows(Cut())
    acknowledgement = shadow.acknowledgement()
    assert acknowledgement is not None
    sending.echo.answered(wire.read_header(acknowledgement[1], JOB), 0)
    assert sending.state() is EchoState.WAITING


@pytest.mark.parametrize("start, cut, follows", [(0, 0, True), (3, 2, False), (3, 3, True), (3, 4, True)])
def test_a_shadow_begins_only_where_everything_behind_the_checkpoint_was_echoed(
    start: int, cut: int, follows: bool
) -> None:
    sending = Sending()
    for payload in barriers(start):
        sending.take(payload)
    sending.echo.begin()
    shadow = following()
    [opening] = sending.due()
    shadow.receive(LINK, opening)
    assert shadow.follows(Cut(inputs={INPUT: (cut, 0, False)})) is follows


def test_a_standby_that_follows_another_incarnation_performs_nothing_of_the_one_before() -> None:
    """The next incarnation may have taken other elements, or in another order, and its echo may never arrive."""
    lines: list[str] = []
    standby = hot(lines)
    [opening] = begun().due()
    standby.receive(LINK, opening, 0)
    assert standby.shadowing
    assert not standby.follow(2, 1, []), "a state is to be loaded"
    assert not standby.shadowing and standby.follows is None
    assert "a new incarnation" in lines[-1]
    assert standby.promote(Promotion(3, 1, [], Rollback()), 0) is None


def test_an_echo_that_is_lost_before_it_is_performed_leaves_the_state_that_is_loaded() -> None:
    """The standby is as good as a passive one: what was loaded needs not be loaded again."""
    sending = Sending()
    sending.take(barriers(1)[0])
    sending.echo.begin()
    standby = hot([])
    frames = []
    for payload in barriers(3)[1:]:
        sending.take(payload)
        frames += sending.due()
    sending.take(barriers(4)[3])
    [beyond] = sending.due()
    standby.receive(LINK, frames[0], 0)
    assert not standby.shadowing and standby.follows == 0
    standby.receive(LINK, beyond, 0)
    assert standby.follows == 0 and standby.image is not None
    answer = standby.turn(0)
    assert answer is not None and read_echoed(wire.read_header(answer[1], JOB)).lost
    assert standby.take_image() is not None


LOST = Rollback(1, ((1, 0, 0, 0),), {0: TaskRollback(2, {})})


@pytest.mark.parametrize(
    "decided, promotion, line",
    [
        (0, Promotion(2, 0, [], Rollback()), ""),
        (0, Promotion(2, 1, [], Rollback()), "cannot take over at checkpoint 1"),
        (0, Promotion(2, 0, [], LOST), "cannot take over after rollback 1"),
        (1, Promotion(2, 0, [], LOST), ""),  # its echo began after that rollback
        (0, Promotion(3, 0, [], Rollback()), "cannot take over as incarnation 3"),
    ],
)
def test_a_hot_standby_becomes_its_task_only_from_a_barrier_that_it_has_passed_and_if_nothing_was_lost_since(
    decided: int, promotion: Promotion, line: str
) -> None:
    lines: list[str] = []
    standby = hot(lines)
    [opening] = begun(decided=decided).due()
    standby.receive(LINK, opening, 0)
    assert standby.shadowing and standby.follows == 0 and standby.image is None
    task = standby.promote(promotion, 0)
    if line:
        assert task is None and line in lines[-1]
    else:
        assert (
            task is not None
            and task.incarnation == task.exchange.incarnation == task.execution.writing.incarnation == 2
        )


def test_a_promoted_task_extends_the_files_of_the_complete_checkpoint() -> None:
    files = [("checkpoints/a", 1, "d")]
    checkpointing = Checkpointing(cast(Any, PlainChain()), Cut(), [])
    checkpointing.withholding = True
    checkpointing.resume(3, files, None)
    assert checkpointing.files == files and not checkpointing.withholding


def test_a_standby_that_cannot_begin_within_the_bound_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo_module, "ECHO_BYTES_MAX", 2 << 10)
    sending, now_ns = begun(), 0
    for payload in barriers(300):
        sending.take(payload)
        sending.due(now_ns)
        now_ns += AGAIN_NS_MAX // 20
    assert sending.echo._number > 2, "several echoes have begun"
    assert len(sending.said) == 1 and "has not started within" in sending.said[0]


def test_a_standby_that_performs_and_lags_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo_module, "ECHO_BYTES_MAX", 2 << 10)
    sending = begun()
    for place, payload in enumerate(barriers(100)):
        sending.take(payload)
        sending.due()
        if place == 3:
            sending.acknowledge(2)
    assert sending.state() is EchoState.WAITING and not sending.said
