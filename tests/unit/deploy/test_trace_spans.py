"""The spans of a job's views: phases in their order, each trace once, and what ended early."""

from __future__ import annotations

from typing import Any

from deploy.monitoring.trace_spans import TraceModel
from standby.supervision.job_view import JobView
from tests.unit.deploy.test_report import view

MS = 1_000_000


def recovery(since_ns: int = 100, live_ms: float | None = 30.0, **facts: Any) -> dict[str, Any]:
    return {
        "task": "count/0", "mode": "standby", "since_ns": since_ns, "detected_ms": 2.0, "promoted_ms": 5.0,
        "collected_ms": 12.0, "replayed_ms": 29.0, "first_output_ms": 31.0, "live_ms": live_ms,
        "replayed_elements": 40, "withdrawn": 0, "why": "", "cause": "", **facts,
    }  # fmt: skip


def at(*recoveries: dict[str, Any], count: int = 0, took_ms: tuple[float, ...] = ()) -> JobView:
    shown = {**view(), "recoveries": list(recoveries), "at_ns": 10_000 * MS}
    shown["checkpoint"] = {**shown["checkpoint"], "count": count, "complete": count, "took_ms": list(took_ms)}
    return JobView.of(shown)


def test_a_recovery_is_a_trace_with_its_phases_one_behind_the_other() -> None:
    model = TraceModel(0)
    assert model.take(at(recovery(live_ms=None))) == []
    [span] = model.take(at(recovery()))
    assert (span.name, span.start_ns, span.end_ns, span.failed) == ("recovery", 100, 100 + 31 * MS, "")
    assert [(child.name, (child.start_ns - 100) // MS, (child.end_ns - 100) // MS) for child in span.children] == [
        ("detected", 0, 2), ("promoted", 2, 5), ("collected", 5, 12), ("replayed", 12, 29), ("first output", 29, 31)
    ]  # fmt: skip
    assert span.attributes["causal.task"] == "count/0" and span.attributes["causal.replayed_elements"] == 40
    assert model.take(at(recovery())) == [], "each trace is made once"


def test_a_task_that_dies_again_on_the_way_makes_a_failed_trace() -> None:
    model = TraceModel(0)
    cut_short = recovery(live_ms=None, replayed_ms=None, first_output_ms=None, cause="it hung")
    spans = model.take(at(cut_short, recovery(since_ns=900)))
    assert [bool(span.failed) for span in spans] == [True, False]
    assert spans[0].end_ns == 100 + 12 * MS and spans[0].attributes["causal.cause"] == "it hung"


def test_what_an_earlier_run_has_traced_is_not_traced_again() -> None:
    assert TraceModel(500).take(at(recovery(since_ns=499))) == []


def test_each_checkpoint_is_a_span_also_several_between_two_views() -> None:
    model = TraceModel(0)
    assert model.take(at(count=3, took_ms=(1.0, 1.0, 1.0))) == [], "earlier ones are not known"
    spans = model.take(at(count=5, took_ms=(1.0, 1.0, 1.0, 20.0, 30.0)))
    assert [(span.attributes["causal.epoch"], (span.end_ns - span.start_ns) // MS) for span in spans] == [
        (4, 20), (5, 30)
    ]  # fmt: skip
    assert model.take(at(count=5, took_ms=(30.0,))) == []
