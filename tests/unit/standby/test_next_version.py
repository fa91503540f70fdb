"""A change of a running job: the supervisor's part of it, in any order of requests and deaths."""

from __future__ import annotations

from typing import Any

import pytest

from standby.blueprint import CompanionCall
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.next_version import FAILED_STARTS_MAX, LEASE_NS, Phase
from standby.supervision.orders import NEXT_WORKER
from standby.supervision.savepoints import stopped_at
from tests.unit.standby.scene import MS, Scene, of, running, sent, snapshot_files

NEXT = ["read/0", "count/0", "count/1", "out/0"]
TASKS = ("read/0", "count/0", "out/0")
TOKEN = "a1"


def asked(scene: Scene, step: str, token: str = TOKEN, **arguments: Any) -> list[dict[str, Any]]:
    """Send a request; return the answers that the supervisor has given immediately."""
    scene.step(events.Admin("admin-1", "change", {"step": step, "change": token, **arguments}))
    return [dict(answer.body) for answer in of(scene.said, fx.Answer)]


def prepared(rollback: str = "", **config: Any) -> Scene:
    """Return a job with a checkpoint, and with idle processes of its next version."""
    scene = running(**{"checkpoint_interval_s": 1.0, **config})
    scene.checkpoint()
    assert asked(scene, "prepare", tasks=NEXT, rollback=rollback, incarnation=1001) == []
    heard = scene.beats(1)
    assert [dict(answer.body)["step"] for answer in of(heard, fx.Answer)] == ["prepare"]
    return scene


def next_slots(scene: Scene) -> list[str]:
    gone = {record["slot"] for record in scene.journal if record["kind"] == "next_gone"}
    slots = [record["slot"] for record in scene.journal if record["kind"] == "next_process"]
    return [slot for slot in slots if slot not in gone]


def phase(scene: Scene) -> Phase:
    return scene.supervision.next_version.phase


def stood(scene: Scene) -> int:
    """Return the epoch of the final savepoint, once the current version has reached it."""
    assert asked(scene, "stand") == []
    epoch = scene.supervision.coordinator.final
    heard = [effect for task in TASKS for effect in scene.acknowledge(task, epoch)]
    [answer] = of(heard, fx.Answer)
    assert (answer.body["ok"], answer.body["step"], answer.body["epoch"]) == (True, "stand", epoch)
    return epoch


def test_a_version_that_ends_for_a_change_has_not_stopped_at_a_savepoint() -> None:
    """A job that is killed meanwhile resumes as it was, although its stores are open for its next version."""
    scene = prepared()
    epoch = stood(scene)
    assert scene.supervision.coordinator.complete == epoch and stopped_at(scene.journal) is None
    without = [record for record in scene.journal if record["kind"] != "change"]
    stopped = stopped_at(without)
    assert stopped is not None and stopped[0] == epoch, "as a savepoint of `causal savepoint --stop` has"


def test_one_process_starts_for_each_task_of_the_next_version() -> None:
    scene = prepared()
    started = [record["purpose"] for record in scene.journal if record["kind"] == "next_process"]
    assert started == NEXT and len(set(next_slots(scene))) == 4
    assert not set(next_slots(scene)) & set(scene.supervision.assignments.slots)
    assert not [record for record in scene.journal if record["kind"] == "killing"]


def test_the_current_version_works_meanwhile_and_its_new_processes_have_other_names() -> None:
    scene = prepared()
    scene.die(scene.slot_of("count/0"))
    scene.beats(6)
    assert scene.incarnation_of("count/0") == 2 and phase(scene) is Phase.PREPARING
    slots = [record["slot"] for record in scene.journal if record["kind"] in ("process", "next_process")]
    assert len(slots) == len(set(slots))


def test_every_answer_repeats_the_number_of_its_request() -> None:
    scene = Scene()
    assert [answer["request"] for answer in asked(scene, "facts", request=7)] == [7]
    assert [answer["request"] for answer in asked(scene, "stand", request=8)] == [8]
    scene = prepared()
    assert [answer["request"] for answer in asked(scene, "withdraw", request=9)] == [9]
    assert asked(scene, "follow", request=10, epoch=1, files={}) == []
    assert [answer["request"] for answer in asked(scene, "cancel", request=11)] == [10, 11]


def test_its_processes_load_the_first_snapshots() -> None:
    scene = prepared()
    files = {task: snapshot_files(task, 1001, 1001) for task in NEXT}
    assert asked(scene, "follow", epoch=1, files=files) == []
    assert sorted(slot for slot, message in sent(scene.said, "follow") if message["epoch"] == 1) == sorted(
        next_slots(scene)
    )
    assert [answer.body["step"] for answer in of(scene.beats(1), fx.Answer)] == ["follow"]


