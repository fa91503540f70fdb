"""A change of a running job of several hosts: the supervisor's part of it, wherever processes are (0063)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.hosts import Hosts, HostState
from standby.supervision.next_version import Phase
from standby.supervision.orders import NEXT_WORKER
from standby.supervision.savepoints import withdraws
from tests.unit.standby.host_scene import HostScene, settled
from tests.unit.standby.scene import of, snapshot_files
from tests.unit.standby.test_next_version import NEXT, TOKEN, asked, next_slots, phase, stood

NOWHERE: Mapping[str, Any] = MappingProxyType({})


def prepared(scene: HostScene | None = None, rollback: str = "", places: Mapping[str, Any] = NOWHERE) -> HostScene:
    """Return a job with a checkpoint, and with idle processes of its next version."""
    scene = scene or settled(checkpoint_interval_s=1.0)
    scene.checkpoint()
    assert asked(scene, "prepare", tasks=NEXT, places=dict(places), rollback=rollback, incarnation=1001) == []
    heard = scene.beats(1)
    assert [dict(answer.body)["step"] for answer in of(heard, fx.Answer)] == ["prepare"]
    return scene


def hosts_of(scene: HostScene) -> dict[str, str]:
    """Return the host of each process of the next version, by its task."""
    return {entry.purpose: entry.host for entry in scene.supervision.next_version.entries()}


def next_of(scene: HostScene, task: str) -> str:
    return next(entry.name for entry in scene.supervision.next_version.entries() if entry.purpose == task)


def test_processes_of_the_next_version_are_spread_over_the_hosts_and_their_constraints_hold() -> None:
    scene = prepared(places={"out/0": ["c", {}]})
    assert Counter(hosts_of(scene).values()).most_common(1)[0][1] <= 2
    assert hosts_of(scene)["out/0"] == "c"
    assert {scene.supervision.host_of(slot) for slot in next_slots(scene)} == {"a", "b", "c"}
    assert scene.supervision.host_of("w99") is None


def test_their_hosts_survive_the_supervisor() -> None:
    scene = prepared(places={"out/0": ["c", {}]})
    before = hosts_of(scene)
    scene.restart()
    scene.beats(3)
    assert hosts_of(scene) == before and phase(scene) is Phase.PREPARING
    scene.end(next_of(scene, "out/0"))
    assert hosts_of(scene)["out/0"] == "c", "the constraint is part of the decision"


def test_without_room_for_both_versions_the_change_is_refused_and_nothing_is_left() -> None:
    scene = HostScene(checkpoint_interval_s=1.0, join=("a", "b"))
    for name in ("a", "b"):
        scene.join(name, slots=4)
    scene.beats(8)
    scene.checkpoint()
    before = set(scene.supervision.assignments.slots)
    facts = {"step": "prepare", "change": TOKEN, "tasks": NEXT, "rollback": "", "incarnation": 1001}
    [answer] = [each.body for each in of(scene.step(events.Admin("admin-1", "change", facts)), fx.Answer)]
    assert not answer["ok"] and "no host has room for" in answer["error"] and "add a host" in answer["error"]
    scene.beats(3)
    assert phase(scene) is Phase.NONE and set(scene.living) == before == set(scene.supervision.assignments.slots)


def test_the_processes_of_a_lost_host_start_elsewhere_however_often_that_happens() -> None:
    scene = prepared()
    for _ in range(4):  # more often than processes may fail
        lost = hosts_of(scene)["count/0"]
        scene.join(lost)
        assert hosts_of(scene)["count/0"]
        scene.beats(6)
        assert phase(scene) is Phase.PREPARING
        assert set(next_slots(scene)) <= set(scene.living)


def test_a_standby_is_not_placed_where_the_next_version_has_taken_the_last_room() -> None:
    scene = HostScene(checkpoint_interval_s=1.0, join=("a", "b"))
    for name in ("a", "b"):
        scene.join(name, slots=5)
    scene.beats(8)
    prepared(scene)
    scene.end(scene.standby_of("count/0"))
    scene.beats(4)
    load = Counter(host for host in hosts_of(scene).values())
    load += Counter(slot.host for slot in scene.supervision.assignments.slots.values())
    assert max(load.values()) <= 5


def test_an_agent_reports_only_on_its_own_host() -> None:
    scene = prepared()
    slot = next_of(scene, "count/1")
    other = next(name for name in scene.hosts if name != scene.supervision.host_of(slot))
    scene.step(events.Exited(slot, 1, scene.now, status=-9, host=other))
    scene.step(events.AgentBeat({}, {slot: -9}, host=other, incarnation=scene.hosts[other].incarnation))
    assert slot in next_slots(scene)
    heard = scene.step(events.AgentBeat({slot: 7}, {}, host=other, incarnation=scene.hosts[other].incarnation))
    assert (slot, other) in [(each.slot, each.host) for each in of(heard, fx.KillProcess)]


def test_a_lost_order_to_start_is_repeated_to_its_host_alone() -> None:
    scene = settled(checkpoint_interval_s=1.0)
    scene.checkpoint()
    for host in scene.hosts.values():
        host.reachable = False
    asked(scene, "prepare", tasks=NEXT, rollback="", incarnation=1001)
    for host in scene.hosts.values():
        host.reachable = True
    heard = [effect for _ in range(10) for effect in scene.pass_time(50)]
    again = {(each.slot, each.host) for each in of(heard, fx.StartProcess) if each.role == NEXT_WORKER}
    assert again == {(entry.name, entry.host) for entry in scene.supervision.next_version.entries()}


@pytest.mark.parametrize("step", ["facts", "prepare", "commit"])
def test_an_agent_that_cannot_be_sent_another_version_has_to_be_upgraded_first(step: str) -> None:
    scene = prepared() if step == "commit" else settled(checkpoint_interval_s=1.0)
    if step == "commit":
        stood(scene)
    scene.sessions += 1
    scene.hosts["c"].session = "older"
    scene.hello("c", changes=False, version="0.1")
    [answer] = asked(scene, step, tasks=NEXT, rollback="", incarnation=1001)
    assert (
        not answer["ok"] and "the agent of host c (causal-streams 0.1) cannot change a running job" in answer["error"]
    )
    assert not of(scene.said, fx.CommitChange)


def test_the_commit_names_the_hosts_of_the_processes() -> None:
    scene = prepared()
    stood(scene)
    asked(scene, "commit")
    [commit] = of(scene.said, fx.CommitChange)
    assert {each["purpose"]: each["host"] for each in commit.processes} == hosts_of(scene)


def test_the_next_version_knows_the_hosts_as_they_are_and_promotes_where_they_wait() -> None:
    scene = settled(checkpoint_interval_s=1.0)
    scene.supervision.handle(events.Admin("admin-1", "drain", {"host": "b", "draining": True}), scene.now)
    scene.join("c")
    scene.beats(8)
    lost = scene.hosts["a"]
    scene.step(events.HostClosed("a", lost.session))
    lost.reachable = False
    resumed: list[Any] = [{"kind": "resumed", "at_ns": 0, "figures": {}, "started_max": 50}]
    again = Hosts(True, 1_000_000_000)
    for record in (*resumed, *scene.supervision.hosts.decisions()):
        again.apply(record)
    states = [(each.name, each.state, each.incarnation, each.session, each.slots, each.changes) for each in again]
    assert states == [
        (each.name, each.state, each.incarnation, each.session, each.slots, each.changes)
        for each in scene.supervision.hosts
    ]
    assert {each.state for each in again} == {HostState.LOST, HostState.JOINED, HostState.DRAINING}


def test_a_host_is_not_lost_again_by_a_change() -> None:
    scene = settled()
    scene.step(events.HostClosed("a", scene.hosts["a"].session))
    decisions = scene.supervision.hosts.decisions()
    other = HostScene(join=())
    other.journal = [{"kind": "resumed", "at_ns": 0, "figures": {}}, *decisions]
    other.restart()
    assert not other.view["host_losses"] and {host["host"] for host in other.view["hosts"]} == {"a", "b", "c"}


def test_a_rollback_is_incomplete_from_its_withdrawal_until_the_job_resumes() -> None:
    scene = prepared(rollback="1-saved")
    asked(scene, "stand")
    for _ in range(4):
        scene.beats(1)
    assert withdraws(scene.journal) == ""
    asked(scene, "withdraw")
    assert withdraws(scene.journal) == "1-saved"
    assert withdraws([*scene.journal, {"kind": "resumed", "at_ns": 0, "figures": {}}]) == ""


def test_its_processes_load_wherever_they_are() -> None:
    scene = prepared()
    files = {task: snapshot_files(task, 1001, 1001) for task in NEXT}
    assert asked(scene, "follow", epoch=1, files=files) == []
    assert [answer.body["step"] for answer in of(scene.beats(2), fx.Answer)] == ["follow"]


def test_a_job_in_executors_of_spark_changes_with_a_stop() -> None:
    scene = settled(on="spark://here:7077")
    [answer] = asked(scene, "facts")
    assert not answer["ok"] and "a job in Spark's executors changes with a stop" in answer["error"]
