"""The supervisor of a `causal run --verify-replay`: it waits for every task, and stops at the first difference."""

from __future__ import annotations

from typing import Any

import pytest

from standby.network.control import Inbox, pack
from standby.supervision import effects as fx
from standby.supervision.events import Beat, Tick
from tests.unit.standby.scene import Scene, of, running, sent

TASKS = ("read/0", "count/0", "out/0")


def checking() -> Scene:
    scene = Scene(verify_replay=True)
    scene.beats(4)
    return scene


def finish(scene: Scene) -> None:
    for task in TASKS:
        scene.beat(scene.slot_of(task), state="finished")


def stopped(scene: Scene) -> tuple[int, str] | None:
    return scene.supervision.job.stopping


def test_the_end_waits_until_every_task_was_performed_again() -> None:
    scene = checking()
    finish(scene)
    assert stopped(scene) is None
    for task in TASKS[:2]:
        scene.beat(scene.standby_of(task), checked=(1, ""))
    assert stopped(scene) is None
    scene.beat(scene.standby_of(TASKS[2]), checked=(3, ""))
    assert stopped(scene) == (0, "")
    view = scene.view
    assert {task["task"]: task["checked_epochs"] for task in view["tasks"]} == {"read/0": 1, "count/0": 1, "out/0": 3}


def test_what_was_never_performed_again_fails_the_check_after_a_while() -> None:
    scene = checking()
    for task in ("read/0", "out/0"):
        scene.beat(scene.standby_of(task), checked=(1, ""))
    finish(scene)
    for _ in range(70):
        for slot in list(scene.living):
            task = scene.living[slot]["task"]
            scene.beat(slot, after_ms=200, state="finished" if task else "standby")
    end = stopped(scene)
    assert end is not None and end[0] == 1 and "count/0" in end[1] and "read/0" not in end[1]


def test_a_difference_stops_the_job_at_once() -> None:
    scene = checking()
    scene.beat(scene.standby_of("count/0"), checked=(4, "count/0, epoch 4: another output"))
    assert stopped(scene) == (1, "count/0, epoch 4: another output")


def test_without_the_check_nobody_waits() -> None:
    scene = running()
    finish(scene)
    assert stopped(scene) == (0, "")
    assert not of(scene.said, fx.EndJob)
    assert scene.supervision.checks.lacking() == []


def test_epochs_of_a_standby_that_was_promoted_still_count() -> None:
    scene = checking()
    scene.beat(scene.standby_of("count/0"), checked=(2, ""))
    scene.die(scene.slot_of("count/0"))
    scene.beats(2)
    scene.idle(1500)
    scene.beats(2)
    scene.beat(scene.standby_of("count/0"), checked=(1, ""))
    assert scene.supervision.checks.epochs("count/0") == 3


def test_what_is_kept_of_standbys_that_ended_does_not_grow_with_their_number() -> None:
    scene = checking()
    for _ in range(20):
        standby = scene.standby_of("count/0")
        scene.beat(standby, checked=(1, ""))
        scene.die(standby)
        scene.beats(2)
        scene.idle(1500)
        scene.beats(2)
    checks = scene.supervision.checks
    assert checks.epochs("count/0") == 20
    assert sum(map(len, checks._epochs_by_slot.values())) <= 1


@pytest.mark.parametrize("checked", [[1], [1, 2], ["1", ""], "1", {"1": ""}])
def test_a_malformed_count_is_dropped(checked: Any) -> None:
    inbox = Inbox()
    facts = {"pid": 1, "endpoint": "e", "incarnation": 0, "state": "standby", "epoch": 0}
    assert inbox.receive(b"w1", pack("beat", **facts, checked=checked)) is None
    assert inbox.dropped == 1
    event = inbox.receive(b"w1", pack("beat", **facts, checked=[2, "x"]))
    assert isinstance(event, Beat) and event.checked == (2, "x")


def test_the_first_epoch_ends_once_every_task_has_a_standby_to_perform_it_again() -> None:
    """A later standby would miss it; in a job of few records it is the only epoch with any."""
    scene = running(verify_replay=True)
    standby = scene.standby_of("count/0")
    roster = scene.supervision.assignments
    scene.die(standby)

    def awaited() -> list[Any]:
        """Two seconds in which everybody beats but the standby of count/0."""
        heard: list[Any] = []
        for _ in range(40):
            heard += scene.step(Tick(), 50)
            for slot in list(scene.living):
                if roster.slots[slot].purpose != "count/0" or roster.slots[slot].task:
                    heard += scene.beat(slot)
        return heard

    assert not sent(awaited(), "checkpoint")
    assert sent(scene.idle(2000), "checkpoint")


def test_without_a_check_no_checkpoint_waits_for_a_standby() -> None:
    scene = running()
    scene.die(scene.standby_of("count/0"))
    assert sent([effect for _ in range(30) for effect in scene.step(Tick(), 50)], "checkpoint")


def test_what_was_checked_still_counts_after_a_restart_and_a_resume() -> None:
    scene = checking()
    for task in TASKS:
        scene.beat(scene.standby_of(task), checked=(2, ""))
        scene.beat(scene.standby_of(task), checked=(3, ""))
    assert [record["task"] for record in scene.journal if record["kind"] == "checked"] == list(TASKS), "once for each"
    scene.restart()
    assert scene.supervision.checks.lacking() == [] and scene.supervision.checks.epochs("count/0") == 1
    scene.beats(4)
    finish(scene)
    assert stopped(scene) == (0, "")


def test_an_epoch_waits_for_a_standby_of_each_task_until_all_are_checked() -> None:
    """Checkpoints after the first one wait, too: after a resume the rest of a job may be one epoch."""
    scene = running(verify_replay=True)
    scene.checkpoint()
    scene.die(scene.standby_of("count/0"))
    assert not sent([effect for _ in range(20) for effect in scene.step(Tick(), 50)], "checkpoint")
    for task in TASKS:
        scene.beats(2)
        scene.beat(scene.standby_of(task), checked=(1, ""))
    scene.die(scene.standby_of("count/0"))
    assert sent([effect for _ in range(30) for effect in scene.step(Tick(), 50)], "checkpoint")