def test_a_final_savepoint_does_not_end_the_job_and_the_commit_names_the_processes() -> None:
    scene = prepared()
    epoch = stood(scene)
    assert scene.supervision.job.stopping is None and epoch == 2
    asked(scene, "commit")
    [commit] = of(scene.said, fx.CommitChange)
    assert [(each["kind"], each["slot"], each["purpose"]) for each in commit.processes] == [
        ("process", slot, task) for slot, task in zip(next_slots(scene), NEXT)
    ]
    assert {beat.slot for beat in scene.supervision.next_version.beats} == set(next_slots(scene))
    assert commit.to == "admin-1"


def test_no_process_of_the_next_version_has_the_name_of_a_process_of_the_current_one() -> None:
    """A process that the current version starts last may still live when the next version starts its own."""
    scene = prepared()
    for _ in ("the task", "its standby"):
        scene.die(scene.slot_of("count/0"))
    scene.beats(6)
    latest = max(int(slot.removeprefix("w")) for slot in scene.supervision.assignments.slots)
    assert latest > max(int(slot.removeprefix("w")) for slot in next_slots(scene))
    stood(scene)
    asked(scene, "commit")
    [commit] = of(scene.said, fx.CommitChange)
    next_version = Scene()
    next_version.journal = [{"kind": "resumed", "at_ns": 0, "figures": {}, "started_max": commit.started_max}]
    next_version.restart()
    next_version.beats(6)
    assert min(int(slot.removeprefix("w")) for slot in next_version.supervision.assignments.slots) > latest


@pytest.mark.parametrize("step", ["withdraw", "commit", "nonsense"])
def test_a_step_that_is_too_early_is_refused(step: str) -> None:
    scene = prepared()
    [answer] = asked(scene, step)
    assert not answer["ok"] and "preparing" in answer["error"] and not of(scene.said, fx.CommitChange)


def test_a_commit_before_the_current_version_stands_is_refused() -> None:
    scene = prepared()
    asked(scene, "stand")
    [answer] = asked(scene, "commit")
    assert not answer["ok"] and not of(scene.said, fx.CommitChange)


def test_the_view_shows_what_a_change_is_doing() -> None:
    assert running().view["change"] == ""
    scene = prepared()
    assert (
        scene.view["change"] == "the job is being replaced by its next version: its processes start and load the state"
    )
    asked(scene, "stand")
    assert scene.view["change"].endswith("the current version ends")
    assert "rolled back to savepoint 2-aaaaaa" in prepared(rollback="2-aaaaaa").view["change"]


def test_a_second_change_is_refused_and_does_not_disturb_the_first() -> None:
    scene = prepared()
    for step in ("facts", "prepare", "stand", "cancel", "renew"):
        [answer] = asked(scene, step, token="b2", tasks=NEXT, rollback="", incarnation=5)
        assert not answer["ok"] and "another change" in answer["error"]
    assert phase(scene) is Phase.PREPARING


@pytest.mark.parametrize("config", [{"guarantee": "none"}, {"guarantee": "at-least-once"}, {"guarantee": "epoch"}])
def test_jobs_that_change_only_with_a_stop(config: dict[str, Any]) -> None:
    scene = running(**config)
    for step in ("facts", "prepare"):
        [answer] = asked(scene, step, tasks=NEXT, rollback="", incarnation=5)
        assert not answer["ok"] and "causal savepoint --stop" in answer["error"]
    assert phase(scene) is Phase.NONE and next_slots(scene) == []


def test_the_process_of_a_source_continues_through_a_rollback() -> None:
    scene = running(companions=(CompanionCall("lines", ("x",)),))
    [answer] = asked(scene, "facts")
    assert answer["ok"]
    assert asked(scene, "prepare", tasks=NEXT, rollback="9-abc", incarnation=1001) == []
    scene.beats(1)
    asked(scene, "stand")
    killed = {effect.slot for effect in of(scene.said, fx.KillProcess)}
    assert killed == {scene.slot_of(task) for task in TASKS} | set(scene.supervision.assignments.slots)
    assert not [slot for slot in killed if slot.startswith("companion-")]


def test_a_silent_command_ends_the_change_and_the_job_is_as_before() -> None:
    scene = prepared()
    ours = next_slots(scene)
    scene.idle(LEASE_NS / MS - 1000)
    asked(scene, "renew")
    scene.idle(LEASE_NS / MS - 1000)
    assert phase(scene) is Phase.PREPARING
    heard = scene.idle(2000)
    assert phase(scene) is Phase.NONE
    assert set(ours) <= {effect.slot for effect in of(heard, fx.KillProcess)}
    assert all(scene.incarnation_of(task) == 1 for task in TASKS)
    [answer] = asked(scene, "stand")
    assert not answer["ok"] and "has ended" in answer["error"]


