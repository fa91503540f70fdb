"""Inquiries about lost determinants: who is asked, who rolls back, and what the journal says of it."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.graphs import graph
from causal.ids import OUTSIDE
from causal.logs.rollback import Extent, OrphanAnswer
from standby.supervision import effects as fx
from standby.supervision import events
from tests.unit.standby.scene import Scene, of, sent

LEFT, RIGHT = ("a/0", "b/0"), ("c/0", "d/0")
NAMES = ("a/0", "c/0", "b/0", "d/0")
A, C, B, D = range(4)
TWO_CHAINS = graph(NAMES, (OUTSIDE, A), (OUTSIDE, C), (A, B), (C, D), (B, OUTSIDE), (D, OUTSIDE))


class Chains(Scene):
    """A job of two chains that no channel connects, all of whose processes are up."""

    def __init__(self) -> None:
        super().__init__(topology=TWO_CHAINS, checkpoint_interval_s=3600.0, sharing_depth="1")
        self.beats(6)

    def _obey(self, effect: fx.Send) -> None:
        super()._obey(effect)
        worker = self.living.get(effect.slot)
        if worker is not None and effect.message["kind"] == "keep":
            worker["rollback"] = effect.message["rollback"]["number"]

    def beat(self, slot: str, after_ms: float = 1, **fields: Any) -> list[fx.Effect]:
        return super().beat(slot, after_ms, **{"rollback": self.living[slot].get("rollback", 0), **fields})

    def lose(self, task: int, extent: int = 5) -> list[fx.Effect]:
        """Return a task reports that this is all that it could collect of its log."""
        return self.beat(self.slot_of(NAMES[task]), lost=((task, 1, extent),))

    def answer(self, task: str, number: int, orphan: Extent | None = None, settled: bool = True) -> list[fx.Effect]:
        finding = OrphanAnswer(settled, orphan, ())
        return self.step(events.OrphanReport(self.slot_of(task), task, self.incarnation_of(task), number, finding))

    def asked(self, heard: list[fx.Effect]) -> dict[str, int]:
        """Task → the number of the question that was sent to it."""
        tasks = {self.slot_of(name): name for name in NAMES}
        return {tasks[slot]: message["number"] for slot, message in sent(heard, "inquire")}

    def kept(self, heard: list[fx.Effect]) -> dict[str, int]:
        """Task → the number of the decision that was sent to it."""
        tasks = {self.slot_of(name): name for name in NAMES}
        return {tasks[slot]: message["rollback"]["number"] for slot, message in sent(heard, "keep")}


def records(heard: list[fx.Effect], kind: str) -> list[dict[str, Any]]:
    return [dict(effect.record) for effect in of(heard, fx.Journal) if effect.record["kind"] == kind]


def test_only_tasks_that_channels_connect_with_the_owner_are_asked_and_hear_the_decision() -> None:
    scene = Chains()
    heard = scene.lose(A) + scene.beats(3)
    assert scene.asked(heard) == dict.fromkeys(LEFT, 1)
    heard = scene.answer("a/0", 1, settled=False) + scene.answer("b/0", 1)
    (decision,) = records(heard, "rolled_back")
    assert decision["tasks"] == {"a/0": 2} and decision["component"] == A
    scene.living[scene.slot_of("a/0")]["incarnation"] = 2
    heard += scene.idle(1200)
    assert scene.kept(heard) == dict.fromkeys(LEFT, 1)
    assert not set(scene.asked(heard)) - set(LEFT)
    for task, number in (("a/0", 1), ("c/0", 0)):  # what a successor learns
        heard = scene.die(scene.slot_of(task)) + scene.idle(200)
        assert {m["rollback"]["number"] for _, m in sent(heard, "promote") if m["task"] == task} == {number}


def test_two_inquiries_at_the_same_time_are_decided_each_by_its_own_answers() -> None:
    scene = Chains()
    heard = scene.lose(A) + scene.lose(D) + scene.beats(3)
    assert scene.asked(heard) == {"a/0": 1, "b/0": 1, "c/0": 2, "d/0": 2}
    heard = scene.answer("d/0", 1) + scene.answer("c/0", 1) + scene.answer("b/0", 2)  # of the other question
    assert not records(heard, "rolled_back")
    heard = scene.answer("c/0", 2) + scene.answer("a/0", 1, settled=False) + scene.answer("d/0", 2, settled=False)
    (right,) = records(heard, "rolled_back")
    assert right["tasks"] == {"d/0": 2} and right["rollback"]["number"] == 2
    assert scene.supervision.inquiries.of("a/0").lost, "the other question stays open"
    (left,) = records(scene.answer("b/0", 1, orphan=(A, 1, 5)), "rolled_back")
    assert left["tasks"] == {"a/0": 2, "b/0": 2} and left["rollback"]["number"] == 1
    assert [each[1] for each in left["rollback"]["lost"]] == [A]
    scene.restart()
    decided = {task: scene.supervision.inquiries.rollback_of(task).number for task in NAMES}
    assert decided == {"a/0": 1, "b/0": 1, "c/0": 2, "d/0": 2}


def test_a_number_is_that_of_one_question_in_the_whole_job_also_after_a_restart() -> None:
    scene = Chains()
    scene.lose(A)
    scene.restart()
    scene.beats(2)
    heard = scene.lose(D)
    heard += scene.lose(A, 3) + scene.beats(1)
    assert [(record["number"], record["component"]) for record in records(heard, "inquired")] == [(2, C), (3, A)]
    assert scene.asked(heard) | scene.asked(scene.beats(2)) == {"a/0": 3, "b/0": 3, "c/0": 2, "d/0": 2}


def test_a_journal_without_components_is_one_in_which_every_task_was_asked() -> None:
    scene = Chains()
    scene.journal += [
        {"kind": "inquired", "number": 1, "lost": [[A, 1, 5]]},
        {
            "kind": "rolled_back",
            "rollback": {"number": 1, "lost": [[1, A, 1, 5]], "retreats": [[A, 2, []]]},
            "tasks": {"a/0": 2},
            "why": {"a/0": "it was lost"},
            "at_ns": scene.now,
        },
    ]
    scene.restart()
    scene.living[scene.slot_of("a/0")]["incarnation"] = 2
    heard = scene.beats(2)
    assert scene.kept(heard) == dict.fromkeys(NAMES, 1), "each of them waits for it"
    scene.journal.append({"kind": "inquired", "number": 2, "lost": [[A, 1, 5]]})
    scene.restart()
    assert scene.asked(scene.beats(2)) == dict.fromkeys(NAMES, 2)
    heard = [effect for task in NAMES for effect in scene.answer(task, 2)]
    assert {record["component"] for record in records(heard, "rolled_back")} == {A, C}
    assert not scene.supervision.inquiries.open


def test_a_checkpoint_forgets_older_losses_of_each_component() -> None:
    scene = Chains()
    scene.lose(A)
    scene.answer("a/0", 1)
    scene.answer("b/0", 1)
    assert scene.supervision.inquiries.rollback_of("a/0").lost == ((1, A, 1, 5),)
    for _ in range(2):
        scene.supervision.coordinator.requested = scene.supervision.coordinator.complete + 1
        scene.idle(600)
        for task in NAMES:
            scene.acknowledge(task, scene.supervision.coordinator.complete + 1)
    assert scene.supervision.coordinator.complete == 2
    assert scene.supervision.inquiries.rollback_of("a/0").lost == ()
    assert scene.supervision.inquiries.rollback_of("a/0").number == 1
