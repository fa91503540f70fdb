"""A job on recorded input ends at a savepoint, once a checkpoint contains all of that input."""

from __future__ import annotations

from standby.exit_status import STOPPED
from standby.supervision import effects as fx
from tests.unit.standby.scene import Scene, of, sent

TASKS = ("read/0", "count/0", "out/0")


def reading() -> Scene:
    scene = Scene(checkpoint_interval_s=1000.0, input="/recorded")
    scene.beats()
    return scene


def checkpointed(scene: Scene, epoch: int) -> list[fx.Effect]:
    return [effect for task in TASKS for effect in scene.acknowledge(task, epoch)]


def test_the_savepoint_follows_the_checkpoint_that_contains_the_input() -> None:
    scene = reading()
    assert not sent(scene.beat(scene.slot_of("read/0")), "checkpoint"), "some input is left"
    heard = scene.beat(scene.slot_of("read/0"), input_complete=1)
    assert sent(heard, "checkpoint") == [(scene.slot_of("read/0"), {"kind": "checkpoint", "epoch": 1})]
    scene.beat(scene.slot_of("read/0"), input_complete=1)
    heard = checkpointed(scene, 1)
    [(_, message)] = sent(heard, "checkpoint")
    assert message["epoch"] == 2 and message["final"]
    checkpointed(scene, 2)
    assert scene.supervision.job.stopping == (0, f"{STOPPED}2")


def test_a_successor_that_has_not_delivered_all_input_is_waited_for() -> None:
    scene = reading()
    scene.beat(scene.slot_of("read/0"), input_complete=1)
    scene.die(scene.slot_of("read/0"))
    scene.beats()
    heard = checkpointed(scene, 1)
    assert scene.supervision.coordinator.complete == 1
    assert not [m for _, m in sent(heard, "checkpoint") if m.get("final")], "its barrier was at an earlier position"
    scene.beat(scene.slot_of("read/0"), input_complete=2)
    assert scene.supervision.coordinator.requested == 2 and not scene.supervision.coordinator.final
    [(_, message)] = sent(checkpointed(scene, 2), "checkpoint")
    assert message["final"]


def test_a_supervisor_that_restarts_goes_on_to_the_savepoint() -> None:
    scene = reading()
    scene.beat(scene.slot_of("read/0"), input_complete=1)
    checkpointed(scene, 1)
    scene.restart()
    scene.beats(input_complete=1)
    assert scene.supervision.coordinator.final == 2
    assert sum(record["kind"] == "savepoint" and record["final"] for record in scene.journal) == 1


def test_a_job_whose_input_ends_is_left_to_end() -> None:
    scene = reading()
    scene.finish("read/0")
    assert not of(scene.beats(), fx.WriteManifest) and not scene.supervision.coordinator.requested


def test_other_jobs_do_not_end_so() -> None:
    scene = Scene(checkpoint_interval_s=1000.0)
    scene.beats()
    scene.beat(scene.slot_of("read/0"), input_complete=1)
    assert not scene.supervision.coordinator.requested
