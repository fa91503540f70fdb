"""A hot standby greets the neighbours downstream in advance: the answer comes with its promotion, and none before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from causal.channels import wire
from causal.channels.sender import GREETED_AGAIN_NS
from causal.channels.wire import read_header, read_hello
from causal.effects import Effect, OpenSink, Phase, Reply, Send
from causal.events import FrameReceived, PeerUp, SinkOpened, Started, Turn
from causal.logs.rollback import NO_ROLLBACK
from causal.ports import StoreState
from causal.task.task import TaskProtocol
from operators.runtime.hot_standby import ANSWERS_MAX, Greeting, HotStandby, Neighbour, Promotion
from tests.tasks import task_of
from tests.unit.causal.echoing import CONFIG, JOB, LINK, MIDDLE, TOPOLOGY, Image, begun, hot

DOWN = TOPOLOGY.tasks[2].index
HERE, THERE = "ipc://w3", "tcp://b@10.0.0.2:7"
BACK = b"back"
"""The link by which the neighbour answers the hot standby."""


def shadowing(*neighbours: Neighbour) -> HotStandby[Image]:
    standby = hot([])
    standby.follow(1, 0, [], neighbours)
    for parts in begun().due():
        standby.receive(LINK, parts, 0)
    standby.turn(0)
    assert standby.shadowing
    return standby


def downstream() -> TaskProtocol:
    """Return the neighbour, which runs and knows incarnation 1 of the task."""
    task = task_of(TOPOLOGY, DOWN, 1, CONFIG)
    task.handle(PeerUp(MIDDLE, 1), 0)
    for effect in task.handle(Started(), 0):
        assert isinstance(effect, OpenSink)
        task.handle(SinkOpened(effect.channel, StoreState(0, 0, ())), 0)
    return task


def hellos(effects: Sequence[Effect]) -> list[int]:
    """Return the numbers of the HELLOs that are sent."""
    sent = [effect.parts for effect in effects if isinstance(effect, Send)]
    return [read_hello(parts[1]).attempt for parts in sent if read_header(parts, JOB).kind == wire.HELLO]


def taken_over(standby: HotStandby[Image], incarnation: int = 1) -> tuple[TaskProtocol, list[Effect]]:
    """Return the task, which has started, and what it sent then; the neighbour has that incarnation."""
    task = standby.promote(Promotion(2, 0, [], NO_ROLLBACK), 0)
    assert task is not None
    effects = task.handle(PeerUp(DOWN, incarnation), 0)
    return task, [*effects, *task.handle(Started(), 0), *task.handle(Turn(), 0)]


def test_it_greets_as_the_incarnation_after_that_of_its_task() -> None:
    standby = shadowing(Neighbour(DOWN, HERE, 1))
    [greeting] = standby.greetings(0)
    assert (greeting.task, greeting.endpoint) == (DOWN, HERE)
    header = read_header(greeting.parts, JOB)
    assert (header.kind, header.incarnation) == (wire.HELLO, 2)
    assert standby.greetings(0) == []


def test_the_answer_comes_with_the_announcement_and_the_task_needs_no_other() -> None:
    standby, neighbour = shadowing(Neighbour(DOWN, HERE, 1)), downstream()
    [greeting] = standby.greetings(0)
    assert neighbour.handle(FrameReceived(BACK, greeting.parts), 0) == []
    answers = [effect for effect in neighbour.handle(PeerUp(MIDDLE, 2), 0) if isinstance(effect, Reply)]
    assert [read_header(each.parts, JOB).kind for each in answers] == [wire.WELCOME]
    assert answers[0].link == BACK
    standby.receive(b"", answers[0].parts, 0)
    task, effects = taken_over(standby)
    assert not hellos(effects)
    collected = task.handle(FrameReceived(b"", standby.answers[0]), 0)
    assert Phase("collected") in collected


def test_without_an_answer_it_greets_again() -> None:
    standby = shadowing(Neighbour(DOWN, HERE, 1))
    standby.greetings(0)
    task, effects = taken_over(standby)
    assert not hellos([*effects, *task.handle(Turn(), GREETED_AGAIN_NS - 1)])
    assert task.next_deadline_ns(0) == GREETED_AGAIN_NS
    assert hellos(task.handle(Turn(), GREETED_AGAIN_NS)) == [2]


@pytest.mark.parametrize("endpoint, incarnation", [(HERE, 2), (THERE, 1)])
def test_a_neighbour_that_was_not_greeted_is_greeted_as_soon_as_the_task_starts(
    endpoint: str, incarnation: int
) -> None:
    standby = shadowing(Neighbour(DOWN, endpoint, 1))
    standby.greetings(0)
    assert len(hellos(taken_over(standby, incarnation)[1])) == 1


def test_a_task_on_another_host_is_only_dialled() -> None:
    standby = shadowing(Neighbour(DOWN, THERE, 1))
    assert standby.greetings(0) == [Greeting(DOWN, THERE, [])]
    assert standby.keeps(DOWN, THERE)


def test_a_connection_is_kept_only_where_the_neighbour_is_as_it_was_greeted() -> None:
    standby = shadowing(Neighbour(DOWN, HERE, 1))
    assert not standby.keeps(DOWN, HERE), "it has not been dialled"
    standby.greetings(0)
    assert standby.keeps(DOWN, HERE) and not standby.keeps(DOWN, "ipc://w4")
    standby.follow(1, 0, [], (Neighbour(DOWN, HERE, 2),))
    assert not standby.keeps(DOWN, HERE)
    assert len(standby.greetings(0)) == 1 and standby.keeps(DOWN, HERE)
    standby.follow(2, 0, [], (Neighbour(DOWN, HERE, 2),))
    assert not standby.keeps(DOWN, HERE), "it would not be the next incarnation of its task"
    assert standby.greetings(0) == []


def test_answers_to_an_earlier_greeting_are_dropped() -> None:
    standby = shadowing(Neighbour(DOWN, HERE, 1))
    standby.greetings(0)
    standby.receive(b"", [b"answer"], 0)
    standby.follow(1, 0, [], (Neighbour(DOWN, HERE, 2),))
    standby.greetings(0)
    assert standby.answers == []


def test_answers_take_a_bounded_room() -> None:
    standby = shadowing()
    for _ in range(3 * ANSWERS_MAX):
        standby.receive(b"", [b"answer"], 0)
        assert len(standby.answers) <= ANSWERS_MAX
