"""Checkpoints: triggered, collected, completed; carried through failures, never aborted."""

from __future__ import annotations

from typing import Any

import pytest

from standby.supervision import effects as fx
from standby.supervision import events
from tests.unit.standby.scene import MS, SECOND, of, running, sent, snapshot_files

TASKS = ("read/0", "count/0", "out/0")


def test_a_checkpoint_is_triggered_at_sources_and_completed_when_all_have_acknowledged() -> None:
    scene = running()
    heard = scene.idle(1100)
    assert sent(heard, "checkpoint") == [(scene.slot_of("read/0"), {"kind": "checkpoint", "epoch": 1})]
    assert not of(scene.acknowledge("read/0", 1) + scene.acknowledge("count/0", 1), fx.WriteManifest)
    heard = scene.acknowledge("out/0", 1)
    [manifest] = of(heard, fx.WriteManifest)
    assert manifest.files == {task: snapshot_files(task, 1, 1) for task in TASKS}
    assert sorted(slot for slot, _ in sent(heard, "completed")) == sorted(scene.slot_of(task) for task in TASKS)
    assert {m["task"]: (m["epoch"], m["files"][0][0]) for _, m in sent(heard, "follow")} == {
        task: (1, f"checkpoints/{task}/e1-i1.snap") for task in TASKS
    }


def test_acknowledgements_are_also_taken_from_beats() -> None:
    scene = running()
    scene.idle(1100)
    for task in TASKS:
        scene.beat(scene.slot_of(task), acked=(1, snapshot_files(task, 1, 1)))
    assert scene.supervision.coordinator.complete == 1


def test_nothing_is_told_before_the_manifest_is_durable_and_nobody_is_promoted_meanwhile() -> None:
    scene = running()
    scene.manual_manifest = True
    scene.idle(1100)
    heard = [effect for task in TASKS for effect in scene.acknowledge(task, 1)]
    assert of(heard, fx.WriteManifest) and not sent(heard, "completed")
    heard = scene.die(scene.slot_of("count/0"))
    assert not sent(heard, "promote")
    heard = scene.step(events.ManifestWritten(1))
    assert [(m["task"], m["epoch"]) for _, m in sent(heard, "promote")] == [("count/0", 1)]


def test_a_manifest_that_cannot_be_written_is_tried_again_after_pauses_that_grow() -> None:
    scene = running()
    scene.manual_manifest = True
    scene.idle(1100)

    def acknowledged() -> list[fx.Effect]:
        return [
            effect
            for task in TASKS
            for effect in scene.beat(scene.slot_of(task), acked=(1, snapshot_files(task, 1, 1)))
        ]

    assert len(of(acknowledged(), fx.WriteManifest)) == 1
    for pause_ms in (500, 1000, 2000):
        heard = scene.step(events.ManifestFailed(1, "disk full"))
        assert of(heard, fx.Note) and scene.supervision.coordinator.complete == 0
        assert not of(acknowledged(), fx.WriteManifest)
        scene.idle(pause_ms - 100)
        assert not of(acknowledged(), fx.WriteManifest)
        scene.idle(100)
        assert len(of(acknowledged(), fx.WriteManifest)) == 1
    scene.step(events.ManifestWritten(1))
    assert scene.supervision.coordinator.complete == 1


def test_a_task_that_dies_under_way_has_to_acknowledge_for_itself() -> None:
    scene = running()
    scene.idle(1100)
    scene.acknowledge("read/0", 1)
    scene.acknowledge("count/0", 1)
    old = (scene.slot_of("count/0"), scene.incarnation_of("count/0"))
    scene.die(old[0])
    assert not of(scene.acknowledge("out/0", 1), fx.WriteManifest)
    stale = events.SnapshotReported(old[0], "count/0", old[1], 1, snapshot_files("count/0", 1, 1))
    assert not of(scene.step(stale), fx.WriteManifest)
    heard = scene.acknowledge("count/0", 1)
    [manifest] = of(heard, fx.WriteManifest)
    assert manifest.files["count/0"] == snapshot_files("count/0", 1, 2)


def test_a_source_that_dies_under_way_is_told_again() -> None:
    scene = running()
    scene.idle(1100)
    scene.die(scene.slot_of("read/0"))
    heard = scene.beat(scene.slot_of("read/0"))
    assert sent(heard, "checkpoint") == [(scene.slot_of("read/0"), {"kind": "checkpoint", "epoch": 1})]


def test_a_source_that_does_not_report_the_barrier_is_told_again_but_not_with_every_beat() -> None:
    scene = running()
    slot = scene.slot_of("read/0")
    heard = scene.idle(1100)
    heard += [e for _ in range(10) for e in scene.beat(slot, 20, epoch=0)]
    assert len(sent(heard, "checkpoint")) == 1
    heard = [e for _ in range(10) for e in scene.beat(slot, 100, epoch=0)]
    assert 1 <= len(sent(heard, "checkpoint")) <= 2


def test_checkpoints_are_triggered_during_a_recovery() -> None:
    scene = running(standbys="0")
    lost = scene.slot_of("count/0")
    scene.living.pop(lost)
    scene.step(events.Exited(lost, 1, scene.now))
    sources = scene.slot_of("read/0")
    heard: list[fx.Effect] = []
    for _ in range(30):
        heard += scene.beat(sources, 50)
    assert sent(heard, "checkpoint")


