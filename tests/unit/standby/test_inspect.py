"""Questions about live state: through the supervisor to the task and back; only the task stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.harness.graphs import chain_of
from causal.commands import Inspect, read_command
from causal.effects import StateReply
from causal.events import StateQuery
from causal.task.vitals import Vitals
from operators.runtime.membership import (
    INSPECTED_BYTES_MAX,
    QUESTIONS_MAX,
    Act,
    Commanded,
    Feed,
    Membership,
    Reported,
    SendReport,
)
from standby.network.control import Inbox, pack
from standby.supervision import effects as fx
from standby.supervision import events
from tests.unit.standby.scene import Scene, of, running, sent

QUESTION = {"task": "count/0", "operator": "count", "key": ("k", 1)}


def ask(scene: Scene, **changed: Any) -> list[fx.Effect]:
    return scene.step(events.Admin("admin-7", "inspect", {**QUESTION, **changed}))


def refusal(heard: Sequence[fx.Effect]) -> str:
    [answer] = of(heard, fx.Answer)
    assert answer.to == "admin-7" and answer.body["ok"] is False
    return str(answer.body["error"])


def test_the_task_is_asked_and_its_answer_handed_on() -> None:
    scene = running()
    heard = ask(scene)
    slot = scene.slot_of("count/0")
    assert sent(heard, "inspect") == [
        (slot, {"kind": "inspect", "to": "admin-7", "operator": "count", "key": ("k", 1)}),
    ]
    assert not of(heard, fx.Answer)
    scene.restart()
    facts = {"task": "count/0", "epoch": 4, "incarnation": 1, "state": "running", "tables": {"count": 3}}
    [answer] = of(scene.step(events.Replied(slot, "admin-7", facts)), fx.Answer)
    assert answer.to == "admin-7" and answer.body == {"kind": "answer", "ok": True, **facts}


def test_what_cannot_be_asked_is_refused_at_once() -> None:
    scene = running()
    assert refusal(ask(scene, task="cuont/0")).startswith("task cuont/0 does not exist; the tasks are read/0, count/0")
    scene.step(events.Exited(scene.slot_of("count/0"), 0, scene.now))
    assert "count/0" in refusal(ask(scene))


@pytest.mark.parametrize(
    ("slot", "to", "task"),
    [("w99", "admin-7", "count/0"), (None, "w1", "count/0"), (None, "admin-7", "read/0")],
    ids=["unknown slot", "not to a person", "of another task"],
)
def test_an_answer_that_nobody_can_have_asked_for_goes_nowhere(slot: str | None, to: str, task: str) -> None:
    scene = running()
    reply = events.Replied(slot or scene.slot_of("count/0"), to, {"task": task})
    assert not of(scene.step(reply), fx.Answer)


def test_the_answer_of_a_worker_is_an_event() -> None:
    event = Inbox().receive(b"w1", pack("inspected", slot="w1", to="admin-7", facts={"task": "count/0"}))
    assert event == events.Replied("w1", "admin-7", {"task": "count/0"})
    assert Inbox().receive(b"w1", pack("inspected", to=3, facts={})) is None


def serving() -> Membership:
    membership = Membership("w1", 1, "ipc://x", chain_of("read/0", "count/0", "out/0"), 100, Vitals)
    promoted = {"kind": "promote", "task": "count/0", "incarnation": 1, "epoch": 0, "files": [], "peers": {}}
    membership.handle(Commanded(read_command(promoted)), 1)
    return membership


def question(membership: Membership, to: str = "admin-7") -> list[Act]:
    return membership.handle(Commanded(Inspect(to, "count", "k")), 2)


def answered(membership: Membership, effect: StateReply) -> list[Act]:
    return membership.handle(Reported("inspected", {"request": effect.request, "facts": effect.facts}), 3)


def test_a_task_answers_whoever_asked() -> None:
    membership = serving()
    [first], [second] = question(membership, "admin-7"), question(membership, "admin-8")
    assert isinstance(first, Feed) and isinstance(second, Feed)
    assert isinstance(first.event, StateQuery) and isinstance(second.event, StateQuery)
    facts = {"task": "count/0", "tables": {"count": 3}}
    assert answered(membership, StateReply(second.event.request, facts)) == [
        SendReport("inspected", {"to": "admin-8", "facts": facts})
    ]
    assert answered(membership, StateReply(second.event.request, facts)) == [], "once"
    assert answered(membership, StateReply(first.event.request, facts)) == [
        SendReport("inspected", {"to": "admin-7", "facts": facts})
    ]


def test_a_standby_answers_nobody() -> None:
    assert question(Membership("w1", 1, "ipc://x", chain_of("read/0", "out/0"), 100, Vitals)) == []


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b"x" * (INSPECTED_BYTES_MAX + 1), "bytes exceed the limit of an answer; ask without --live"),
        ({1}, "it cannot be sent: a set does not keep its order when it is restored"),
    ],
)
def test_what_no_message_can_hold_is_refused_in_one_line(value: Any, line: str) -> None:
    membership = serving()
    question(membership)
    [report] = answered(membership, StateReply(1, {"task": "count/0", "tables": {"count": value}}))
    assert isinstance(report, SendReport) and line in report.facts["facts"]["error"]
    assert "tables" not in report.facts["facts"]


def test_questions_that_wait_are_bounded() -> None:
    membership = serving()
    for number in range(QUESTIONS_MAX + 1):
        question(membership, f"admin-{number}")
    assert answered(membership, StateReply(1, {})) == []
    assert answered(membership, StateReply(2, {})) == [SendReport("inspected", {"to": "admin-1", "facts": {}})]
