"""Savepoints: the next checkpoint, immediately; and the end of the job after it, whichever process dies meanwhile."""

from __future__ import annotations

from typing import Any

from standby.leadership.terms import CHECKPOINTS_KEPT
from standby.supervision import effects as fx
from standby.supervision import events
from tests.unit.standby.scene import Scene, of, running, sent

TASKS = ("read/0", "count/0", "out/0")


def ask(scene: Scene, final: bool = True) -> dict[str, Any]:
    [answer] = of(scene.step(events.Admin("admin-1", "savepoint", {"final": final})), fx.Answer)
    body: dict[str, Any] = dict(answer.body)
    return body


def complete(scene: Scene, epoch: int) -> list[fx.Effect]:
    return [effect for task in TASKS for effect in scene.acknowledge(task, epoch)]


def test_the_job_ends_when_the_final_checkpoint_is_complete() -> None:
    scene = running(checkpoint_interval_s=3600.0)
    assert ask(scene) == {"kind": "answer", "ok": True, "epoch": 1}
    [(_, order)] = sent(scene.said, "checkpoint")
    assert order == {"kind": "checkpoint", "epoch": 1, "final": True}
    heard = complete(scene, 1)
    assert {message["epoch"] for _, message in sent(heard, "completed")} == {1}
    assert {slot for slot, _ in sent(heard, "stop")} == set(scene.living)
    assert scene.supervision.job.stopping == (0, "stopped at savepoint 1")


def test_one_that_is_not_final_goes_on() -> None:
    scene = running(checkpoint_interval_s=3600.0)
    ask(scene, final=False)
    assert not sent(complete(scene, 1), "stop")
    assert scene.supervision.coordinator.complete == 1


def test_a_checkpoint_under_way_is_not_the_savepoint() -> None:
    """Some sources may have passed its barrier, and gone on."""
    scene = running()
    scene.idle(1100)
    assert ask(scene)["epoch"] == 2 and ask(scene)["epoch"] == 2
    assert not sent(complete(scene, 1), "stop")
    assert sent(scene.said, "checkpoint")[-1][1] == {"kind": "checkpoint", "epoch": 2, "final": True}
    assert sent(complete(scene, 2), "stop")


def test_a_supervisor_that_dies_leaves_the_order_to_the_next() -> None:
    scene = running(checkpoint_interval_s=3600.0)
    ask(scene)
    scene.living[scene.slot_of("read/0")]["epoch"] = 0  # the message was lost with the supervisor
    scene.restart()
    heard = scene.beats()
    assert sent(heard, "checkpoint")[-1][1]["final"] is True
    assert sent(complete(scene, 1), "stop")


def test_one_that_dies_between_the_manifest_and_the_journal_does_too() -> None:
    scene = running(checkpoint_interval_s=3600.0)
    ask(scene)
    files = {task: ((f"checkpoints/{task}/e1-i1.snap", 10, "00"),) for task in TASKS}
    scene.restart((1, files))
    assert scene.supervision.job.stopping == (0, "stopped at savepoint 1")


def test_a_source_that_dies_under_way_is_told_that_it_is_the_last() -> None:
    scene = running(checkpoint_interval_s=3600.0)
    ask(scene)
    scene.die(scene.slot_of("read/0"))
    heard = scene.beat(scene.slot_of("read/0"))
    assert sent(heard, "checkpoint")[0][1] == {"kind": "checkpoint", "epoch": 1, "final": True}


def test_nobody_is_promoted_behind_the_final_checkpoint() -> None:
    """He would not know that he must stand."""
    scene = running(checkpoint_interval_s=3600.0)
    ask(scene)
    scene.manual_manifest = True
    complete(scene, 1)
    scene.die(scene.slot_of("count/0"))
    assert not sent(scene.step(events.ManifestWritten(1)), "promote")


def test_a_job_that_was_resumed_does_not_end_again() -> None:
    scene = running(checkpoint_interval_s=3600.0)
    ask(scene)
    complete(scene, 1)
    scene.journal.append({"kind": "resumed", "at_ns": scene.now})
    scene.restart()
    assert scene.supervision.job.stopping is None and scene.supervision.coordinator.final == 0


def test_a_job_that_was_resumed_does_not_end_when_its_supervisor_dies_after_two_more_checkpoints() -> None:
    """The journal has dropped the checkpoint at which the job ended by then."""
    scene = running(checkpoint_interval_s=1.0)
    ask(scene)
    complete(scene, 1)
    scene.journal.append({"kind": "resumed", "at_ns": scene.now})
    scene.living.clear()
    scene.restart()
    scene.beats(6)
    for _ in range(CHECKPOINTS_KEPT):
        scene.checkpoint()
    checkpoints = [record for record in scene.journal if record["kind"] == "checkpoint"]
    for dropped in checkpoints[:-CHECKPOINTS_KEPT]:
        scene.journal.remove(dropped)
    scene.restart()
    assert scene.supervision.coordinator.complete == 1 + CHECKPOINTS_KEPT
    assert scene.supervision.job.stopping is None and scene.supervision.coordinator.final == 0


def test_what_cannot_be_saved_is_refused() -> None:
    scene = running(guarantee="none")
    assert "guarantee none" in ask(scene)["error"]
    scene = running()
    scene.finish("out/0")
    assert "ending" in ask(scene)["error"]
