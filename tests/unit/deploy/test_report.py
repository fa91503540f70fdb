"""The report: figures of all incarnations, percentiles from buckets, the names that were promised."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

from msgspec import convert, to_builtins
from prometheus_client import Metric

from deploy.monitoring import status
from deploy.monitoring.metrics import ViewCollector
from deploy.progress import report as reports
from deploy.progress.display import Progress
from standby.supervision.durations import Durations
from standby.supervision.figures import merged_buckets, percentile_ms
from standby.supervision.job_view import JobView
from standby.supervision.task_counters import Counters, merged, reason_invalid

RECOVERY = {
    "task": "count/0", "mode": "standby", "since_ns": 0, "detected_ms": 1.5, "promoted_ms": 3.0, "collected_ms": None,
    "replayed_ms": None, "replayed_elements": 40, "first_output_ms": None, "live_ms": None, "why": "", "cause": "",
    "withdrawn": 0,
}  # fmt: skip


def task(name: str, kind: str, **figures: Any) -> dict[str, Any]:
    return {
        "task": name,
        "source": kind == "source",
        "sink": kind == "sink",
        "state": "running",
        "incarnation": 1,
        "checked_epochs": 0,
        "slot": "w1",
        "pid": 17,
        "standbys": ["w2"],
        "host": None,
        "waiting": None,
        "uploading": None,
        "figures": figures,
    }


def durations(*seconds: float) -> dict[str, Any]:
    counted = Durations()
    for each in seconds:
        counted.add(each)
    shown: dict[str, Any] = to_builtins(counted.shown())
    return shown


def exposed(shown: dict[str, Any] | None) -> dict[str, Metric]:
    """Return the families that the page of metrics shows of a view."""
    return {
        family.name: family
        for family in ViewCollector(lambda: None if shown is None else JobView.of(shown), lambda: 0.5).collect()
    }


def view() -> dict[str, Any]:
    return {
        "job": "j",
        "run": "r1",
        "at_ns": 12_000_000_000,
        "guarantee": "causal",
        "sharing_depth": 1_000_000,
        "verify_replay": False,
        "state": "running",
        "tasks": [
            task("read/0", "source", records_in=60, records_out=0, determinant_bytes={"order": 4}, sent_bytes=9),
            task("read/1", "source", records_in=40, determinant_bytes={"order": 1, "clock": 2}),
            task("out/0", "sink", records_in=0, records_out=90, latency_ms_buckets={"1.0": 50, "2.0": 40, "inf": 0}),
        ],
        "standbys": "per-task",
        "processes": [],
        "hosts": [],
        "host_losses": [],
        "without_process": [],
        "without_standby": [],
        "checkpoint": {
            "complete": 3,
            "count": 3,
            "took_ms": [5.0],
            "since_ns": 11_000_000_000,
            "failures": 0,
            "durations": durations(0.005),
        },
        "recoveries": [RECOVERY],
        "recovery_totals": {
            "numbers": [{"task": "count/0", "mode": "standby", "number": 1}],
            "phases": [{"mode": "standby", "phase": "detected", **durations(0.0015)}],
        },
        "kills_left": [],
        "first_record_ns": 1_000_000_000,
        "last_output_ns": 3_000_000_000,
        "life": {"first_record_ns": 1_000_000_000, "before": {"records_in": {}, "records_out": {}}},
        "ended": {"status": 0, "reason": ""},
    }


def host(name: str, state: str = "joined", **changes: Any) -> dict[str, Any]:
    facts = {
        "host": name, "state": state, "incarnation": 1, "zone": None, "machine": None, "labels": {}, "slots": 8,
        "tasks": [], "standbys": [], "last_heard_ms": 50.0, "version": "0.3.0", "clock_error_ms": 0.25, "losses": 0,
    }  # fmt: skip
    return {**facts, **changes}


def several() -> dict[str, Any]:
    """Return the view of a job on the hosts a, b and c, of which b was lost."""
    loss = {"host": "b", "why": "cut off", "tasks": ["read/1"], "lost_ms": 3010.0, "recovered_ms": 3200.5}
    shown = {
        **view(),
        "hosts": [
            host("a", tasks=["read/0", "read/1"], standbys=["out/0"]),
            host("b", "lost", last_heard_ms=9000.0, losses=1),
            host("c", "draining", version="0.2.0", tasks=["out/0"], clock_error_ms=None),
        ],
        "host_losses": [loss],
        "without_standby": ["read/0", "read/1"],
    }
    for task, name in zip(shown["tasks"], ("a", "a", "c"), strict=True):
        task["host"] = name
    return shown


def report(shown: dict[str, Any], wall_s: float) -> dict[str, Any]:
    """Return the JSON object of the report of a view."""
    return reports.report(JobView.of(shown), wall_s).content()


def summary(result: dict[str, Any]) -> str:
    """Return the summary of a report."""
    return reports.summary(convert(result, reports.Report))


def kills_missed(shown: dict[str, Any]) -> str:
    return reports.kills_missed(JobView.of(shown))


def status_of(shown: dict[str, Any]) -> list[str]:
    """Return the lines of `causal status` of a job that runs."""
    return list(status.shown(JobView.of(shown), True, 0.0, "resume"))


def line_of(shown: dict[str, Any], elapsed_s: float, companions: Sequence[str] = (), hosts: int = 0) -> str:
    progress = Progress(StringIO(), companions, hosts)
    progress.show(JobView.of(shown), elapsed_s)
    return progress.line(elapsed_s)


def test_a_job_of_several_hosts_reports_each_loss_and_each_host_that_was_never_lost() -> None:
    assert "hosts" not in report(view(), 1.0)
    result = report(several(), 1.0)
    assert result["hosts"] == [
        {"host": "a", "tasks": ["read/0", "read/1"], "lost_ms": None, "recovered_ms": None},
        {"host": "b", "tasks": ["read/1"], "lost_ms": 3010.0, "recovered_ms": 3200.5},
        {"host": "c", "tasks": ["out/0"], "lost_ms": None, "recovered_ms": None},
    ]
    assert "\nlost host b: detected 3,010 ms, 1 task live 3,200 ms" in summary(result)


def test_the_error_of_clocks_is_shown_with_latencies_where_two_of_them_are_known() -> None:
    assert "latency_error_ms" not in report(view(), 1.0) and "between hosts" not in summary(report(view(), 1.0))
    shown = several()
    shown["hosts"][2]["clock_error_ms"] = 1.5
    result = report(shown, 1.0)
    assert result["latency_error_ms"] == 1.75, "the two largest of three"
    assert " ms (± 1.75 ms between hosts); checkpoints " in summary(result)
    lines = status_of({**shown, "ended": None})
    known = "  clocks are known to: a 0.25 ms, b 0.25 ms, c 1.50 ms; latencies between hosts to 1.75 ms"
    assert known in lines
    shown["hosts"] = shown["hosts"][:1]
    assert report(shown, 1.0)["latency_error_ms"] is None
    assert "between hosts" not in "\n".join(status_of({**shown, "ended": None}))


def test_the_metrics_of_hosts_say_who_takes_part() -> None:
    families = exposed({**several(), "refused_connections": 7})
    assert [each.value for each in families["causal_refused_connections"].samples] == [7]

    def of(name: str) -> dict[str, float]:
        return {sample.labels["host"]: sample.value for sample in families[f"causal_host_{name}"].samples}

    assert of("up") == {"a": 1, "b": 0, "c": 1}
    assert of("processes") == {"a": 3, "b": 0, "c": 1}
    assert of("heard_seconds") == {"a": 0.05, "b": 9.0, "c": 0.05}
    assert of("losses") == {"a": 0, "b": 1, "c": 0}
    assert of("clock_error_seconds") == {"a": 0.00025}
    assert of("slots") == {"a": 8, "c": 8}
    assert not any(name.startswith(("causal_host", "causal_refused")) for name in exposed(view()))


def test_the_status_names_hosts_that_are_missing_tasks_without_a_standby_and_versions_that_differ() -> None:
    lines = status_of({**several(), "ended": None, "store_problem": "s3://b: no answer"})
    assert [line.strip() for line in lines if line.strip().startswith(("hosts", "versions", "no host", "old"))] == [
        "hosts: 1 draining: c; 1 joined: a; 1 lost: b",
        "versions: 0.2.0 on c; 0.3.0 on a",
        "no host has room for a standby of read/0, read/1; start another `causal agent`, or use --standbys 0",
        "old snapshots stay in the shared store: s3://b: no answer",
    ]


def test_the_status_says_what_the_sharing_depth_counts_as_now() -> None:
    shown = {**several(), "ended": None, "sharing_depth": 2, "sharing_now": {"reached": 1, "at_home": ["read/0"]}}
    line = "  sharing depth 2 counts as 1 now, as copies on the owner's own host count zero (read/0)"
    assert line in status_of(shown)
    assert not any("counts as" in each for each in status_of({**shown, "sharing_now": None}))


def test_a_snapshot_that_the_shared_store_takes_slowly_is_in_the_status_and_in_the_metrics() -> None:
    shown = {**several(), "ended": None}
    upload = shown["tasks"][0]["uploading"] = {"since_ns": 9_000_000_000, "reason": ""}
    lines = "\n".join(status_of(shown))
    assert "shared store" not in lines, "three seconds are not long"
    families = exposed(shown)
    samples = {s.labels["task"]: s.value for s in families["causal_snapshot_upload_seconds"].samples}
    assert samples == {"read/0": 3.0, "read/1": 0, "out/0": 0}
    upload["reason"] = "503"
    lines = "\n".join(status_of(shown))
    assert "its snapshot has been on its way to the shared store for 3.0 s: 503" in lines


def test_the_report_has_the_promised_names_and_sums() -> None:
    result = report(view(), 2.5)
    wanted = "records_in records_out wall_s throughput_rps latency_ms guarantee sharing_depth checkpoints"
    assert set(wanted.split()) | {"determinant_bytes", "recoveries"} <= set(result)
    assert (result["records_in"], result["records_out"], result["throughput_rps"], result["checkpoints"]) == (
        100,
        90,
        50.0,
        3,
    )
    assert result["determinant_bytes"] == {"clock": 2, "order": 5}
    assert result["sharing_depth"] == "full" and set(result["latency_ms"]) == {"p50", "p99", "max"}
    assert result["recoveries"] == [RECOVERY]


def test_dead_letters_are_no_output() -> None:
    shown = view()
    shown["tasks"].append(task("dead-letters/0", "sink", records_out=7, dead_letters=7))
    result = report(shown, 2.5)
    assert (result["records_out"], result["dead_letters"]) == (90, 7)
    assert "out 90" in summary(result) and "dead letters 7" in summary(result)


def test_a_cell_that_writes_dead_letters_reports_them_apart_from_its_rows() -> None:
    shown = view()
    shown["tasks"] = [{**task("one/0", "source", records_in=100, records_out=97, dead_letters=7), "sink": True}]
    shown["life"]["before"] = {name: {"one/0": 2} for name in ("records_out", "dead_letters")}
    result = report(shown, 2.5)
    assert (result["records_out"], result["dead_letters"], result["records_out_before"]) == (90, 7, 0)
    [sample] = exposed(shown)["causal_dead_letters"].samples
    assert sample.value == 7


def test_a_check_is_reported_and_summed_up() -> None:
    shown = view()
    shown["verify_replay"] = True
    for result, epochs in zip(shown["tasks"], (3, 2, 4), strict=True):
        result["checked_epochs"] = epochs
    result = report(shown, 2.5)
    assert result["checked_epochs"] == {"read/0": 3, "read/1": 2, "out/0": 4}
    assert "checked: 9 epochs of 3 tasks were performed again with the same result" in summary(result)
    assert "with the same result" not in summary({**result, "status": 1})
    assert report(view(), 2.5)["checked_epochs"] is None


def test_percentiles_are_interpolated_inside_their_bucket() -> None:
    buckets = merged_buckets(JobView.of(view()).tasks)
    assert percentile_ms(buckets, 0.5) == 0.9
    assert percentile_ms(buckets, 1.0) == 2.0
    assert percentile_ms({}, 0.5) is None
    assert percentile_ms({1.0: 1, float("inf"): 99}, 0.99) == 1.0


def test_a_job_without_output_has_no_throughput_or_latency() -> None:
    result = report({**view(), "last_output_ns": None, "tasks": []}, 1.0)
    assert result["throughput_rps"] is None and result["latency_ms"] == {"p50": None, "p99": None, "max": None}


def test_the_summary_has_one_line_per_recovery() -> None:
    lines = summary(report(view(), 2.5)).splitlines()
    assert len(lines) == 3 and lines[2].startswith("recovered count/0 (standby): detected 1.5 ms, promoted 3 ms")


def test_a_kill_that_did_not_happen_is_reported_by_the_clock_it_is_counted_by() -> None:
    shown = {**view(), "kills_left": ["out/0@9.5"]}
    assert report(shown, 2.0)["kills_left"] == ["out/0@9.5"]
    line = "it finished before --kill out/0@9.5: the last row came 2.0 s after the first record"
    assert kills_missed(shown) == line
    empty = {**shown, "life": {**view()["life"], "first_record_ns": None}}
    assert kills_missed(empty) == "it finished before --kill out/0@9.5: no record had entered"


def test_the_summary_agrees_with_itself_also_after_a_resume() -> None:
    first, *_ = summary(report(view(), 2.5)).splitlines()
    assert first == "records in 100, out 90, in 2.0 s (50 records/s); 2.5 s with start and end"
    resumed = view()
    resumed["life"]["before"] = {"records_in": {"read/0": 50, "read/1": 40}, "records_out": {"out/0": 80}}
    first, second = summary(report(resumed, 2.5)).splitlines()[:2]
    assert first == (
        "records in 100, out 90 in the whole run; since it was resumed: in 10, out 10, in 2.0 s (5 records/s); "
        "2.5 s with start and end"
    )
    assert second.startswith("since then: latency p50 ")


def test_a_latency_that_is_not_measured_is_not_shown() -> None:
    unknown = view()
    del unknown["tasks"][2]["figures"]["latency_ms_buckets"]
    assert summary(report(unknown, 2.5)).splitlines()[1] == "checkpoints 3; determinants 7 bytes"


def test_figures_of_incarnations_add_up_but_positions_and_levels_do_not() -> None:
    old: Counters = {
        "records_in": 50,
        "sent_bytes": 5,
        "inflight_bytes": 9,
        "determinant_bytes": {"order": 1},
        "latency_ms_max": 7,
    }
    new: Counters = {
        "records_in": 40,
        "sent_bytes": 2,
        "inflight_bytes": 3,
        "determinant_bytes": {"order": 2, "clock": 1},
    }
    assert merged(old, new) == {
        "records_in": 50,
        "sent_bytes": 7,
        "inflight_bytes": 3,
        "determinant_bytes": {"order": 3, "clock": 1},
        "latency_ms_max": 7,
    }


def test_metrics_show_the_view() -> None:
    families = exposed(view())
    samples = {(s.labels["task"], s.value) for s in families["causal_records_in"].samples}
    assert samples == {("read/0", 60.0), ("read/1", 40.0)}, "records enter at sources only"
    assert {s.labels["phase"] for s in families["causal_recovery_phase_seconds"].samples} == {"detected"}
    assert exposed(None) == {}


def test_rows_that_wait_for_their_checkpoint_are_a_metric_of_their_task() -> None:
    shown = view()
    shown["tasks"][2]["figures"] |= {"staged_rows": 7, "staged_bytes": 900}
    families = exposed(shown)
    for name, value in (("causal_staged_rows", 7), ("causal_staged_bytes", 900)):
        assert [(s.labels["task"], s.value) for s in families[name].samples] == [("out/0", value)]
    gone = merged({"staged_rows": 7, "sent_bytes": 1}, {"staged_rows": 3, "sent_bytes": 1})
    assert gone == {"staged_rows": 3, "sent_bytes": 2}, "what waits is a level: only the living process knows it"


def test_a_source_that_waits_for_room_is_shown() -> None:
    shown = view()
    shown["ended"] = None
    shown["tasks"][0]["figures"] |= {"ingest_unread_bytes": 1_200_000, "ingest_waiting_s": 12.5}
    line = "Spark has waited for 12.5 s: 1,200,000 bytes are published but not yet read (ingest_bytes_max)"
    assert any(line in each for each in status_of(shown))
    assert "the input waits for read/0 to read" in line_of(shown, 1.0)
    families = exposed(shown)
    assert [(s.labels["task"], s.value) for s in families["causal_ingest_waiting_seconds"].samples] == [
        ("read/0", 12.5)
    ]


def test_a_source_whose_store_does_not_answer_is_shown() -> None:
    shown = view()
    shown["ended"] = None
    shown["tasks"][0]["figures"] |= {"ingest_store_waiting_s": 7.5}
    line = "has waited for its input for 7.5 s: the store does not answer"
    assert any(line in each for each in status_of(shown))
    assert "the store does not answer read/0" in line_of(shown, 1.0)
    families = exposed(shown)
    assert [s.value for s in families["causal_ingest_store_waiting_seconds"].samples] == [7.5]


def counted() -> dict[str, Any]:
    shown = view()
    shown["tasks"][0]["figures"]["counts"] = {"w": {"late": 3, "expired": 1}}
    shown["tasks"][1]["figures"]["counts"] = {"w": {"late": 4}, "a": {"watermark_fell": 2}}
    return shown


def test_what_operators_counted_is_summed_over_their_tasks() -> None:
    result = report(counted(), 2.5)
    assert result["counts"] == {"a": {"watermark_fell": 2}, "w": {"expired": 1, "late": 7}}
    assert "\nw: 1 forgotten by time to live, 7 late" in summary(result)
    assert report(view(), 2.5)["counts"] == {}


def test_what_operators_counted_is_a_metric() -> None:
    samples = {tuple(s.labels.values()): s.value for s in exposed(counted())["causal_operator_elements"].samples}
    assert samples == {("j", "a", "watermark_fell"): 2, ("j", "w", "expired"): 1, ("j", "w", "late"): 7}


def test_counts_are_state_so_a_replay_does_not_count_twice() -> None:
    dead: Counters = {"counts": {"w": {"late": 5}}, "sent_bytes": 7}
    living: Counters = {"counts": {"w": {"late": 3, "expired": 1}}}
    assert merged(dead, living) == {"counts": {"w": {"late": 5, "expired": 1}}, "sent_bytes": 7}
    assert merged({}, living) == living


def test_only_numbers_by_operator_and_reason_are_counts() -> None:
    assert reason_invalid({"counts": {"w": {"late": 3}}, "determinant_bytes": {"order": 3}}) is None
    for wrong in ({"w": 3}, {"w": {"late": "3"}}, {"w": {3: 3}}, 3, {3: {"late": 3}}):
        assert reason_invalid({"counts": wrong}) == "the counter counts is not a number"
    assert reason_invalid({"determinant_bytes": {"w": {"late": 3}}}) == "the counter determinant_bytes is not a number"


def test_a_sink_that_waits_for_its_store_is_shown() -> None:
    seen = {**view(), "at_ns": 9_500_000_000, "state": "running"}
    seen["tasks"][2]["waiting"] = {"since_ns": 5_000_000_000, "reason": "the server is down"}
    [away] = [metric for name, metric in exposed(seen).items() if name == "causal_store_unavailable_seconds"]
    assert [(sample.labels["task"], sample.value) for sample in away.samples] == [("out/0", 4.5)]
    seen["tasks"][2]["waiting"] = None
    [away] = [metric for name, metric in exposed(seen).items() if name == "causal_store_unavailable_seconds"]
    assert [sample.value for sample in away.samples] == [0.0]
