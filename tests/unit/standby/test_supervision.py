"""Tests of the supervisor's decisions: start, failures of every kind, its own restart, the end."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from causal.errors import InvariantViolation
from causal.task.activity import Activity
from standby.blueprint import CompanionCall
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.supervision import STOP_NS_MAX, Supervision
from standby.supervision.task_counters import lasting
from tests.unit.standby.scene import MS, SECOND, Scene, of, running, sent

TASKS = ("read/0", "count/0", "out/0")


def test_at_the_start_tasks_come_first_and_standbys_when_all_tasks_run() -> None:
    scene = Scene()
    assert list(scene.living) == ["w1", "w2", "w3"]
    heard = scene.beats(1)
    assert [m["task"] for _, m in sent(heard, "promote")] == list(TASKS)
    assert all(m["incarnation"] == 1 and m["epoch"] == 0 and m["files"] == [] for _, m in sent(heard, "promote"))
    assert len(scene.living) == 3
    heard = scene.beats(2)
    assert len(scene.living) == 6
    assert sorted(m["task"] for _, m in sent(heard, "follow")) == sorted(TASKS)


def test_every_task_learns_of_all_its_neighbours() -> None:
    scene = Scene()
    heard = scene.beats(3)
    known: dict[str, set[str]] = {task: set() for task in TASKS}
    for _, message in sent(heard, "promote"):
        known[message["task"]] |= set(message["peers"])
    for slot, message in sent(heard, "peer"):
        known[scene.living[slot]["task"]].add(message["task"])
    assert known == {"read/0": {"count/0"}, "count/0": {"read/0", "out/0"}, "out/0": {"count/0"}}


def test_a_failure_promotes_the_standby_of_that_task_and_tells_the_neighbours() -> None:
    scene = running()
    scene.checkpoint()
    heard = scene.die(scene.slot_of("count/0"))
    [(slot, promote)] = sent(heard, "promote")
    assert promote["task"] == "count/0" and promote["incarnation"] == 2 and promote["epoch"] == 1
    assert promote["files"] == [["checkpoints/count/0/e1-i1.snap", 10, "00"]]
    assert set(promote["peers"]) == {"read/0", "out/0"}
    introduced = dict(sent(heard, "peer"))
    assert set(introduced) == {scene.slot_of("read/0"), scene.slot_of("out/0")}
    assert all(
        m == {"kind": "peer", "task": "count/0", "endpoint": f"ipc:///x/{slot}", "incarnation": 2}
        for m in introduced.values()
    )
    assert not sent(heard, "peer_down")
    assert scene.journal[-1] == {
        "kind": "promoted", "task": "count/0", "incarnation": 2, "slot": slot, "epoch": 1, "mode": "standby"
    }  # fmt: skip
    heard = scene.idle(1500)
    assert [record["purpose"] for record in scene.journal if record["kind"] == "process"][-1] == "count/0"


def test_without_a_ready_standby_upstream_is_told_at_once_and_a_new_process_is_promoted() -> None:
    scene = running(standbys="0")
    assert len(scene.living) == 3
    heard = scene.die(scene.slot_of("count/0"), killed_ns=scene.now)
    assert sent(heard, "peer_down") == [
        (scene.slot_of("read/0"), {"kind": "peer_down", "task": "count/0", "incarnation": 1})
    ]
    [started] = of(heard, fx.StartProcess)
    heard = scene.beat(started.slot, 300)
    [(slot, promote)] = sent(heard, "promote")
    assert (slot, promote["task"], promote["incarnation"]) == (started.slot, "count/0", 2)
    assert len(sent(heard, "peer")) == 2
    assert scene.view["recoveries"][0]["mode"] == "cold"


def test_a_pool_serves_whichever_task_fails() -> None:
    scene = running(standbys="1")
    assert len(scene.living) == 4
    heard = scene.die(scene.slot_of("out/0"))
    assert [m["task"] for _, m in sent(heard, "promote")] == ["out/0"]
    assert scene.view["recoveries"][0]["mode"] == "standby"
    scene.idle(1500)
    assert len(scene.living) == 4


def test_neighbours_that_fail_together_are_told_of_each_others_new_place() -> None:
    scene = running()
    heard = scene.die(scene.slot_of("read/0")) + scene.die(scene.slot_of("count/0"))
    [(_, read), (count_slot, count)] = sent(heard, "promote")
    assert count["peers"]["read/0"] == [f"ipc:///x/{scene.slot_of('read/0')}", 2]
    message = {"kind": "peer", "task": "count/0", "endpoint": f"ipc:///x/{count_slot}", "incarnation": 2}
    assert (scene.slot_of("read/0"), message) in sent(heard, "peer")


def test_the_same_task_may_fail_again_while_it_recovers() -> None:
    scene = running()
    scene.die(scene.slot_of("count/0"))
    scene.phase("count/0", "promoted")
    heard = scene.die(scene.slot_of("count/0"))
    [started] = of(heard, fx.StartProcess)
    heard = scene.beat(started.slot)
    [(_, promote)] = sent(heard, "promote")
    assert promote["incarnation"] == 3
    for phase in ("promoted", "collected", "first_output", "running"):
        scene.phase("count/0", phase)
    first, second = scene.view["recoveries"]
    assert first["promoted_ms"] is not None and first["live_ms"] is None
    assert second["live_ms"] is not None


def test_the_view_shows_which_checkpoint_a_standby_has_loaded() -> None:
    scene = running()
    scene.beat(scene.standby_of("out/0"), followed=7)
    loaded = {p["follows"] for p in scene.view["processes"] if p["standby_of"] == "out/0"}
    assert 7 in loaded


def test_a_standby_that_dies_is_replaced_after_a_pause_and_nothing_else_happens() -> None:
    scene = running()
    heard = scene.die(scene.standby_of("out/0"))
    assert not sent(heard, "promote") and not sent(heard, "peer") and not of(heard, fx.StartProcess)
    heard = scene.idle(200)
    assert len(of(heard, fx.StartProcess)) == 1
    assert scene.view["recoveries"] == []


def test_a_silent_process_is_killed_first_and_promoted_when_its_exit_is_confirmed() -> None:
    scene = running(heartbeat_timeout_ms=500)
    hung = scene.slot_of("count/0")
    heard = scene.beats_of_others(hung, 14)
    assert of(heard, fx.KillProcess) == [fx.KillProcess(hung)]
    assert not sent(heard, "promote")
    assert {"kind": "killing", "slot": hung, "why": "silent"} in scene.journal
    heard = scene.die(hung)
    assert [m["task"] for _, m in sent(heard, "promote")] == ["count/0"]


def pulse(scene: Scene, slot: str, after_ms: float, **fields: Any) -> list[fx.Effect]:
    return scene.step(events.Pulse(slot, int(slot[1:]) + 100, **fields), after_ms)


def test_the_view_has_the_hottest_keys_that_a_task_reported_last() -> None:
    scene = running()
    slot = scene.slot_of("count/0")
    for reported in ((("7", 0.75), ("1", 0.1)), (("1", 0.5),), ()):
        scene.beat(slot, hot_keys=reported)
        hot_keys = {task["task"]: task["hot_keys"] for task in scene.view["tasks"]}
        assert hot_keys == {**dict.fromkeys(hot_keys, []), "count/0": [list(each) for each in reported]}


def test_a_process_that_is_too_busy_to_beat_is_not_silent() -> None:
    scene = running(heartbeat_timeout_ms=500)
    busy = scene.slot_of("count/0")
    heard: list[fx.Effect] = []
    since_ns = scene.now
    scene.beat(busy, state="replaying")
    for _ in range(40):
        heard += scene.beats_of_others(busy, 1)
        heard += pulse(scene, busy, 10, state="running", doing=Activity("event", since_ns, "slow", "5"))
    assert not of(heard, fx.KillProcess)
    assert scene.seen("count/0")["doing"] == {"kind": "event", "since_ns": since_ns, "operator": "slow", "key": "5"}
    assert [task["state"] for task in scene.view["tasks"]] == ["running"] * 3
    scene.beat(busy)
    assert not any(task["doing"] for task in scene.view["tasks"])
    heard += scene.beats_of_others(busy, 14)
    assert of(heard, fx.KillProcess) == [fx.KillProcess(busy)], "silence counts from the last sign of life"


def test_a_process_that_loads_its_pipeline_for_minutes_is_waited_for_as_long_as_it_speaks() -> None:
    scene = Scene(heartbeat_timeout_ms=500)
    slow = next(iter(scene.living))
    heard: list[fx.Effect] = []
    for _ in range(700):
        heard += pulse(scene, slow, 100, doing=Activity("start", SECOND))
        heard += scene.beats_of_others(slow, 1, 1)
    assert not of(heard, fx.KillProcess)
    assert scene.view["state"] == "starting"
    heard += scene.beats_of_others(slow, 3, 100)
    assert of(heard, fx.KillProcess) == [fx.KillProcess(slow)]


def test_a_silent_process_that_computes_has_longer_and_not_for_ever() -> None:
    def silent_for_ms(computes_ms: int) -> int:
        """The time until a process is killed which the agent sees compute for `computes_ms`."""
        scene = running(heartbeat_timeout_ms=500, stuck_after_ms=3000)
        stopped = scene.slot_of("count/0")
        others = [slot for slot in scene.living if slot != stopped]
        began = scene.now
        slots = {slot: int(slot[1:]) + 100 for slot in scene.living}
        for _ in range(1000):
            heard = scene.beat(others[0], 5)
            for slot in others[1:]:
                heard += scene.beat(slot, 1)
            computing = (stopped,) if scene.now - began < computes_ms * MS else ()
            heard += scene.step(events.AgentBeat(slots, {}, computing=computing))
            if of(heard, fx.KillProcess):
                assert of(heard, fx.KillProcess) == [fx.KillProcess(stopped)]
                return (scene.now - began) // MS
        raise AssertionError("it is never killed")

    assert 400 <= silent_for_ms(0) <= 600
    assert 1900 <= silent_for_ms(1500) <= 2100
    assert 2900 <= silent_for_ms(60_000) <= 3100


def test_work_that_lasts_is_logged_less_and_less_often() -> None:
    scene = running()
    slot, since_ns = scene.slot_of("count/0"), scene.now
    lines = []
    for _ in range(300):
        heard = scene.beats(1) + pulse(scene, slot, 1000, doing=Activity("event", since_ns, "slow", "5", at="p.py:3"))
        lines += [note.line for note in of(heard, fx.Note)]
    assert lines[0].startswith("count/0: in 'slow' for 5.") and lines[0].endswith(" s, key 5, at p.py:3")
    assert 5 <= len(lines) <= 7
    for _ in range(100):  # many records of six seconds
        heard = pulse(scene, slot, 1000, doing=Activity("event", scene.now - 6 * SECOND, "slow"))
        assert not of(heard, fx.Note)
        scene.beats(1)


def test_a_new_supervisor_learns_from_a_pulse_where_a_busy_task_is() -> None:
    scene = running()
    busy, upstream = scene.slot_of("count/0"), scene.slot_of("read/0")
    scene.restart()
    heard = pulse(scene, busy, 10, endpoint="ipc:///x/busy")
    heard += scene.beat(upstream, 10, peers={})
    messages = [message for slot, message in sent(heard, "peer") if slot == upstream and message["task"] == "count/0"]
    assert messages and messages[0]["endpoint"] == "ipc:///x/busy"


def test_silence_while_the_supervisor_itself_was_stopped_is_nobodys_fault() -> None:
    scene = running()
    heard = scene.step(events.Tick(), 60_000)
    assert not of(heard, fx.KillProcess)


def test_a_task_that_keeps_failing_without_a_checkpoint_ends_the_job_in_one_line() -> None:
    scene = running(crash_loop_max=3, standbys="0")
    heard: list[fx.Effect] = []
    for _ in range(3):
        heard = scene.die(scene.slot_of("count/0"), last_line="ValueError: no")
        scene.beats(2)
    [end] = of(heard, fx.EndJob)
    assert end.status == 1 and "\n" not in end.reason
    assert end.reason == (
        "count/0 failed 3 times in a row without two complete checkpoints in between: see `causal logs "
        "count/0` (logs/w5.log); its process was killed by signal 9 (SIGKILL), as the kernel does when memory "
        "is exhausted: ValueError: no"
    )


@pytest.mark.parametrize("guarantee", ["causal", "epoch", "at-least-once"])
def test_a_checkpoint_before_the_record_that_kills_each_time_does_not_hide_a_crash_loop(guarantee: str) -> None:
    scene = running(crash_loop_max=3, standbys="0", guarantee=guarantee)
    heard: list[fx.Effect] = []
    for _ in range(3):
        scene.checkpoint()
        heard = scene.die(scene.slot_of("count/0"))
        for slot in list(scene.living) if guarantee != "causal" else ():
            scene.die(slot, killed_ns=scene.now)
        scene.beats(3)
    assert of(heard, fx.EndJob)


def test_a_task_that_keeps_hanging_ends_the_job_with_a_line_that_says_so() -> None:
    scene = running(crash_loop_max=1, standbys="0", heartbeat_timeout_ms=4000)
    slot, heard = scene.slot_of("count/0"), list[fx.Effect]()
    while not of(heard, fx.KillProcess):
        for other in set(scene.living) - {slot}:
            scene.beat(other)
        heard = scene.step(events.Tick(), 500)
    assert of(heard, fx.KillProcess) == [fx.KillProcess(slot)]
    [end] = of(scene.die(slot, killed_ns=scene.now), fx.EndJob)
    said = r"it ended with: silence of 4\d\d\d ms, for which it was killed \(heartbeat_timeout_ms is 4000\)$"
    assert re.search(said, end.reason), end.reason


def test_two_complete_checkpoints_and_kills_on_request_do_not_count_as_a_crash_loop() -> None:
    scene = running(crash_loop_max=2, standbys="0")
    for _ in range(3):
        scene.die(scene.slot_of("count/0"))
        scene.beats(3)
        scene.checkpoint()
        scene.checkpoint()
    for _ in range(4):
        scene.step(events.Admin("admin-1", "kill", {"task": "count/0"}))
        scene.die(scene.slot_of("count/0"), killed_ns=scene.now)
        scene.beats(3)
    assert scene.supervision.job.ended is None


def test_a_worker_that_cannot_even_start_ends_the_job() -> None:
    scene = Scene(crash_loop_max=2)
    heard: list[fx.Effect] = []
    for _ in range(6):
        for slot in list(scene.living):
            heard += scene.die(slot, last_line="No module named x")
        heard += scene.step(events.Tick(), 500)
    [end] = of(heard, fx.EndJob)
    assert end.status == 1 and "No module named x" in end.reason


def test_a_definite_failure_ends_the_job_with_its_message_and_an_indefinite_one_is_a_crash() -> None:
    scene = running()
    slot = scene.slot_of("count/0")
    heard = scene.step(events.Failed(slot, "count/0", 1, "DeterminantsLost", "gone", definite=False))
    assert of(heard, fx.KillProcess) == [fx.KillProcess(slot)] and not of(heard, fx.EndJob)
    scene.die(slot)
    slot = scene.slot_of("count/0")
    heard = scene.step(events.Failed(slot, "count/0", 2, "OperatorFailed", "count: key 3: boom", definite=True))
    assert of(heard, fx.EndJob) == [fx.EndJob(1, "count: key 3: boom")]
    assert [message["finished"] for _, message in sent(heard, "stop")] == [False] * len(scene.living)


def test_a_failure_told_by_a_process_that_has_been_replaced_is_ignored() -> None:
    scene = running()
    old = scene.slot_of("count/0")
    scene.die(old)
    heard = scene.step(events.Failed(old, "count/0", 1, "OperatorFailed", "boom", definite=True))
    assert not of(heard, fx.EndJob)


def test_the_job_ends_when_every_sink_has_finished_and_every_process_has_told_its_last() -> None:
    scene = running()
    scene.finish("read/0")
    assert scene.supervision.job.stopping is None
    heard = scene.finish("out/0")
    assert len(sent(heard, "stop")) == 6 and not of(heard, fx.EndJob)
    assert all(message["finished"] for _, message in sent(heard, "stop")), "no task goes back any more: stores may know"
    scene.beat(scene.slot_of("out/0"), counters={"records_out": 7})
    for slot in list(scene.living):
        heard = scene.die(slot)
        if of(heard, fx.EndJob):
            break
    assert of(heard, fx.EndJob) == [fx.EndJob(0, "")]
    assert scene.view["recoveries"] == []
    assert scene.view["tasks"][2]["figures"] == {"records_out": 7}


def test_processes_that_do_not_end_when_told_to_do_not_hold_up_the_end() -> None:
    scene = running()
    scene.finish("out/0")
    heard = scene.step(events.Tick(), STOP_NS_MAX / MS)
    assert of(heard, fx.EndJob) == [fx.EndJob(0, "")]


def test_a_finished_sink_is_known_from_its_beats_alone() -> None:
    scene = running()
    heard = scene.beat(scene.slot_of("out/0"), state="finished")
    assert sent(heard, "stop")


class TestRestart:
    """The journal and the beats are the whole memory."""

    def test_nothing_that_lives_is_restarted(self) -> None:
        scene = running()
        scene.checkpoint()
        scene.restart()
        heard = scene.said + scene.agent_beat() + scene.beats(3)
        assert not of(heard, fx.StartProcess) and not of(heard, fx.KillProcess) and not sent(heard, "promote")
        assert scene.view["state"] == "running"
        assert scene.supervision.coordinator.complete == 1

    def test_tasks_hear_again_where_their_neighbours_are(self) -> None:
        scene = running()
        scene.restart()
        heard = scene.beats(2)
        assert len(sent(heard, "peer")) == 4

    def test_what_died_meanwhile_is_recovered_when_the_agent_knows(self) -> None:
        scene = running()
        lost = scene.slot_of("count/0")
        scene.living.pop(lost)
        scene.dead[lost] = -9
        scene.restart()
        scene.beats(1)
        heard = scene.agent_beat()
        assert [(m["task"], m["incarnation"]) for _, m in sent(heard, "promote")] == [("count/0", 2)]

    def test_what_neither_the_agent_nor_a_beat_knows_is_recovered(self) -> None:
        scene = running()
        lost = scene.slot_of("count/0")
        scene.living.pop(lost)
        scene.restart()
        heard = scene.beats(1) + scene.agent_beat()
        assert not sent(heard, "promote")
        heard = scene.idle(1200) + scene.agent_beat()
        assert [(m["task"], m["incarnation"]) for _, m in sent(heard, "promote")] == [("count/0", 2)]

    def test_a_promotion_that_was_journaled_but_not_sent_is_sent(self) -> None:
        scene = running()
        standby = [s for s, w in scene.living.items() if w["followed"] is not None and s != scene.slot_of("count/0")]
        scene.die(scene.slot_of("count/0"))
        slot = scene.slot_of("count/0")
        assert slot in standby
        scene.living[slot].update(task=None, incarnation=0)  # it never got the message
        scene.restart()
        heard = scene.beat(slot)
        assert [(to, m["task"], m["incarnation"]) for to, m in sent(heard, "promote")] == [(slot, "count/0", 2)]

    def test_a_process_that_was_decided_but_never_asked_for_is_asked_for(self) -> None:
        scene = Scene()
        scene.living.clear()
        scene.restart()
        heard = scene.agent_beat()
        assert [e.slot for e in of(heard, fx.StartProcess)] == ["w1", "w2", "w3"]
        assert len(scene.supervision.assignments.slots) == 3

    def test_figures_of_the_dead_and_the_timeline_survive(self) -> None:
        scene = running()
        scene.beat(scene.slot_of("count/0"), counters={"sent_bytes": 5, "inflight_bytes": 9})
        scene.die(scene.slot_of("count/0"))
        scene.phase("count/0", "running")
        before = scene.view["recoveries"]
        scene.restart()
        scene.beat(scene.slot_of("count/0"), counters={"sent_bytes": 2})
        assert scene.view["recoveries"] == before
        assert scene.view["tasks"][1]["figures"] == {"sent_bytes": 7}

    def test_the_end_is_remembered(self) -> None:
        scene = running()
        scene.finish("out/0")
        scene.step(events.Tick(), STOP_NS_MAX / MS)
        scene.restart()
        assert of(scene.said, fx.EndJob) == [fx.EndJob(0, "")]

    def test_figures_of_a_task_that_ended_while_nobody_listened_are_kept(self) -> None:
        """Found by the simulator (seed 22966): the supervisor died with the stop on its way."""
        scene = running()
        scene.finish("out/0", counters={"records_out": 7}, last_output_ns=5)
        assert scene.supervision.job.stopping == (0, "")
        scene.restart()
        view = scene.view
        assert view["tasks"][-1]["figures"]["records_out"] == 7 and view["last_output_ns"] == 5

    def test_a_stop_under_way_goes_on(self) -> None:
        scene = running()
        scene.finish("out/0")
        scene.restart()
        heard = scene.beats(1)
        assert len(sent(heard, "stop")) >= 6 and not sent(heard, "promote")
        assert of(scene.step(events.Tick(), STOP_NS_MAX / MS), fx.EndJob) == [fx.EndJob(0, "")]


def test_a_job_that_is_resumed_goes_on_from_the_last_complete_checkpoint_with_higher_incarnations() -> None:
    scene = running()
    scene.checkpoint()
    scene.living.clear()
    scene.dead.clear()
    scene.journal.append({"kind": "resumed", "at_ns": scene.now})
    scene.restart()
    heard = scene.beats(2)
    promotes = [m for _, m in sent(heard, "promote")]
    assert {(m["task"], m["incarnation"], m["epoch"]) for m in promotes} == {(task, 2, 1) for task in TASKS}
    assert scene.view["recoveries"] == []


def test_a_recovery_that_the_end_of_the_machine_cut_off_delays_nothing() -> None:
    scene = running()
    scene.now += 3600 * SECOND
    scene.agent_beat()
    scene.beats(3)
    scene.die(scene.slot_of("count/0"))
    scene.living.clear()
    scene.dead.clear()
    scene.now = SECOND  # the clock begins again
    scene.journal.append({"kind": "resumed", "at_ns": scene.now})
    scene.restart()
    scene.beats(5)
    assert len(scene.living) == 6, "standbys start"
    [ended] = scene.view["recovery_totals"]["numbers"]
    assert (ended["task"], ended["number"]) == ("count/0", 1)


def test_a_job_that_is_resumed_adds_to_the_sums_of_its_last_view_and_takes_positions_from_its_tasks() -> None:
    scene = running()
    counted = {"sent_bytes": 70, "records_out": 9, "log_bytes": 5, "latency_ms_buckets": {0.5: 4, float("inf"): 1}}
    scene.beat(scene.slot_of("out/0"), counters=counted)
    view = json.loads(json.dumps(scene.view))
    scene.living.clear()
    scene.dead.clear()
    scene.journal.append({"kind": "resumed", "at_ns": scene.now, "figures": lasting(view["tasks"])})
    scene.restart()
    figures = scene.supervision.figures
    assert figures.of("out/0") == {"sent_bytes": 70, "latency_ms_buckets": {0.5: 4, float("inf"): 1}}
    figures.update("out/0", 2, {"sent_bytes": 30, "records_out": 6, "latency_ms_buckets": {0.5: 1}}, None)
    sums = {"sent_bytes": 100, "latency_ms_buckets": {0.5: 5, float("inf"): 1}}
    assert figures.of("out/0") == {**sums, "records_out": 6}


@pytest.mark.parametrize(
    "figures", [{"sent_bytes": "7"}, {"latency_ms_buckets": {"x": 1}}, {"latency_ms_buckets": 1}, 0]
)
def test_the_figures_of_a_damaged_view_are_left_out(figures: object) -> None:
    assert lasting([{"task": "out/0", "figures": figures}]) == lasting(None) == {}


def test_a_zombie_that_claims_a_task_of_which_it_is_not_the_holder_is_killed() -> None:
    scene = running()
    heard = scene.step(
        events.Beat(slot="w77", pid=1, endpoint="e", task="count/0", incarnation=1, state="running", epoch=0)
    )
    assert of(heard, fx.KillProcess) == [fx.KillProcess("w77")]
    standby = next(s for s, w in scene.living.items() if w["task"] is None)
    heard = scene.beat(standby, task="count/0", incarnation=1)
    assert of(heard, fx.KillProcess) == [fx.KillProcess(standby)]


class TestInjection:
    """`--kill TASK@SECONDS` and `causal kill`."""

    def test_kills_count_from_the_first_record_and_wait_for_a_process(self) -> None:
        scene = Scene(kills=[("count/0", 0.5), ("count/0", 0.5)])
        assert scene.supervision.injection.left() == ["count/0@0.5", "count/0@0.5"]
        scene.beats(6)
        assert not of(scene.idle(1000), fx.KillProcess)
        scene.beat(scene.slot_of("read/0"), first_record_ns=scene.now)
        first = scene.slot_of("count/0")
        heard = scene.idle(600)
        assert of(heard, fx.KillProcess) == [fx.KillProcess(first)]
        scene.die(first, killed_ns=scene.now)
        heard = scene.idle(100)
        second = scene.slot_of("count/0")
        assert of(heard, fx.KillProcess) == [fx.KillProcess(second)] and second != first
        scene.die(second, killed_ns=scene.now)
        assert not of(scene.idle(1000), fx.KillProcess)
        assert scene.supervision.injection.left() == []

    def test_a_restarted_supervisor_does_not_kill_twice(self) -> None:
        scene = Scene(kills=[("count/0", 0.5)])
        scene.beats(6)
        scene.beat(scene.slot_of("read/0"), first_record_ns=scene.now)
        killed = scene.slot_of("count/0")
        scene.idle(600)
        scene.die(killed, killed_ns=scene.now)
        scene.restart()
        assert not of(scene.idle(1500), fx.KillProcess)

    def test_times_count_from_the_moment_of_the_kill(self) -> None:
        scene = running()
        slot = scene.slot_of("count/0")
        heard = scene.step(events.Admin("admin-1", "kill", {"task": "count/0"}))
        assert of(heard, fx.Answer)[0].body["ok"] and of(heard, fx.KillProcess) == [fx.KillProcess(slot)]
        killed_ns = scene.now
        scene.die(slot, killed_ns=killed_ns)
        scene.phase("count/0", "promoted")
        scene.phase("count/0", "replayed", 42)
        [recovery] = scene.view["recoveries"]
        assert recovery["detected_ms"] == 1.0 and recovery["replayed_elements"] == 42
        assert recovery["mode"] == "standby"

    def test_a_standby_can_be_killed_and_is_no_failure(self) -> None:
        scene = running(crash_loop_max=1)
        task, standby = scene.slot_of("count/0"), scene.standby_of("count/0")
        heard = scene.step(events.Admin("admin-1", "kill", {"standby": standby}))
        assert of(heard, fx.KillProcess) == [fx.KillProcess(standby)] and of(heard, fx.Answer)[0].body["ok"]
        [refused] = of(scene.step(events.Admin("admin-1", "kill", {"standby": task})), fx.Answer)
        assert not refused.body["ok"] and "is not a standby" in refused.body["error"]
        scene.die(standby)
        scene.idle(2000)
        view = scene.view
        assert view["ended"] is None and view["recoveries"] == []
        assert view["tasks"][1]["standbys"] not in ([], [standby])

    def test_a_recovery_says_why_the_process_was_killed(self) -> None:
        scene = running()
        for asked, cause in ((True, "on request"), (False, "")):
            slot = scene.slot_of("count/0")
            if asked:
                scene.step(events.Admin("admin-1", "kill", {"task": "count/0"}))
            scene.die(slot)
            scene.phase("count/0", "running")
            scene.idle(2000)
            scene.restart()
            scene.idle(1000)
            assert scene.view["recoveries"][-1]["cause"] == cause

    @pytest.mark.parametrize("verb, arguments", [("kill", {"task": "absent/0"}), ("dance", {})])
    def test_a_request_that_cannot_be_met_is_answered(self, verb: str, arguments: dict[str, str]) -> None:
        scene = running()
        [answer] = of(scene.step(events.Admin("admin-1", verb, arguments)), fx.Answer)
        assert not answer.body["ok"] and answer.body["error"]


class TestCompanions:
    """Processes outside of the dataflow."""

    def scene(self) -> Scene:
        return Scene(companions=(CompanionCall("spark", ("x",)),))

    def test_they_are_started_once_the_agent_is_there(self) -> None:
        scene = self.scene()
        heard = scene.agent_beat()
        assert fx.StartProcess("companion-spark", "companion:spark") in heard
        heard = scene.step(events.AgentBeat({"companion-spark": 9}, {}), 2000)
        assert not [e for e in of(heard, fx.StartProcess) if e.slot == "companion-spark"]

    def test_done_is_done_and_a_wrong_configuration_ends_the_job(self) -> None:
        scene = self.scene()
        assert not of(scene.step(events.Exited("companion-spark", 9, 1, status=0)), fx.EndJob)
        assert not of(scene.step(events.Exited("companion-spark", 9, 1, status=1, restarting=True)), fx.EndJob)
        exited = events.Exited("companion-spark", 9, 1, status=2, last_line="/docs does not exist")
        [end] = of(scene.step(exited), fx.EndJob)
        assert end.status == 1 and "/docs does not exist" in end.reason


def test_time_never_goes_back_and_a_life_begins_with_the_journal() -> None:
    scene = running()
    with pytest.raises(InvariantViolation):
        scene.step(events.Tick(), -5000)
    with pytest.raises(InvariantViolation):
        Supervision(scene.config, scene.blueprint).handle(events.Tick(), SECOND)
