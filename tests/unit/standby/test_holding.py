"""A task that keeps too much has a checkpoint begin immediately, and sources hold back records until it is complete."""

from __future__ import annotations

from typing import Any

from standby.supervision import effects as fx
from standby.supervision import events
from tests.unit.standby.scene import Scene, running, sent

TASKS = ("read/0", "count/0", "out/0")
SAVEPOINT = events.Admin("admin-1", "savepoint", {"final": False})


def hold_order(scene: Scene, epoch: int) -> tuple[str, dict[str, Any]]:
    """Return the message that has the source pass a barrier and hold back records."""
    return scene.slot_of("read/0"), {"kind": "checkpoint", "epoch": epoch, "hold": True}


def wants(scene: Scene, epoch: int, task: str = "count/0") -> list[fx.Effect]:
    return scene.beat(scene.slot_of(task), wanted_epoch=epoch)


def complete(scene: Scene, epoch: int) -> list[fx.Effect]:
    return [effect for task in TASKS for effect in scene.acknowledge(task, epoch)]


def test_a_checkpoint_begins_at_once_and_sources_hold_until_it_is_complete() -> None:
    scene = running(checkpoint_interval_s=3600.0)
    assert sent(wants(scene, 1), "checkpoint") == [hold_order(scene, 1)]
    assert sent(complete(scene, 1), "completed")
    assert not sent(wants(scene, 1), "checkpoint"), "it had not heard yet that the checkpoint is complete"
    assert not sent(wants(scene, 0), "checkpoint")
    assert sent(wants(scene, 2), "checkpoint") == [hold_order(scene, 2)]


def test_a_source_that_has_passed_its_barrier_is_told_as_well() -> None:
    """The barrier may be behind a record that takes long: without this sources would read more meanwhile."""
    scene = running(checkpoint_interval_s=3600.0)
    scene.step(SAVEPOINT)
    scene.beats(2)
    assert scene.supervision.coordinator.under_way == 1
    assert sent(wants(scene, 1), "checkpoint") == [hold_order(scene, 1)]
    scene.acknowledge("read/0", 1)
    assert set(map(str, sent(scene.idle(600), "checkpoint"))) == {str(hold_order(scene, 1))}, (
        "a successor needs it, too"
    )


def test_a_checkpoint_by_the_clock_holds_nobody_after_one_that_did() -> None:
    scene = running(checkpoint_interval_s=10.0)
    wants(scene, 1)
    complete(scene, 1)
    wants(scene, 0)
    messages = sent(scene.idle(11_000), "checkpoint")
    assert messages and all("hold" not in message for _, message in messages)


def test_a_supervisor_that_has_just_started_learns_it_from_the_beats() -> None:
    scene = running(checkpoint_interval_s=3600.0)
    wants(scene, 1)
    scene.restart()
    heard = scene.beats(3) + wants(scene, 1)
    assert hold_order(scene, 1) in sent(heard, "checkpoint")
