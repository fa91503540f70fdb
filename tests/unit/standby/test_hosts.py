"""Hosts in the supervisor's logic: joins, placement, losses, fencing and draining."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from standby.blueprint import Constraint
from standby.storage.manifests import unnecessary
from standby.supervision import effects as fx
from standby.supervision import events
from standby.supervision.hosts import Hosts
from standby.supervision.supervision import Supervision
from tests.members import sample
from tests.unit.standby.host_scene import HostScene, settled
from tests.unit.standby.scene import MS, of, sent

TASKS = ("read/0", "count/0", "out/0")


def test_without_a_host_no_process_starts_and_the_first_host_gets_every_task_but_no_standby() -> None:
    scene = HostScene(join=())
    scene.pass_time(3000)
    assert not scene.living
    scene.join("a")
    scene.beats(8)
    assert not scene.living, "others may join within two seconds"
    scene.pass_time(2600)
    assert [scene.host_of_task(task) for task in TASKS] == ["a", "a", "a"]
    assert [scene.hosts_of_standbys(task) for task in TASKS] == [[], [], []]
    assert scene.view["without_standby"] == list(TASKS)


def test_a_job_without_standbys_of_its_tasks_lacks_none() -> None:
    scene = HostScene(join=("a",), standbys="0")
    scene.beats(6)
    view = scene.view
    assert (view["state"], view["without_standby"]) == ("running", [])


def test_tasks_are_spread_and_no_standby_is_on_the_host_of_its_task() -> None:
    scene = settled()
    assert sorted(scene.host_of_task(task) for task in TASKS) == ["a", "b", "c"]
    for task in TASKS:
        assert len(scene.hosts_of_standbys(task)) == 1
        assert scene.host_of_task(task) not in scene.hosts_of_standbys(task)


def test_a_second_host_gets_the_standbys_that_the_first_could_not_have() -> None:
    scene = HostScene(join=("a",))
    scene.beats(6)
    scene.join("b")
    scene.pass_time(300)
    assert [scene.hosts_of_standbys(task) for task in TASKS] == [["b"], ["b"], ["b"]]


def test_neighbours_on_the_same_host_get_ipc_and_others_an_endpoint_that_names_the_host() -> None:
    scene = HostScene(join=("a",))
    heard = scene.beats(6)
    endpoints = [message["endpoint"] for _, message in sent(heard, "peer")]
    peers = [message["peers"] for _, message in sent(heard, "promote")]
    assert all(e.startswith("ipc://") for e in [*endpoints, *(e for each in peers for e, _ in each.values())])
    scene = HostScene()
    heard = scene.beats(6)
    promoted = {message["task"]: message["peers"] for _, message in sent(heard, "promote")}
    later = {message["task"]: message["endpoint"] for _, message in sent(heard, "peer")}
    everything = [*(endpoint for each in promoted.values() for endpoint, _ in each.values()), *later.values()]
    assert everything and all(each.startswith("tcp://") and "@10.0.0.1:" in each for each in everything)


def test_a_silent_host_is_lost_and_its_tasks_are_promoted_without_anybody_who_confirms_it() -> None:
    scene = settled()
    lost = scene.host_of_task("count/0")
    standby = scene.hosts_of_standbys("count/0")[0]
    scene.hosts[lost].reachable = False
    heard = scene.pass_time(3500)
    assert scene.host_of_task("count/0") == standby
    assert scene.incarnation_of("count/0") == 2
    assert [message["incarnation"] for _, message in sent(heard, "promote") if message["task"] == "count/0"][:1] == [2]
    loss = scene.view["host_losses"][0]
    assert (loss["host"], loss["tasks"]) == (lost, ["count/0"])
    assert 3000 <= loss["lost_ms"] < 3300
    assert scene.supervision.assignments.tasks["count/0"].failures == 0


def test_no_host_is_lost_because_the_supervisor_slept() -> None:
    scene = settled()
    scene.step(events.Tick(), 60_000)
    scene.beats(2)
    assert not [record for record in scene.journal if record["kind"] == "host_lost"]


def test_all_processes_of_a_host_that_have_ended_are_noticed_at_once() -> None:
    scene = settled()
    host = scene.hosts[scene.host_of_task("out/0")]
    host.reachable = False
    heard = scene.step(events.HostClosed(host.name, host.session))
    assert [message["task"] for _, message in sent(heard, "promote")] == ["out/0"]
    assert scene.step(events.HostClosed(host.name, host.session)) == []  # it is lost already


def test_a_host_that_returns_is_fenced_and_joins_empty_with_a_higher_incarnation() -> None:
    scene = settled()
    host = scene.hosts[scene.host_of_task("count/0")]
    old = dict(host.slots)
    host.reachable = False
    scene.pass_time(3500)
    host.reachable = True
    heard = scene.agent_beat_of(host)
    assert [dict(each.message)["kind"] for each in of(heard, fx.SendHost)][:1] == ["fenced"]
    assert host.incarnation == 2
    assert not set(old) & set(host.slots)
    scene.pass_time(1500)
    for task in TASKS:
        assert len(scene.hosts_of_standbys(task)) == 1
        assert scene.host_of_task(task) not in scene.hosts_of_standbys(task)


def test_an_agent_that_begins_again_without_its_processes_is_a_loss_and_a_join() -> None:
    scene = settled()
    name = scene.host_of_task("read/0")
    scene.join(name)
    scene.beats(2)
    assert scene.host_of_task("read/0") != name
    assert scene.supervision.hosts[name].incarnation == 2


def test_a_restarted_agent_of_the_same_session_changes_nothing() -> None:
    scene = settled()
    before = len(scene.journal)
    heard = scene.hello("a")
    assert [dict(each.message) for each in of(heard, fx.SendHost)] == [{"kind": "welcome", "incarnation": 1}]
    assert len(scene.journal) == before


def test_an_agent_speaks_for_the_processes_of_its_own_host_alone() -> None:
    scene = settled()
    slot = scene.slot_of("count/0")
    other = next(host for host in scene.hosts.values() if slot not in host.slots)
    beat = events.AgentBeat(dict(other.slots), {slot: -9}, host=other.name, incarnation=other.incarnation)
    scene.step(beat)
    scene.step(events.Exited(slot, 1, scene.now, status=-9, host=other.name))
    assert scene.slot_of("count/0") == slot


def test_a_supervisor_that_begins_again_knows_the_hosts_and_loses_those_that_do_not_return() -> None:
    scene = settled()
    gone = scene.host_of_task("out/0")
    scene.hosts[gone].reachable = False
    scene.restart()
    scene.pass_time(1000)
    assert scene.host_of_task("out/0") == gone
    scene.pass_time(3000)
    assert scene.host_of_task("out/0") not in ("", gone)
    assert all(host.incarnation == 1 for name, host in scene.hosts.items() if name != gone)


@pytest.mark.parametrize("host", sample(["a", "b", "c"], 1))
def test_a_drained_host_is_empty_after_one_promotion_per_task_and_gets_nothing(host: str) -> None:
    scene = settled("read/0", "count/0", "more/0", "out/0")
    scene.checkpoint()
    moved = [task for task in scene.supervision.assignments.tasks if scene.host_of_task(task) == host]
    answer = of(scene.step(events.Admin("admin-1", "drain", {"host": host})), fx.Answer)[0].body
    assert answer["ok"] and answer["tasks"] == moved
    recovering = []
    for _ in range(200):
        scene.step(events.Tick(), 20)
        scene.beats(1)
        for task in scene.supervision.assignments.tasks:
            if scene.supervision.assignments.tasks[task].state.value == "served" and scene.incarnation_of(task) > 1:
                scene.phase(task, "running")
        recovering.append(scene.supervision.assignments.waiting_count)
    assert max(recovering) <= 1
    assert not scene.hosts[host].slots
    for task in scene.supervision.assignments.tasks:
        assert scene.incarnation_of(task) == (2 if task in moved else 1)
        assert scene.host_of_task(task) not in (host, *scene.hosts_of_standbys(task))


def test_a_drained_host_keeps_its_other_tasks_until_the_process_that_was_killed_has_ended() -> None:
    scene = settled("read/0", "count/0", "more/0", "out/0")
    scene.checkpoint()
    seats = scene.supervision.assignments.tasks
    host = next(name for name in "abc" if sum(scene.host_of_task(task) == name for task in seats) > 1)
    holders = {seat.slot for seat in seats.values() if scene.host_of_task(seat.name) == host}
    scene.beats(4)  # the standbys have loaded the checkpoint
    scene.hosts[host].reachable = False  # kills do not arrive
    heard = scene.step(events.Admin("admin-1", "drain", {"host": host}))
    for _ in range(10):
        heard += scene.step(events.Tick(), 20)
    assert len(holders & {kill.slot for kill in of(heard, fx.KillProcess)}) == 1


def test_a_task_with_a_constraint_is_placed_only_where_it_may_be() -> None:
    scene = HostScene(join=())
    constraints = {"out/0": Constraint("b"), "count/0": Constraint(labels={"gpu": "yes"})}
    scene.blueprint = type(scene.blueprint)(scene.topology, constraints=constraints)
    scene.supervision = Supervision(scene.config, scene.blueprint)
    scene.step(events.Restored(()))
    scene.join("a")
    scene.pass_time(2600)
    assert (scene.host_of_task("read/0"), scene.host_of_task("count/0"), scene.host_of_task("out/0")) == ("a", "", "")
    scene.join("b", labels={"gpu": "no"})
    scene.join("c", labels={"gpu": "yes"})
    scene.beats(8)
    assert (scene.host_of_task("count/0"), scene.host_of_task("out/0")) == ("c", "b")
    assert scene.hosts_of_standbys("out/0") == ["b"], "the standby of a pinned task is on the same host"
    assert scene.hosts_of_standbys("count/0") == [], "no other host has the label"


def test_a_task_with_a_constraint_is_served_by_no_process_of_the_pool() -> None:
    scene = HostScene(join=(), standbys="1", hosts_expected=2)
    scene.blueprint = type(scene.blueprint)(scene.topology, constraints={"out/0": Constraint("b")})
    scene.supervision = Supervision(scene.config, scene.blueprint)
    scene.step(events.Restored(()))
    scene.join("a")
    scene.join("b")
    scene.beats(8)
    assert all(scene.host_of_task(task) for task in TASKS) and scene.host_of_task("out/0") == "b"
    scene.end(scene.slot_of("out/0"))
    scene.beats(8)
    assert (scene.host_of_task("out/0"), scene.incarnation_of("out/0")) == ("b", 2)
    scene.step(events.Admin("admin-1", "drain", {"host": "b"}))
    scene.pass_time(2000)
    assert (scene.host_of_task("out/0"), scene.incarnation_of("out/0")) == ("b", 2), "it could be nowhere else"
    scene.hosts["b"].reachable = False
    scene.pass_time(3500)
    assert scene.host_of_task("out/0") == ""


def test_another_machine_and_another_zone_are_preferred_for_a_standby() -> None:
    scene = HostScene("read/0", join=(), hosts_expected=4)
    scene.join("a", zone="x", machine="m1", slots=80)
    scene.join("b", zone="x", machine="m1", slots=80)
    scene.join("c", zone="x", machine="m2")
    scene.join("d", zone="y", machine="m3")
    scene.beats(4)
    assert scene.host_of_task("read/0") == "a"
    assert scene.hosts_of_standbys("read/0") == ["d"]
    scene.hosts["d"].reachable = False
    scene.pass_time(3500)
    assert scene.hosts_of_standbys("read/0") == ["c"]
    scene.hosts["c"].reachable = False
    scene.pass_time(3500)
    assert scene.hosts_of_standbys("read/0") == ["b"]


def test_only_snapshots_that_no_manifest_names_are_removed_from_the_store() -> None:
    names = [f"checkpoints/count/0/e0000000{epoch}-i1.snap" for epoch in range(1, 6)]
    order = fx.RemoveFiles(frozenset({names[1]}), through_epoch=3, manifests_from=3)
    assert unnecessary([*names, "checkpoints/manifest-1.json", "code/x.zip"], order) == [names[0], names[2]]


def test_the_supervisor_of_an_earlier_version_leaves_the_first_snapshots_of_the_next() -> None:
    last, first = "checkpoints/count/0/e00000003-i1.snap", "checkpoints/count/0/e00000003-i2-0123abcd.snap"
    assert unnecessary([last, first], fx.RemoveFiles(frozenset(), through_epoch=3, manifests_from=3)) == [last]
    assert unnecessary([first], fx.RemoveFiles(frozenset({first}), through_epoch=4, manifests_from=4)) == []
    assert unnecessary([first], fx.RemoveFiles(frozenset(), through_epoch=4, manifests_from=4)) == [first]


def test_a_host_with_the_description_of_an_earlier_version_asks_for_it_again() -> None:
    scene = settled()
    here = scene.supervision.hosts["b"].incarnation
    present, earlier = (scene.blueprint.mark(replace(scene.config, code=code)) for code in (scene.config.code, "other"))
    [heard] = of(scene.step(events.HostHello("b", "old", slots=8, mark=earlier)), fx.SendHost)
    assert (heard.message["kind"], heard.message["again"]) == ("ended", True)
    assert scene.supervision.hosts["b"].incarnation == here, "it is no loss of the host that has joined"
    heard = of(scene.step(events.HostHello("b", scene.hosts["b"].session, slots=8, mark=present)), fx.SendHost)[0]
    assert heard.message["kind"] == "welcome"


ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["cut", "heal", "restart agent", "close", "drain"]), st.sampled_from("abc")),
    st.tuples(st.sampled_from(["kill", "supervisor", "wait"]), st.integers(0, 20)),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(ACTIONS, max_size=25), st.sampled_from([0.0, 0.5]))
@example([("cut", "b"), ("close", "a"), ("close", "c")], 0.0)
@example([("close", "a"), ("wait", 9), ("restart agent", "a"), ("wait", 9)], 0.5)
def test_whatever_happens_to_hosts_every_task_is_served_and_apart_from_its_standby(
    actions: list[tuple[str, str | int]], rebalance_after_s: float
) -> None:
    scene = settled(crash_loop_max=1000, rebalance_after_s=rebalance_after_s)
    for act, what in actions:
        if act == "cut":
            scene.hosts[str(what)].reachable = False
        elif act == "heal":
            scene.hosts[str(what)].reachable = True
        elif act == "restart agent":
            scene.join(str(what))
        elif act == "close":
            host = scene.hosts[str(what)]
            scene.step(events.HostClosed(host.name, host.session))
        elif act == "drain":
            scene.step(events.Admin("admin-1", "drain", {"host": what, "draining": len(actions) % 2 == 0}))
        elif act == "kill" and scene.living:
            scene.end(sorted(scene.living)[int(what) % len(scene.living)])
        elif act == "supervisor":
            scene.restart()
        else:
            scene.pass_time(100 * int(what))
        _apart(scene)
    for name, host in scene.hosts.items():
        host.reachable = True
        scene.step(events.Admin("admin-1", "drain", {"host": name, "draining": False}))
    scene.pass_time(9000)
    _apart(scene)
    for task in TASKS:
        assert scene.host_of_task(task) and scene.supervision.assignments.tasks[task].state.value == "served"
        assert len(scene.hosts_of_standbys(task)) == 1
    known = {name: host.slots for name, host in scene.hosts.items()}
    placed: dict[str, dict[str, int]] = {name: {} for name in scene.hosts}
    for slot in scene.supervision.assignments.slots.values():
        placed[slot.host][slot.name] = slot.pid
    assert {name: set(slots) for name, slots in known.items()} == {name: set(each) for name, each in placed.items()}
    rising = [(r["task"], r["incarnation"]) for r in scene.journal if r["kind"] == "promoted"]
    assert len(set(rising)) == len(rising)


def _apart(scene: HostScene) -> None:
    for task in TASKS:
        at = scene.host_of_task(task)
        assert not at or at not in scene.hosts_of_standbys(task)
    assert scene.now % MS == 0


def test_a_host_that_leaves_is_drained_and_its_end_is_no_loss() -> None:
    scene = settled()
    name = scene.host_of_task("count/0")
    host = scene.hosts[name]
    slots, dead = dict(host.slots), dict(host.dead)
    scene.step(events.AgentBeat(slots, dead, host=name, incarnation=host.incarnation, leaving=True))
    assert scene.supervision.hosts[name].state.value == "draining"
    scene.pass_time(2000)
    assert not host.slots and scene.host_of_task("count/0") not in ("", name)
    assert scene.incarnation_of("count/0") == 2
    scene.step(events.HostClosed(name, host.session))
    view = scene.view
    assert view["host_losses"] == []
    assert next(each["state"] for each in view["hosts"] if each["host"] == name) == "lost"
    scene.join(name)
    assert scene.supervision.hosts[name].state.value == "joined"


def test_a_host_that_ends_before_its_tasks_have_moved_is_lost() -> None:
    scene = settled()
    name = scene.host_of_task("count/0")
    host = scene.hosts[name]
    host.reachable = False  # the kills do not arrive
    scene.step(events.AgentBeat(dict(host.slots), {}, host=name, incarnation=host.incarnation, leaving=True))
    scene.step(events.HostClosed(name, host.session))
    assert [loss["host"] for loss in scene.view["host_losses"]] == [name]


def test_the_view_has_versions_clocks_and_uploads() -> None:
    scene = settled()
    scene.join("d", version="0.3.0")
    host = scene.hosts["d"]
    scene.step(events.AgentBeat({}, {}, host="d", incarnation=host.incarnation, clock_error_ns=250_000))
    slot = scene.slot_of("count/0")
    scene.beat(slot, uploading=(scene.now, "no answer"))
    facts = next(each for each in scene.view["hosts"] if each["host"] == "d")
    assert (facts["version"], facts["clock_error_ms"]) == ("0.3.0", 0.25)
    assert scene.seen("count/0")["uploading"]["reason"] == "no answer"
    assert scene.seen("count/0")["host"] == scene.host_of_task("count/0")
    scene.beat(slot)
    assert scene.seen("count/0")["uploading"] is None


def test_the_first_of_two_agents_with_one_key_is_refused_and_the_second_stays() -> None:
    scene = settled()
    first = scene.hosts["b"].session
    scene.join("b")
    incarnation = scene.hosts["b"].incarnation
    heard = scene.step(events.HostHello("b", first, slots=8))
    (refusal,) = of(heard, fx.SendHost)
    assert (refusal.message["kind"], refusal.message["session"]) == ("refused", first)
    assert "give each host its own key" in refusal.message["reason"]
    scene.restart()
    assert scene.step(events.HostHello("b", first, slots=8))[-1] == refusal
    assert scene.supervision.hosts["b"].incarnation == incarnation


def test_a_supervisor_that_was_cut_off_loses_no_host_that_comes_back_and_later_the_one_that_does_not() -> None:
    scene = settled()
    names = list(scene.hosts)
    for _ in range(30):
        scene.step(events.Tick(), 500)
    for name in names[1:]:
        scene.agent_beat_of(scene.hosts[name])
        scene.step(events.Tick(), 400)
    assert all(scene.supervision.hosts[name].living for name in names)
    for _ in range(8):
        for name in names[1:]:
            scene.agent_beat_of(scene.hosts[name])
        scene.step(events.Tick(), 500)
    assert [name for name in names if not scene.supervision.hosts[name].living] == names[:1]


def test_gaps_of_the_only_host_that_is_heard_do_not_excuse_the_others() -> None:
    scene = settled()
    names = list(scene.hosts)
    for _ in range(4):
        scene.step(events.Tick(), 1000)
        scene.step(events.Tick(), 1000)
        scene.agent_beat_of(scene.hosts[names[0]])
    assert [name for name in names if scene.supervision.hosts[name].living] == names[:1]


def test_a_cut_of_all_that_is_shorter_than_the_time_out_loses_no_host_however_seldom_they_beat() -> None:
    hosts = Hosts(several=True, timeout_ns=3000 * MS, beat_ns=1000 * MS)
    for name in ("a", "b"):
        facts = {"session": "s", "slots": 8, "zone": "", "machine": "", "labels": {}}
        hosts.apply({"kind": "host_joined", "host": name, "incarnation": 1, **facts})
    for name, at_ms in (("a", 1), ("b", 500), ("b", 2600)):
        hosts.heard(name, at_ms * MS)
    assert not hosts.silent(3001 * MS, hosts.hearing_since_ns(3001 * MS))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 700), st.sampled_from(("join", "beat", "lose", "sleep", "nothing")), st.integers(0, 4)
        ),
        max_size=60,
    )
)
def test_a_host_counts_as_dead_at_the_look_after_its_time_out_and_never_before(
    steps: list[tuple[int, str, int]],
) -> None:
    timeout_ms = 1000
    hosts = Hosts(several=True, timeout_ns=timeout_ms * MS)
    now_ns = listening_ns = 10 * MS
    for wait_ms, what, number in steps:
        now_ns += wait_ms * MS
        name = f"h{number}"
        entry = hosts.get(name)
        if what == "join" and (entry is None or not entry.living):
            incarnation = 1 + (entry.incarnation if entry is not None else 0)
            facts = {"incarnation": incarnation, "session": "s", "slots": 1, "zone": "", "machine": "", "labels": {}}
            hosts.apply({"kind": "host_joined", "host": name, **facts})
            hosts[name].seen_ns = now_ns
        elif what == "beat" and entry is not None:
            hosts.heard(name, now_ns)
        elif what == "lose" and entry is not None and entry.living:
            hosts.apply({"kind": "host_lost", "host": name})
        elif what == "sleep":
            listening_ns = now_ns
        living = [host for host in hosts if host.living]
        wanted = [host for host in living if now_ns - max(host.seen_ns, listening_ns) >= timeout_ms * MS]
        due_ns = hosts.deadline_ns()
        assert (due_ns is None) == (not living)
        if due_ns is not None:
            assert all(due_ns <= max(host.seen_ns, listening_ns) + timeout_ms * MS for host in living)
        dead = hosts.silent(now_ns, listening_ns)
        assert dead == wanted
        for host in dead:
            hosts.apply({"kind": "host_lost", "host": host.name})


@pytest.mark.parametrize(
    ("merged", "kept", "through", "over"),
    [
        ("m00000002-00000005-i1.snap", ["e00000005-i1.snap", "e00000006-i1.snap"], 6, False),
        ("m00000002-00000005-i1.snap.tmp", ["e00000005-i1.snap", "e00000006-i1.snap"], 6, False),
        ("m00000002-00000007-i1.snap", ["e00000005-i1.snap", "e00000006-i1.snap"], 6, False),
        ("m00000002-00000005-i1.snap", ["m00000001-00000006-i1.snap", "e00000007-i1.snap"], 7, True),
        ("m00000002-00000005-i1.snap", ["e00000005-i1.snap", "e00000006-i2.snap"], 6, True),
        ("m00000002-00000005-i1.snap.tmp", ["e00000005-i1.snap", "e00000006-i2.snap"], 6, True),
        ("m00000002-00000005-i1.snap", ["e00000009-i1.snap"], 9, True),
    ],
)
def test_a_merged_file_is_removed_once_no_task_can_name_it(
    merged: str, kept: list[str], through: int, over: bool
) -> None:
    folder = "checkpoints/count/0/"
    keep = frozenset([*(folder + name for name in kept), "checkpoints/other/0/e00000005-i9.snap"])
    order = fx.RemoveFiles(keep, through_epoch=through, manifests_from=through)
    assert bool(unnecessary([folder + merged], order)) is over
    listed = fx.RemoveFiles(keep | {folder + merged}, through_epoch=through, manifests_from=through)
    assert unnecessary([folder + merged], listed) == []
