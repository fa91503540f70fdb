"""Questions about live state: through the supervisor to the task and back, remembered by nobody but the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from causal.effects import Inspected
from causal.events import Inspect
from operators.membership import (
    INSPECTED_BYTES_MAX,
    QUESTIONS_MAX,
    Act,
    Feed,
    Membership,
    Reported,
    Tell,
    Told,
    Vitals,
)
from standby import effects as fx
from standby import events
from standby.control import Inbox, pack
from tests.unit.standby.scene import Scene, chain_of, of, running, sent

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
    assert refusal(ask(scene, task="cuont/0")).startswith("there is no task cuont/0; tasks are read/0, count/0")
    scene.step(events.Exited(scene.slot_of("count/0"), 0, scene.now))
    assert "count/0" in refusal(ask(scene))


@pytest.mark.parametrize(
    ("slot", "to", "task"),
    [("w99", "admin-7", "count/0"), (None, "w1", "count/0"), (None, "admin-7", "read/0")],
    ids=["nobody", "not to a person", "of another task"],
)
def test_an_answer_that_nobody_can_have_asked_for_goes_nowhere(slot: str | None, to: str, task: str) -> None:
    scene = running()
    given = events.Replied(slot or scene.slot_of("count/0"), to, {"task": task})
    assert not of(scene.step(given), fx.Answer)


def test_the_answer_of_a_worker_is_an_event() -> None:
    told = Inbox().receive(b"w1", pack("inspected", slot="w1", to="admin-7", facts={"task": "count/0"}))
    assert told == events.Replied("w1", "admin-7", {"task": "count/0"})
    assert Inbox().receive(b"w1", pack("inspected", to=3, facts={})) is None


def serving() -> Membership:
    found = Membership("w1", 1, "ipc://x", chain_of("read/0", "count/0", "out/0"), 100, Vitals)
    promoted = {"kind": "promote", "task": "count/0", "incarnation": 1, "epoch": 0, "files": [], "peers": {}}
    found.handle(Told(promoted), 1)
    return found


def question(found: Membership, to: str = "admin-7") -> list[Act]:
    return found.handle(Told({"kind": "inspect", "to": to, "operator": "count", "key": "k"}), 2)


def answered(found: Membership, effect: Inspected) -> list[Act]:
    return found.handle(Reported("inspected", {"request": effect.request, "facts": effect.facts}), 3)


def test_a_task_answers_whoever_asked() -> None:
    found = serving()
    [first], [second] = question(found, "admin-7"), question(found, "admin-8")
    assert isinstance(first, Feed) and isinstance(second, Feed)
    assert isinstance(first.event, Inspect) and isinstance(second.event, Inspect)
    facts = {"task": "count/0", "tables": {"count": 3}}
    assert answered(found, Inspected(second.event.request, facts)) == [
        Tell("inspected", {"to": "admin-8", "facts": facts})
    ]
    assert answered(found, Inspected(second.event.request, facts)) == [], "once"
    assert answered(found, Inspected(first.event.request, facts)) == [
        Tell("inspected", {"to": "admin-7", "facts": facts})
    ]


def test_a_standby_answers_nobody() -> None:
    assert question(Membership("w1", 1, "ipc://x", chain_of("read/0", "out/0"), 100, Vitals)) == []


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b"x" * (INSPECTED_BYTES_MAX + 1), "bytes are too many for an answer; ask without --live"),
        ({1}, "it cannot be told: a set has no order that survives a restore"),
    ],
)
def test_what_no_message_can_hold_is_told_in_one_line(value: Any, line: str) -> None:
    found = serving()
    question(found)
    [told] = answered(found, Inspected(1, {"task": "count/0", "tables": {"count": value}}))
    assert isinstance(told, Tell) and line in told.facts["facts"]["error"]
    assert "tables" not in told.facts["facts"]


def test_questions_that_wait_are_bounded() -> None:
    found = serving()
    for number in range(QUESTIONS_MAX + 1):
        question(found, f"admin-{number}")
    assert answered(found, Inspected(1, {})) == []
    assert answered(found, Inspected(2, {})) == [Tell("inspected", {"to": "admin-1", "facts": {}})]