@pytest.mark.parametrize("early", [True, False])
def test_a_change_that_ends_at_the_savepoint_makes_the_current_version_continue(early: bool) -> None:
    scene = prepared()
    if early:
        asked(scene, "stand")
        epoch = scene.supervision.coordinator.final
        asked(scene, "cancel")
        assert phase(scene) is Phase.RETURNING and scene.supervision.job.stopping is None
        for task in TASKS:
            scene.acknowledge(task, epoch)
        scene.step(events.Tick())
    else:
        epoch = stood(scene)
        asked(scene, "cancel")
    assert phase(scene) is Phase.NONE and scene.supervision.coordinator.final == 0
    for slot in [scene.slot_of(task) for task in TASKS]:
        scene.die(slot)
    scene.beats(6)
    # The stores may have been opened by the next version, so they accept only higher incarnations.
    assert all(scene.incarnation_of(task) > 1001 for task in TASKS)
    assert scene.supervision.job.stopping is None and scene.supervision.coordinator.complete == epoch
    scene.checkpoint()
    assert scene.supervision.coordinator.complete == epoch + 1


@pytest.mark.parametrize("restarts", [False, True])
def test_no_task_is_promoted_after_the_final_savepoint_until_the_change_ends(restarts: bool) -> None:
    """Such a task would not know that it must stand, and the stores may have been opened for the next version."""
    scene = prepared()
    scene.beats(3)
    stood(scene)
    for task in ("read/0", "out/0"):
        scene.die(scene.slot_of(task))
    if restarts:
        scene.restart()
    scene.beats(3)
    assert not scene.slot_of("read/0") and not scene.slot_of("out/0")
    asked(scene, "cancel")
    scene.die(scene.slot_of("count/0"))
    scene.beats(6)
    assert all(scene.incarnation_of(task) > 1001 for task in TASKS)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_job_that_is_resumed_during_a_change_continues_with_the_current_version(steps: int) -> None:
    scene = prepared()
    if steps == 2:
        asked(scene, "stand")
    elif steps == 3:
        stood(scene)
    scene.journal.append({"kind": "resumed", "at_ns": scene.now})
    scene.living.clear()
    scene.restart()
    scene.beats(6)
    assert phase(scene) is Phase.NONE and scene.supervision.coordinator.final == 0
    # The stores may have been opened by the next version, so they accept only higher incarnations.
    assert {scene.incarnation_of(task) for task in TASKS} == {2 if steps == 1 else 1002}
    scene.checkpoint()
    assert scene.supervision.job.stopping is None and scene.supervision.coordinator.complete == 2 + (steps == 3)
    [answer] = asked(scene, "renew")
    assert not answer["ok"] and "has ended" in answer["error"]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_supervisor_that_dies_leaves_the_change_to_the_next(steps: int) -> None:
    scene = prepared()
    if steps > 1:
        asked(scene, "stand")
    if steps > 2:
        for task in TASKS:
            scene.acknowledge(task, scene.supervision.coordinator.final)
    scene.restart()
    scene.beats(2)
    assert phase(scene) is (Phase.PREPARING if steps == 1 else Phase.ENDING)
    assert scene.supervision.job.stopping is None
    if steps == 1:
        assert [answer["step"] for answer in asked(scene, "prepare", tasks=NEXT, rollback="", incarnation=9)] == [
            "prepare"
        ]
    elif steps == 3:
        assert [answer["step"] for answer in asked(scene, "stand")] == ["stand"]
        asked(scene, "commit")
        assert of(scene.said, fx.CommitChange)


def test_a_supervisor_that_dies_with_the_command_lets_the_current_version_continue() -> None:
    scene = prepared()
    stood(scene)
    scene.restart()
    scene.idle(LEASE_NS / MS + 100)
    assert phase(scene) is Phase.NONE and scene.supervision.job.stopping is None
    assert [record["slot"] for record in scene.journal if record["kind"] == "killing"][-3:] == [
        scene.slot_of(task) for task in TASKS
    ]


