"""Guarantee `epoch`: everybody goes back together, the end hurries the last checkpoint, a stop waits for rows."""

from __future__ import annotations

from standby.supervision import effects as fx
from standby.supervision import events
from tests.unit.standby.scene import Scene, of, running, sent

TASKS = ("read/0", "count/0", "out/0")
STOP = events.Admin("admin-1", "savepoint", {"final": True})


def staging(**config: object) -> Scene:
    return running(guarantee="epoch", checkpoint_interval_s=3600.0, **config)


def complete(scene: Scene, epoch: int) -> list[fx.Effect]:
    return [effect for task in TASKS for effect in scene.acknowledge(task, epoch)]


def says(scene: Scene, state: str, committed: int, task: str = "out/0") -> list[fx.Effect]:
    return scene.beat(scene.slot_of(task), state=state, committed=committed)


def test_one_death_takes_everybody_back_to_the_last_complete_checkpoint() -> None:
    scene = staging()
    scene.step(events.Admin("admin-1", "savepoint", {"final": False}))
    complete(scene, 1)
    others = [scene.slot_of(task) for task in ("read/0", "out/0")]
    heard = scene.die(scene.slot_of("count/0"))
    assert sorted(kill.slot for kill in of(heard, fx.KillProcess)) == sorted(others)
    assert not sent(heard + scene.die(others[0]), "promote"), "the last of the old must have ended before"
    scene.die(others[1])
    scene.beats(6)
    assert {task: scene.incarnation_of(task) for task in TASKS} == dict.fromkeys(TASKS, 2)
    promoted = [record for record in scene.journal if record["kind"] == "promoted" and record["incarnation"] == 2]
    assert [(record["epoch"], record["mode"]) for record in promoted] == [(1, "rollback")] * 3


def test_a_sink_whose_last_rows_are_staged_has_the_next_checkpoint_begin() -> None:
    scene = staging()
    assert sent(says(scene, "staged", 0), "checkpoint") == [
        (scene.slot_of("read/0"), {"kind": "checkpoint", "epoch": 1})
    ]
    assert scene.supervision.job.stopping is None
    complete(scene, 1)
    assert not sent(says(scene, "staged", 0), "checkpoint"), "it has not acted on the complete one yet"
    assert sent(says(scene, "staged", 1), "checkpoint"), "that one did not cover it: its barrier came before the end"
    complete(scene, 2)
    assert sent(says(scene, "finished", 2), "stop")


def test_it_waits_for_the_other_sinks() -> None:
    scene = Scene("read/0", "out/0", guarantee="epoch", checkpoint_interval_s=3600.0)
    scene.beats(6)
    seat = scene.supervision.assignments.tasks["read/0"]
    seat.sink = True  # a second one, which has not come to its end
    assert not sent(says(scene, "staged", 0), "checkpoint")
    assert sent(says(scene, "staged", 0, "read/0"), "checkpoint")


def test_a_supervisor_that_dies_knows_it_again_from_the_beats() -> None:
    scene = staging()
    scene.restart()
    scene.beats(3)
    assert sent(says(scene, "staged", 0), "checkpoint")


def test_without_staging_nobody_hurries() -> None:
    scene = running(guarantee="at-least-once", checkpoint_interval_s=3600.0)
    assert not sent(says(scene, "staged", 0), "checkpoint")


def test_a_stop_waits_until_what_the_savepoint_covers_is_visible() -> None:
    scene = staging()
    scene.step(STOP)
    assert not sent(complete(scene, 1), "stop")
    assert not sent(says(scene, "running", 0), "stop")
    assert not sent(scene.idle(2000), "checkpoint"), "after the final one there is none"
    assert sent(says(scene, "running", 1), "stop")
    assert scene.supervision.job.stopping == (0, "stopped at savepoint 1")


def test_a_sink_that_dies_before_it_has_shown_them_is_waited_for() -> None:
    scene = staging()
    scene.step(STOP)
    complete(scene, 1)
    scene.die(scene.slot_of("out/0"))
    for task in ("read/0", "count/0"):
        scene.die(scene.slot_of(task))
    scene.restart()
    assert not sent(scene.beats(6), "stop")
    assert not sent(scene.idle(1000), "checkpoint")
    assert sent(says(scene, "running", 1), "stop")
    assert scene.supervision.job.stopping == (0, "stopped at savepoint 1")
