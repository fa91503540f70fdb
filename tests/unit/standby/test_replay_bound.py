"""The bound on replays: a checkpoint begins when a task has worked so long since the last one, and not otherwise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from standby.supervision.replay_bound import ReplayBound
from tests.unit.standby.scene import Scene, running, sent

TARGET_MS = 200


def worked(scene: Scene, busy_s: float) -> list[object]:
    """Return the counting task beats after this many seconds of work; returns the checkpoints that this triggers."""
    heard = scene.beat(scene.slot_of("count/0"), counters={"busy_s": busy_s})
    return [message for _, message in sent(heard, "checkpoint")]


def completed(scene: Scene, epoch: int) -> None:
    for task in ("read/0", "count/0", "out/0"):
        scene.acknowledge(task, epoch)
    assert scene.supervision.coordinator.complete == epoch


def busy_scene(**config: object) -> Scene:
    scene = running(checkpoint_interval_s=60.0, **config)
    worked(scene, 1.0)
    return scene


def test_a_checkpoint_begins_when_a_task_has_worked_as_long_as_a_replay_may_take() -> None:
    scene = busy_scene(replay_target_ms=TARGET_MS)
    assert worked(scene, 1.19) == []
    assert worked(scene, 1.2) == [{"kind": "checkpoint", "epoch": 1}]


def test_work_is_counted_from_the_barrier_and_not_from_the_end_of_the_checkpoint() -> None:
    scene = busy_scene(replay_target_ms=TARGET_MS)
    worked(scene, 1.25)
    scene.beat(scene.slot_of("count/0"), epoch=1, counters={"busy_s": 1.3})
    completed(scene, 1)
    scene.living[scene.slot_of("count/0")]["epoch"] = 1
    assert worked(scene, 1.45) == []
    assert worked(scene, 1.5) == [{"kind": "checkpoint", "epoch": 2}]


def test_work_before_the_barrier_is_not_counted_again_when_its_beat_comes_late() -> None:
    scene = busy_scene(replay_target_ms=TARGET_MS)
    worked(scene, 1.25)
    completed(scene, 1)
    assert worked(scene, 1.4) == []  # the beat was sent before the barrier


def test_a_new_incarnation_counts_from_its_first_beat() -> None:
    scene = busy_scene(replay_target_ms=TARGET_MS)
    scene.die(scene.slot_of("count/0"))
    scene.beats()
    assert worked(scene, 5.0) == []
    assert worked(scene, 5.2) == [{"kind": "checkpoint", "epoch": 1}]


def test_there_is_no_bound_by_default() -> None:
    scene = busy_scene()
    assert worked(scene, 1e6) == []


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3)), max_size=60), st.integers(1, 1000))
def test_it_is_due_exactly_when_the_work_since_the_last_complete_barrier_reaches_the_bound(
    beats: list[tuple[int, int]], target_ms: int
) -> None:
    """Each beat says how much was worked; 1: a barrier was passed just before, 2: the checkpoint completes after it."""
    bound, busy_ms, epoch, complete = ReplayBound(target_ms), 0, 0, 0
    bound.worked("count/0", 1, 0, 0.0, 0)
    passed_ms = {0: 0}
    for work_ms, what in beats:
        busy_ms += work_ms
        if what == 1 and epoch == complete:
            epoch += 1
            passed_ms[epoch] = busy_ms
        due = bound.worked("count/0", 1, epoch, busy_ms / 1e3, complete)
        assert due == bound.due(complete) == (busy_ms - passed_ms[complete] >= target_ms)
        complete = epoch if what == 2 else complete