def test_a_process_that_dies_is_replaced_and_code_that_cannot_start_ends_the_change() -> None:
    scene = prepared()
    [first, *_] = next_slots(scene)
    scene.die(first)
    assert len(next_slots(scene)) == 4 and first not in next_slots(scene)
    [start] = [effect for effect in of(scene.said, fx.StartProcess) if effect.role == NEXT_WORKER]
    assert start.slot == next_slots(scene)[-1]
    asked(scene, "stand")
    for _ in range(FAILED_STARTS_MAX):
        assert phase(scene) is Phase.ENDING
        slot = next_slots(scene)[-1]
        scene.die(slot, last_line="NameError: pipelin")
    assert phase(scene) is Phase.RETURNING
    assert any("NameError: pipelin" in answer.body["error"] for answer in of(scene.said, fx.Answer))


def test_a_rollback_ends_every_process_of_the_current_version_and_promotes_none() -> None:
    scene = prepared(rollback="2-aaaaaa")
    ours = list(scene.supervision.assignments.slots)
    assert asked(scene, "stand") == []
    assert {effect.slot for effect in of(scene.said, fx.KillProcess)} == set(ours)
    for slot in ours:
        scene.die(slot)
    assert [answer.body["step"] for answer in of(scene.said, fx.Answer)] == ["stand"]
    scene.beats(3)
    assert not scene.supervision.assignments.slots and scene.supervision.coordinator.final == 0
    assert not [answer for answer in asked(scene, "commit") if answer["ok"]], "the rows are not withdrawn yet"
    assert [answer["step"] for answer in asked(scene, "withdraw")] == ["withdraw"]
    [refused] = asked(scene, "cancel")
    assert not refused["ok"]
    asked(scene, "commit")
    assert of(scene.said, fx.CommitChange)


def test_a_rollback_that_is_interrupted_before_rows_are_withdrawn_leaves_the_current_version() -> None:
    scene = prepared(rollback="2-aaaaaa")
    asked(scene, "stand")
    for slot in list(scene.supervision.assignments.slots):
        scene.die(slot)
    asked(scene, "cancel")
    scene.beats(6)
    assert phase(scene) is Phase.NONE
    assert all(scene.incarnation_of(task) > 1001 for task in TASKS) and scene.supervision.job.stopping is None


def test_a_rollback_that_is_interrupted_after_that_ends_the_job_with_the_command_that_completes_it() -> None:
    scene = prepared(rollback="2-aaaaaa")
    asked(scene, "stand")
    for slot in list(scene.supervision.assignments.slots):
        scene.die(slot)
    asked(scene, "withdraw")
    scene.restart()
    scene.idle(LEASE_NS / MS + 100)
    assert scene.supervision.job.stopping is not None
    status, reason = scene.supervision.job.stopping
    assert status == 1 and "--resume --rollback" in reason


def test_the_agent_is_asked_again_for_a_process_that_it_does_not_know() -> None:
    scene = running()
    scene.checkpoint()
    asked(scene, "prepare", tasks=NEXT, rollback="", incarnation=1001)
    ours = next_slots(scene)
    for slot in ours:
        del scene.living[slot]
    scene.step(events.Tick(), 400)
    scene.agent_beat()
    assert {effect.slot for effect in of(scene.said, fx.StartProcess)} == set(ours)
    scene.agent_beat()
    assert not of(scene.said, fx.KillProcess)


def test_a_job_that_ends_meanwhile_ends_the_change_and_says_so() -> None:
    scene = prepared()
    asked(scene, "stand")
    slot = scene.slot_of("count/0")
    scene.step(events.Failed(slot, "count/0", 1, "OperatorFailed", "a mistake", True))
    assert scene.supervision.job.stopping is not None and phase(scene) is Phase.NONE
    assert [answer.body["error"] for answer in of(scene.said, fx.Answer)] == ["the job is ending already"]


@pytest.mark.parametrize("committed", [True, False])
def test_a_job_that_is_resumed_after_an_unfinished_change_may_write_to_its_stores(committed: bool) -> None:
    scene = prepared()
    if committed:
        stood(scene)
    scene.step(events.Tick())
    scene.journal.append({"kind": "resumed", "at_ns": 0, "figures": {}})
    scene.living.clear()
    scene.restart()
    scene.agent_beat()
    scene.beats(6)
    assert phase(scene) is Phase.NONE and scene.supervision.job.stopping is None
    assert all((scene.incarnation_of(task) > 1001) == committed for task in TASKS)
    scene.checkpoint()
    assert scene.supervision.coordinator.final == 0


def test_a_savepoint_that_ends_the_job_is_refused_while_the_current_version_ends() -> None:
    scene = prepared()
    asked(scene, "stand")
    scene.step(events.Admin("admin-2", "savepoint", {"final": True}))
    [answer] = of(scene.said, fx.Answer)
    assert not answer.body["ok"] and answer.to == "admin-2"