def test_files_of_the_last_two_checkpoints_are_kept() -> None:
    scene = running()
    for _ in range(3):
        scene.checkpoint()
    order = scene.removed[-1]
    assert order.through_epoch == 3 and order.manifests_from == 2
    assert order.keep == {f"checkpoints/{task}/e{epoch}-i1.snap" for task in TASKS for epoch in (2, 3)}


def test_a_restarted_supervisor_takes_up_the_checkpoint_that_was_under_way() -> None:
    scene = running()
    scene.idle(1100)
    for task in TASKS[:2]:
        scene.acknowledge(task, 1)
    scene.restart()
    for task in TASKS:
        scene.beat(scene.slot_of(task), acked=(1, snapshot_files(task, 1, 1)))
    assert scene.supervision.coordinator.complete == 1


def test_a_manifest_on_disk_is_complete_even_if_its_supervisor_died_before_journaling_it() -> None:
    scene = running()
    scene.restart((1, {task: snapshot_files(task, 1, 1) for task in TASKS}))
    assert scene.supervision.coordinator.complete == 1
    assert scene.journal[-1]["kind"] == "checkpoint"
    heard = scene.beat(scene.slot_of("count/0"))
    assert sent(heard, "completed") == [(scene.slot_of("count/0"), {"kind": "completed", "epoch": 1})]


def test_without_a_guarantee_there_are_no_checkpoints() -> None:
    scene = running(guarantee="none")
    assert not sent(scene.idle(3000), "checkpoint")


@pytest.mark.parametrize("check", [False, True])
def test_a_standby_is_given_fast_checkpoints_several_at_once_unless_it_checks_each(check: bool) -> None:
    scene = running(checkpoint_interval_s=0.04, verify_replay=check)
    standby = scene.standby_of("count/0")
    epochs, since = [0], scene.now
    for _ in range(20):
        scene.checkpoint()
        followed = scene.living[standby]["followed"]
        epochs += [followed] if followed != epochs[-1] else []
    took_ms = (scene.now - since) // MS
    assert epochs == sorted(epochs)
    assert len(epochs) - 1 == 20 if check else 2 < len(epochs) - 1 <= took_ms // 200 + 1
    last = scene.supervision.coordinator.complete
    scene.manual_manifest = True  # no checkpoint completes any more
    scene.idle(600)
    assert scene.living[standby]["followed"] == last


def test_the_view_says_which_tasks_a_checkpoint_waits_for_and_since_when() -> None:
    scene = running()
    assert scene.view["checkpoint"]["waits_for"] == []
    scene.idle(scene.config.checkpoint_interval_s * 1000)
    began_ns = scene.view["checkpoint"]["since_ns"]
    assert began_ns is not None and scene.now - began_ns < SECOND
    scene.acknowledge("read/0", 1)
    scene.idle(100)
    shown = scene.view["checkpoint"]
    assert (shown["waits_for"], shown["since_ns"]) == (["count/0", "out/0"], began_ns)


def test_while_no_task_performs_anything_there_is_no_checkpoint() -> None:
    scene = running()
    scene.checkpoint()
    assert scene.supervision.coordinator.complete == 1

    def rest(span_ms: int, **changes: dict[str, Any]) -> list[fx.Effect]:
        """Time passes; every task says that it has performed nothing since the checkpoint, but for what `changes`."""
        heard: list[fx.Effect] = []
        for _ in range(span_ms // 100):
            heard += scene.step(events.Tick(), 100)
            for task in TASKS:
                said: dict[str, Any] = {"epoch": 1, "unchanged": True, **changes.get(task.partition("/")[0], {})}
                heard += scene.beat(scene.slot_of(task), 0, **said)
        return heard

    assert not sent(rest(5000), "checkpoint")
    assert sent(rest(200, count={"unchanged": False}), "checkpoint"), "one that was due begins immediately"


@pytest.mark.parametrize("changed", [{"unchanged": False}, {"epoch": 0}], ids=str)
@pytest.mark.parametrize("task", TASKS)
def test_a_checkpoint_begins_unless_every_task_has_performed_nothing(task: str, changed: dict[str, Any]) -> None:
    scene = running()
    scene.checkpoint()
    for each in TASKS:
        scene.beat(scene.slot_of(each), **{"epoch": 1, "unchanged": True, **(changed if each == task else {})})
    assert sent(scene.step(events.Tick(), 1100), "checkpoint")


def test_a_savepoint_begins_although_nothing_was_performed() -> None:
    scene = running()
    scene.checkpoint()
    for each in TASKS:
        scene.beat(scene.slot_of(each), epoch=1, unchanged=True)
    assert not sent(scene.step(events.Tick(), 1100), "checkpoint")
    assert scene.supervision.coordinator.deadline_ns() is None, "only a beat changes that"
    scene.supervision.coordinator.request(False, scene.supervision._outbox)
    assert sent(scene.step(events.Tick(), 1), "checkpoint")


def test_a_task_that_dies_may_have_performed_something() -> None:
    scene = running()
    scene.checkpoint()
    for each in TASKS:
        scene.beat(scene.slot_of(each), epoch=1, unchanged=True)
    assert not sent(scene.step(events.Tick(), 1100), "checkpoint")
    scene.die(scene.slot_of("count/0"))
    scene.beats(2, epoch=1)
    assert scene.supervision.coordinator.under_way == 2
