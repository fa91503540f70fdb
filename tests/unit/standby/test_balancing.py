"""A host that joins receives its share of the tasks, one promotion at a time, and only where a move helps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from standby.blueprint import Blueprint, Constraint
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.supervision import Supervision
from tests.unit.standby.host_scene import HostScene
from tests.unit.standby.scene import MS, of

NAMES = [f"step{number}/0" for number in range(6)]


def began(*join: str, names: list[str] = NAMES, constraints: Any = None, **config: Any) -> HostScene:
    """Return a job whose tasks and standbys are all up, and have a checkpoint."""
    scene = HostScene(*names, join=(), **{"rebalance_after_s": 1.0, "hosts_expected": len(join), **config})
    if constraints:
        scene.blueprint = Blueprint(scene.topology, constraints=constraints)
        scene.supervision = Supervision(scene.config, scene.blueprint)
        scene.step(events.Restored(()))
    for name in join:
        scene.join(name, slots=20)
    scene.pass_time(1000)
    scene.checkpoint()
    scene.beats(4)
    return scene


def shares(scene: HostScene) -> Counter[str]:
    return Counter(scene.host_of_task(task) for task in scene.supervision.assignments.tasks)


def waited(scene: HostScene, span_ms: float) -> int:
    """Pass time; return the largest number of tasks without a process."""
    most, end = 0, scene.now + int(span_ms * MS)
    while scene.now < end:
        scene.step(events.Tick(), 20)
        scene.beats(1)
        for name, task in scene.supervision.assignments.tasks.items():
            if task.state.value == "served" and scene.incarnation_of(name) > 1:
                scene.phase(name, "running")
        most = max(most, scene.supervision.assignments.waiting_count)
    return most


def moved(scene: HostScene) -> list[str]:
    """Return the tasks that have been promoted again."""
    return [task for task in scene.supervision.assignments.tasks if scene.incarnation_of(task) > 1]


def moving() -> HostScene:
    """Return a job in which the standby for a move to host c has just been started."""
    scene = began("a", "b")
    scene.join("c", slots=20)
    waited(scene, 900)
    while not scene.hosts["c"].slots:
        scene.step(events.Tick(), 20)
        scene.agent_beats()
    return scene


def check_one_at_a_time(scene: HostScene) -> None:
    """Check that each task whose process was killed was promoted before the process of another task was killed."""
    task_of: dict[str, str] = {}
    killed: list[str] = []
    for record in scene.journal:
        if record["kind"] == "promoted":
            task_of[record["slot"]] = record["task"]
            killed = [task for task in killed if task != record["task"]]
        elif record["kind"] == "killing" and record["slot"] in task_of:
            killed.append(task_of[record["slot"]])
        assert len(killed) <= 1


@pytest.mark.parametrize("config", [{}, {"standbys": "2"}, {"standbys": "0"}, {"standbys": "hot"}])
def test_a_host_that_has_joined_for_a_while_receives_its_share_one_task_at_a_time(config: dict[str, Any]) -> None:
    scene = began("a", "b", **config)
    assert shares(scene) == {"a": 3, "b": 3}
    scene.join("c", slots=20)
    waited(scene, 800)
    assert moved(scene) == []
    assert waited(scene, 2500) <= 1
    check_one_at_a_time(scene)
    assert shares(scene) == {"a": 2, "b": 2, "c": 2}
    assert len(moved(scene)) == 2 and all(scene.incarnation_of(task) <= 2 for task in NAMES)
    if scene.config.own_standbys:
        for task in NAMES:
            assert len(scene.hosts_of_standbys(task)) == 1 and scene.host_of_task(task) not in scene.hosts_of_standbys(
                task
            )


def test_a_task_keeps_its_standby_until_the_one_on_the_new_host_is_ready() -> None:
    scene = began("a", "b")
    before = {task: scene.hosts_of_standbys(task) for task in NAMES}
    scene.join("c", slots=20)
    seen: set[tuple[int, int]] = set()
    for _ in range(120):
        scene.step(events.Tick(), 20)
        scene.beats(1)
        if scene.supervision.assignments.waiting_count == 0:
            seen |= {(len(scene.hosts_of_standbys(task)), scene.incarnation_of(task)) for task in NAMES}
    assert (2, 1) in seen and (0, 1) not in seen
    assert all(before.values())


@pytest.mark.parametrize(
    "config",
    [{"rebalance_after_s": 0.0}, {"guarantee": "at-least-once"}, {"guarantee": "epoch"}, {"guarantee": "none"}],
)
def test_no_task_moves_where_that_is_not_wanted_or_would_cost_more(config: dict[str, Any]) -> None:
    scene = began("a", "b", **config)
    scene.join("c", slots=20)
    waited(scene, 4000)
    assert moved(scene) == [] and shares(scene) == {"a": 3, "b": 3}


def test_an_uneven_load_alone_moves_nothing() -> None:
    scene = began("a", "b", names=NAMES[:4])
    scene.end(scene.slot_of(NAMES[0]))
    waited(scene, 4000)
    assert sorted(shares(scene).values()) == [1, 3] and moved(scene) == [NAMES[0]]


def test_a_task_that_is_restricted_stays_and_another_moves_instead() -> None:
    scene = began("a", names=NAMES[:3], constraints={NAMES[0]: Constraint("a")}, standbys="0")
    assert shares(scene) == {"a": 3}
    scene.join("b", slots=20)
    waited(scene, 4000)
    assert scene.host_of_task(NAMES[0]) == "a" and shares(scene) == {"a": 2, "b": 1}


def test_a_host_without_room_receives_nothing() -> None:
    scene = began("a", "b")
    scene.join("c", slots=1)
    waited(scene, 4000)
    assert shares(scene)["c"] <= 1 and all(len(host.slots) <= 20 for host in scene.hosts.values())
    assert len(scene.hosts["c"].slots) <= 1


def test_a_standby_for_a_move_that_no_longer_helps_is_ended() -> None:
    scene = moving()
    scene.step(events.Admin("admin-1", "drain", {"host": "c"}))
    waited(scene, 3000)
    assert not scene.hosts["c"].slots and moved(scene) == []
    assert all(len(scene.hosts_of_standbys(task)) == 1 for task in NAMES)


def test_the_loss_of_the_receiving_host_costs_no_task_anything() -> None:
    scene = moving()
    scene.hosts["c"].reachable = False
    waited(scene, 4000)
    assert moved(scene) == [] and shares(scene) == {"a": 3, "b": 3}


def test_a_new_supervisor_waits_again_and_finishes_the_moves() -> None:
    scene = moving()
    scene.restart()
    waited(scene, 4000)
    assert shares(scene) == {"a": 2, "b": 2, "c": 2}
    assert all(len(scene.hosts_of_standbys(task)) == 1 for task in NAMES)


def test_the_log_says_what_moves() -> None:
    scene = began("a", "b")
    scene.join("c", slots=20)
    notes: list[str] = []
    for _ in range(120):
        notes += [note.line for note in of(scene.step(events.Tick(), 20), fx.Note)]
        scene.beats(1)
    assert any(note.startswith("step") and note.endswith(" to c, which has room") for note in notes), notes
