"""The dashboard's model: layers of the graph, rates, failures, and nothing that has ended shown as running."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causal.config import JobConfig
from causal.ids import OUTSIDE, ChannelId, TaskIndex, TaskName
from causal.layers import placed
from causal.topology import FULL_DEPTH, Channel, Task, Topology
from deploy.ui import models
from deploy.ui.drawn_graph import graph
from deploy.ui.meter import HISTORY_MAX, Meter, shares
from standby.supervision.job_view import JobView
from tests.unit.deploy.test_report import host, task, view

RECOVERY = {
    "task": "count/0", "mode": "standby", "since_ns": 5_000_000_000, "detected_ms": 2.0, "promoted_ms": 3.0,
    "collected_ms": 20.0, "replayed_ms": 50.0, "replayed_elements": 40, "first_output_ms": 61.0, "live_ms": 60.0,
    "why": "", "cause": "on request", "withdrawn": 0,
}  # fmt: skip


def topology() -> Topology:
    """Two readers, one counter and a sink, which the readers also feed directly."""
    names = ("read/0", "read/1", "count/0", "out/0")
    ends = [(OUTSIDE, 0), (OUTSIDE, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (3, OUTSIDE)]
    return Topology(
        tuple(Task(TaskIndex(i), TaskName(name), (name.partition("/")[0],)) for i, name in enumerate(names)),
        tuple(Channel(ChannelId(i), TaskIndex(s), TaskIndex(t)) for i, (s, t) in enumerate(ends)),
    )


def viewed(at_s: float = 10.0, **changes: Any) -> dict[str, Any]:
    tasks = [
        task("read/0", "source", records_in=60, sent_bytes=0),
        task("read/1", "source", records_in=40),
        task("count/0", "operator", delivered_elements=90),
        task("out/0", "sink", records_out=90, latency_ms_buckets={"1.0": 50, "2.0": 40}),
    ]
    return {
        **view(), "run": "r", "at_ns": int(at_s * 1e9), "ended": None, "tasks": tasks, "recoveries": [], **changes
    }  # fmt: skip


def facts(shown: dict[str, Any] | None, alive: bool = True, **changes: Any) -> models.Facts:
    config = JobConfig("r", "j", "j.py", **changes)
    return models.Facts(config, topology(), None if shown is None else JobView.of(shown), alive, 0.2, {"count/0": 1000})


def modelled(shown: dict[str, Any] | None, alive: bool = True) -> dict[str, Any]:
    meter = Meter()
    if shown is not None:
        meter.take(JobView.of(shown))
    model = models.page(facts(shown, alive), meter, breaks=True)
    json.dumps(model, allow_nan=False)
    return model


# The graph.


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    names = [f"n{i}" for i in range(draw(st.integers(0, 12)))]
    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    return names, draw(st.lists(st.sampled_from(pairs), unique=True) if pairs else st.just([]))


@given(graphs())
def test_edges_lead_to_later_layers_and_pass_each_layer_between_in_a_place_of_their_own(graph: Any) -> None:
    names, edges = graph
    places, ways = placed(names, edges)
    taken = [*places.values(), *(place for way in ways.values() for place in way)]
    assert len(set(taken)) == len(taken)
    for source, target in edges:
        layers = [places[source][0], *(layer for layer, _ in ways[source, target]), places[target][0]]
        assert layers == list(range(layers[0], layers[0] + len(layers))) and len(layers) > 1
    for layer in {layer for layer, _ in taken}:
        rows = sorted(row for other, row in taken if other == layer)
        assert rows == list(range(len(rows)))


def test_tasks_of_an_operator_are_one_node_and_their_channels_one_edge() -> None:
    graph = modelled(viewed())["graph"]
    assert [(node["name"], node["layer"], node["tasks"]) for node in graph["nodes"]] == [
        ("read", 0, ["read/0", "read/1"]), ("count", 1, ["count/0"]), ("out", 2, ["out/0"])
    ]  # fmt: skip
    assert [(e["source"], e["target"], len(e["way"])) for e in graph["edges"]] == [
        ("read", "count", 0), ("read", "out", 1), ("count", "out", 0)
    ]  # fmt: skip


# Rates.


def test_a_figure_says_what_it_counts() -> None:
    """An operator counts watermarks and barriers with the records, a sink the rows that it has written."""
    meter = Meter()
    for at_s, factor in ((10.0, 1), (11.0, 3)):
        shown = viewed(at_s)
        for each in shown["tasks"]:
            each["figures"] = {"records_in": 10 * factor, "delivered_elements": 20 * factor, "records_out": 5 * factor}
        meter.take(JobView.of(shown))
    model = models.page(facts(shown), meter, breaks=True)
    assert [(each["task"], each["total"], each["rate"], each["unit"]) for each in model["tasks"]] == [
        ("read/0", 30, 20.0, "records"), ("read/1", 30, 20.0, "records"), ("count/0", 60, 40.0, "elements"),
        ("out/0", 15, 10.0, "rows"),
    ]  # fmt: skip
    assert [(node["rate"], node["unit"]) for node in model["graph"]["nodes"]] == [
        (40.0, "records"), (40.0, "elements"), (10.0, "rows")
    ]  # fmt: skip


def test_long_numbers_of_a_state_reach_the_page_as_text() -> None:
    """A browser reads numbers as floats: it would show another key, and another time in nanoseconds."""
    state = {"at": 1795837337123456789, "ratio": 570.0, "names": {"b": "ü", "1": [-0.0]}}
    answer = {
        "operator": "count",
        "key": 2**53 + 1,
        "live": False,
        "tasks": [{"task": "t/0", "epoch": 7, "state": state}],
    }
    shown = models.kept(answer)
    [each] = shown["tasks"]
    assert shown["key"] == "9007199254740993" and each["epoch"] == 7
    assert each["state"]["at"] == "1795837337123456789" and each["state"]["ratio"] == "570.0"
    assert each["state"]["names"].split() == ["{", '"b":', '"ü",', '"1":', "[", "-0.0", "]", "}"]


def test_a_rate_is_the_growth_per_second_of_the_jobs_own_clock() -> None:
    meter = Meter()
    for at_s, count in ((10.0, 100), (10.5, 150), (11.0, 300)):
        shown = viewed(at_s)
        shown["tasks"][0]["figures"] = {"records_in": count, "sent_bytes_to": {"2": 10 * count}}
        meter.take(JobView.of(shown))
        meter.take(JobView.of(shown))  # the same view again is no other point
    assert meter.rates("read/0") == {"records_in": 200.0, "to 2": 2000.0}
    assert [entered for _, entered, _ in meter.history] == [100.0, 200.0]
    drawn = graph(topology(), {}, {name: meter.rates(name) for name in ("read/0", "count/0")}, present=True)
    assert [edge["bytes_rate"] for edge in drawn["edges"]] == [2000, 0, 0]


def test_a_task_that_went_back_has_no_negative_rate_and_another_run_begins_afresh() -> None:
    meter = Meter()
    for at_s, count in ((10.0, 100), (11.0, 40)):
        shown = viewed(at_s)
        shown["tasks"][0]["figures"] = {"records_in": count}
        meter.take(JobView.of(shown))
    assert meter.rates("read/0") == {"records_in": 0.0}
    meter.take(JobView.of(viewed(1.0, run="another")))
    assert meter.rates("read/0") == {} and not meter.history


def test_a_new_supervisor_that_has_heard_of_no_task_yet_makes_no_dip() -> None:
    meter = Meter()
    for turn, (pid, state, count) in enumerate(
        [(1, "running", 100), (1, "running", 150), (2, "served", 0), (2, "served", 120), (2, "running", 250),
         (2, "recovering", 300)]
    ):  # fmt: skip
        shown = viewed(10 + turn / 2, supervisor_pid=pid)
        shown["tasks"][0] |= {"state": state, "figures": {"records_in": count}}
        meter.take(JobView.of(shown))
    assert [entered for _, entered, _ in meter.history] == [100.0, 100.0]


def test_the_chart_is_bounded() -> None:
    meter = Meter()
    for turn in range(2 * HISTORY_MAX):
        meter.take(JobView.of(viewed(turn / 2)))
    assert len(meter.history) == HISTORY_MAX and len(meter._samples) <= 6


def test_shares_of_time_add_up_and_nothing_is_made_up_where_none_is_known() -> None:
    assert shares({"busy_s": 0.2, "blocked_s": 0.3, "idle_s": 0.5}) == {"busy": 0.2, "blocked": 0.3, "idle": 0.5}
    assert shares({}) is None and shares({"busy_s": 0.0}) is None


# What runs, and what has ended.


def test_a_job_that_has_ended_has_no_processes_or_buttons_and_averages_instead_of_rates() -> None:
    for shown, alive, state in (
        (viewed(ended={"status": 0, "reason": ""}), True, "finished"),
        (viewed(ended={"status": 1, "reason": "the disk is full"}), False, "failed"),
        (viewed(), False, "down"),
    ):
        model = modelled(shown, alive)
        assert (model["state"], model["present"], model["breaks"]) == (state, False, False)
        assert model["says"] and not model["processes"]
        assert all(each["pid"] is None and not each["standbys"] and each["state"] == "down" for each in model["tasks"])
        for each in model["tasks"]:
            assert each["rate"] is each["bytes_rate"] is each["shares"] is None
        assert model["tasks"][0]["average_rate"] == 30.0  # 60 records in 2 s
        assert model["graph"]["nodes"][0]["rate"] is None and model["totals"]["rate_in"] is None
    assert "the disk is full" in modelled(viewed(ended={"status": 1, "reason": "the disk is full"}))["says"]
    assert "causal run --resume continues" in modelled(viewed(), alive=False)["says"]
    running = modelled(viewed())
    assert all(each["average_rate"] is each["average_shares"] is None for each in running["tasks"])
    assert running["breaks"] and running["tasks"][0]["pid"] == 17 and not running["says"]


@pytest.mark.parametrize("alive", [True, False])
def test_a_job_that_stopped_at_a_savepoint_looks_stopped(alive: bool) -> None:
    model = modelled(viewed(ended={"status": 0, "reason": "stopped at savepoint 7"}), alive)
    assert (model["state"], model["present"], model["breaks"]) == ("stopped at savepoint 7", False, False)
    assert model["says"].startswith("Stopped at savepoint 7: causal run --resume continues there")
    assert {each["state"] for each in model["tasks"]} == {"stopped"}
    assert all(each["rate"] is None for each in model["tasks"])


def test_averages_leave_out_the_records_of_earlier_lives() -> None:
    life = {"first_record_ns": 10**9, "before": {"records_in": {"read/0": 50}, "records_out": {"out/0": 80}}}
    shown = viewed(ended={"status": 0, "reason": ""}, life=life, first_record_ns=10**9, last_output_ns=3 * 10**9)
    rates = {each["task"]: each["average_rate"] for each in modelled(shown)["tasks"]}
    assert (rates["read/0"], rates["read/1"], rates["out/0"]) == (5.0, 20.0, 5.0)


def test_before_the_first_view_the_page_says_so() -> None:
    assert modelled(None)["says"] == "The job has not started yet."
    assert modelled(None, alive=False)["state"] == "down"


def test_a_host_and_what_the_job_waits_for_are_shown() -> None:
    shown = viewed(hosts=[host("b")], without_standby=["count/0"])
    shown["tasks"][3]["waiting"] = {"since_ns": 1, "reason": "no route to host"}
    model = modelled(shown)
    assert model["hosts"][0]["host"] == "b"
    assert model["problems"] == [
        "No host has room for a standby of count/0.", "out/0 waits for its store: no route to host"
    ]  # fmt: skip


def test_who_leads_and_how_far_a_hot_standby_is_behind_are_shown() -> None:
    leader = {"name": "b", "listen": "tcp://10.0.0.2:7000", "term": 3, "here": False}
    shown = viewed(leader=leader)
    shown["tasks"][2]["shadow"] = {"slot": "w2", "epoch": 4, "behind": 17}
    model = modelled(shown)
    assert model["says"].startswith("Led by b at tcp://10.0.0.2:7000 (term 3); what is shown is as of its journal")
    assert [each["behind"] for each in model["tasks"]] == [None, None, 17, None]
    assert modelled(viewed(leader={**leader, "here": True}))["says"] == "Led by b at tcp://10.0.0.2:7000 (term 3)."
    assert all(each["behind"] is None for each in modelled(shown, alive=False)["tasks"])


def test_the_hottest_keys_are_shown_while_the_task_runs() -> None:
    shown = viewed()
    shown["tasks"][2]["hot_keys"] = [["7", 0.75], ["'<b>'", 0.1]]
    assert [each["hot_keys"] for each in modelled(shown)["tasks"]] == [[], [], [["7", 0.75], ["'<b>'", 0.1]], []]
    assert all(each["hot_keys"] == [] for each in modelled(shown, alive=False)["tasks"])


# Recoveries.


def test_recoveries_that_overlap_are_one_failure_with_its_phases_in_their_order() -> None:
    other = {**RECOVERY, "task": "read/0", "since_ns": 5_010_000_000, "live_ms": 90.0, "cause": ""}
    later = {**RECOVERY, "since_ns": 8_000_000_000, "live_ms": None, "collected_ms": None, "why": "went back"}
    del later["replayed_ms"]  # of a version before it was noted
    failures = models.recoveries(JobView.of(viewed(recoveries=[RECOVERY, other, later])))
    assert [[each["task"] for each in failure["tasks"]] for failure in failures] == [["count/0"], ["count/0", "read/0"]]
    newest, oldest = failures
    assert (oldest["at_s"], oldest["ago_s"], oldest["took_ms"], oldest["live"]) == (4.0, 5.0, 100.0, True)
    first, second = oldest["tasks"]
    assert [(p["phase"], p["from_ms"], p["to_ms"]) for p in first["phases"]] == [
        ("detected", 0.0, 2.0), ("promoted", 2.0, 3.0), ("collected", 3.0, 20.0), ("replayed", 20.0, 50.0),
        ("live", 50.0, 60.0),
    ]  # fmt: skip
    assert second["offset_ms"] == 10.0 and second["why"].startswith("its process ended")
    assert first["why"] == "killed on request: by a command, by this page, or to move the task to another host"
    assert not newest["live"] and newest["tasks"][0]["why"] == "went back" and newest["took_ms"] == 3.0


@given(st.lists(st.tuples(st.integers(0, 10**10), *[st.none() | st.floats(0, 1e5)] * 5), max_size=12))
def test_no_phase_ends_before_it_begins_and_no_recovery_is_left_out(times: Any) -> None:
    names = ("detected_ms", "promoted_ms", "collected_ms", "replayed_ms", "live_ms")
    all_of_them = [{**RECOVERY, "since_ns": since, **dict(zip(names, ms))} for since, *ms in times]
    failures = models.recoveries(JobView.of(viewed(recoveries=all_of_them)))
    assert sum(len(failure["tasks"]) for failure in failures) == len(times)
    for failure in failures:
        for each in failure["tasks"]:
            ends = [0.0, *(phase["to_ms"] for phase in each["phases"])]
            assert ends == sorted(ends) and each["offset_ms"] + ends[-1] <= failure["took_ms"] + 0.1


def test_what_the_others_did_meanwhile_is_counted_and_measured() -> None:
    [failure] = models.recoveries(JobView.of(viewed(recoveries=[RECOVERY])))  # of count/0, from 5 s to 5.06 s
    rows = {-1.0: 7.0, 1.0: 90.0, 4.5: 110.0, 5.2: 40.0, 5.5: 60.0, 7.0: 3.0}
    history = [(at_s, 0.0, rows_s) for at_s, rows_s in rows.items()]
    assert models.meanwhile(JobView.of(viewed()), failure, history) == {
        "others": 3,
        "before_rps": 100.0,
        "lowest_rps": 40.0,
    }
    assert models.meanwhile(JobView.of(viewed()), failure, []) == {"others": 3, "before_rps": None, "lowest_rps": None}


@given(st.integers(1, 1000))
def test_an_answer_has_the_newest_failures_and_the_number_of_earlier_recoveries(together: int) -> None:
    many = [{**RECOVERY, "since_ns": 10**9 * (n // together), "why": "x" * 10**4} for n in range(1000)]
    model = modelled(viewed(2000.0, recoveries=many))
    assert 1 <= len(model["recoveries"]) <= models.FAILURES_MAX
    assert sum(len(each["tasks"]) for each in model["recoveries"]) + model["recoveries_earlier"] == 1000
    assert model["recoveries"][0]["since_ns"] == many[-1]["since_ns"]
    assert len(json.dumps(model, separators=(",", ":"))) < 250 << 10


# Settings, checkpoints and dead letters.


def test_settings_that_look_like_secrets_are_hidden() -> None:
    config = JobConfig("r", "j", "j.py", settings={"api_token": "abc", "rate": "5"}, heartbeat_ms=50)
    entries = {entry["name"]: entry for entry in models.settings(config)}
    assert entries["settings"]["value"] == {"api_token": models.HIDDEN, "rate": "5"}
    assert entries["heartbeat_ms"]["changed"] and not entries["state"]["changed"]


@pytest.mark.parametrize(("depth", "shown", "changed"), [(FULL_DEPTH, "full", False), (2, 2, True)])
def test_a_sharing_depth_is_shown_as_users_give_it(depth: int, shown: int | str, changed: bool) -> None:
    entries = {entry["name"]: entry for entry in models.settings(JobConfig("r", "j", "j.py", sharing_depth=depth))}
    assert (entries["sharing_depth"]["value"], entries["sharing_depth"]["changed"]) == (shown, changed)


def test_checkpoints_have_the_slowest_task_first() -> None:
    shown = viewed()
    shown["tasks"][2]["figures"]["checkpoint_ms"] = 7.0
    shown["tasks"][3]["figures"]["checkpoint_ms"] = 9.0
    model = models.checkpoints(facts(shown), JobView.of(shown))
    assert [each["task"] for each in model["tasks"]][:2] == ["out/0", "count/0"] and model["bytes"] == 1000


@given(st.dictionaries(st.sampled_from(["operator", "key", "position", "record", "error", "traceback"]), st.none()
       | st.integers() | st.text() | st.lists(st.integers(), max_size=2) | st.just("x" * 10**5)))  # fmt: skip
def test_a_letter_is_bounded_whatever_user_code_has_written(values: Any) -> None:
    assert len(json.dumps(models.letter(values, "f", 1))) < 10 * 5 * models.TEXT_MAX
