"""The page of metrics: the conventions of all families, both formats, and counters that only rise."""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from msgspec import convert
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from causal.errors import PipelineError
from deploy.jobs.lookup import VIEW, VIEW_BEFORE
from deploy.monitoring import exposed
from deploy.monitoring.metrics import ViewCollector, serve
from standby.supervision.durations import BOUNDS_S, Durations
from standby.supervision.job_view import DurationsView, JobView
from tests.faults.test_lines import free_port
from tests.unit.deploy.exposition import breaches, every_family, full_view
from tests.unit.deploy.test_report import durations, several, view

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[str]:
    """The URL of the page of a job that has every figure."""
    (tmp_path / VIEW).write_text(json.dumps(full_view()))
    port = free_port()
    stop = serve("127.0.0.1", port, tmp_path)
    yield f"http://127.0.0.1:{port}/metrics"
    stop()


def fetched(url: str, accept: str) -> tuple[str, str]:
    """Return the content type and the text of the page for a client that accepts that format."""
    with urlopen(Request(url, headers={"Accept": accept}), timeout=60) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_every_family_keeps_the_conventions() -> None:
    assert breaches(every_family()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        GaugeMetricFamily("causal_recovery_ms", "Time of the last recovery."),
        GaugeMetricFamily("causal_wait_seconds", "Time of the wait."),
        GaugeMetricFamily("causal_tasks", "tasks at work"),
        CounterMetricFamily("causal_rows", "Rows.", labels=("job", "key")),
    ],
    ids=["unit", "metadata", "help", "labels"],
)
def test_a_family_that_breaks_a_convention_is_found(wrong: Any) -> None:
    wrong.add_metric(["j", "k"] if wrong.type == "counter" else [], 1)
    assert breaches([wrong])


def test_a_client_that_accepts_openmetrics_gets_it_with_units(page: str) -> None:
    kind, text = fetched(page, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
    families = {family.name: family for family in openmetrics(text)}  # type: ignore[no-untyped-call]
    assert breaches(families.values()) == []
    assert families.keys() == {family.name for family in every_family()}
    assert "# UNIT causal_sent_bytes bytes" in text and families["causal_build"].type == "info"


def test_any_other_client_gets_the_text_format(page: str) -> None:
    kind, text = fetched(page, "text/plain")
    assert kind.startswith("text/plain") and "# EOF" not in text
    samples = {sample.name for family in plain(text) for sample in family.samples}
    assert {"causal_build_info", "causal_records_in_total", "causal_task_busy_seconds_total"} <= samples


def collected(collector: ViewCollector) -> dict[str, Metric]:
    return {family.name: family for family in collector.collect()}


def values(family: Metric) -> dict[str, float]:
    return {sample.labels.get("task", ""): sample.value for sample in family.samples}


def test_latencies_are_a_histogram_with_coarse_buckets_and_a_sum() -> None:
    shown = view()
    shown["tasks"][2]["figures"]["latency_ms_sum"] = 130.0
    samples = collected(ViewCollector(lambda: JobView.of(shown), lambda: 0))["causal_latency_seconds"].samples
    buckets = {sample.labels["le"]: sample.value for sample in samples if sample.name.endswith("_bucket")}
    assert (buckets["0.001"], buckets["0.0025"], buckets["+Inf"]) == (50, 90, 90)
    assert [sample.value for sample in samples if sample.name.endswith(("_sum", "_count"))] == [90, 0.13]


def test_a_restarted_supervisor_and_a_rollback_take_no_counter_back() -> None:
    shown = view()
    collector = ViewCollector(lambda: JobView.of(shown), lambda: 0)
    assert values(collected(collector)["causal_records_in"]) == {"read/0": 60, "read/1": 40}
    shown["tasks"][0]["figures"]["records_in"] = 2
    del shown["tasks"][1]["figures"]["records_in"]
    assert values(collected(collector)["causal_records_in"]) == {"read/0": 60}
    shown["tasks"][0]["figures"]["records_in"] = 61
    assert values(collected(collector)["causal_records_in"]) == {"read/0": 61}
    shown |= {"run": "r2"}
    shown["tasks"][0]["figures"]["records_in"] = 1
    assert values(collected(collector)["causal_records_in"]) == {"read/0": 1}, "another run begins at nothing"


@pytest.mark.parametrize("file", [VIEW, VIEW_BEFORE])
def test_a_page_of_a_resumed_job_begins_with_the_last_view_of_the_life_before(file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(json.dumps(view()))
    port = free_port()
    stop = serve("127.0.0.1", port, tmp_path)
    try:
        (tmp_path / file).unlink()
        shown = view()
        shown["tasks"][0]["figures"]["records_in"] = 2
        (tmp_path / VIEW).write_text(json.dumps(shown))
        text = fetched(f"http://127.0.0.1:{port}/metrics", "text/plain")[1]
    finally:
        stop()
    assert values(next(f for f in plain(text) if f.name == "causal_records_in")) == {"read/0": 60, "read/1": 40}


def test_a_supervisor_that_follows_another_shows_nothing_that_is_old() -> None:
    shown = {**several(), "leader": {"here": False, "term": 2}}
    families = collected(ViewCollector(lambda: JobView.of(shown), lambda: 99.0))
    assert families.keys() == {"causal_build", "causal_supervisor_leads"}
    assert [sample.value for sample in families["causal_supervisor_leads"].samples] == [0]


def test_a_job_without_checkpoints_or_standbys_has_no_metric_that_an_alert_would_wait_for() -> None:
    shown = {**view(), "guarantee": "none", "standbys": "0"}
    names = collected(ViewCollector(lambda: JobView.of(shown), lambda: 0)).keys()
    assert not [name for name in names if "checkpoint" in name or "standbys" in name]


def test_durations_are_counted_in_the_first_bucket_that_has_room_for_them() -> None:
    shown = convert(durations(-1.0, 0.001, 0.0011, 61.0), DurationsView)
    assert (shown.counts[0], shown.counts[1], shown.counts[-1]) == (2, 1, 1)
    assert shown.sum_s == pytest.approx(61.0021)
    assert Durations.of(shown).shown() == shown
    assert Durations.of(DurationsView((1,), 1.0)).shown() == Durations().shown()
    assert sum(shown.counts) == 4 and len(shown.counts) == len(BOUNDS_S) + 1


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [
        ("0.0.0.0:9464", "0.0.0.0", 9464),
        ("0.0.0.0", "0.0.0.0", None),
        ("[::1]:9464", "::1", 9464),
        ("::1", "::1", None),
        ("[::]", "::", None),
    ],
)
def test_an_address_to_listen_at_may_have_a_port(text: str, address: str, port: int | None) -> None:
    assert exposed.listening(text) == (address, port)


@pytest.mark.parametrize("text", ["", ":9464", "here:9464", "0.0.0.0:", "0.0.0.0:70000", "[::1", "1.2.3", "[::1]9464"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="use one such as|is not a port"):
        exposed.listening(text)


def test_an_address_needs_one_port() -> None:
    def settings(*arguments: str) -> dict[str, object]:
        parser = argparse.ArgumentParser()
        exposed.add_options(parser)
        return exposed.settings_of(parser.parse_args(arguments))

    assert settings() == {}
    assert settings("--metrics-port", "9") == {"metrics_port": 9}
    assert settings("--metrics-listen", "::1", "--metrics-port", "9") == {"metrics_listen": "::1", "metrics_port": 9}
    with pytest.raises(PipelineError, match=r"no port; use --metrics-listen \[::1\]:9464"):
        settings("--metrics-listen", "::1")
    with pytest.raises(PipelineError, match="has port 8, --metrics-port is 9"):
        settings("--metrics-listen", "0.0.0.0:8", "--metrics-port", "9")


def test_the_page_is_at_the_address_that_is_given(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.2", 0)) as free:
        port = free.getsockname()[1]
    with exposed.exposed("127.0.0.2", port, tmp_path):
        assert urlopen(f"http://127.0.0.2:{port}/metrics", timeout=5).status == 200
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    with pytest.raises(PipelineError, match="--metrics-listen 192.0.2.1, port 9464, cannot be used"):
        with exposed.exposed("192.0.2.1", 9464, tmp_path):
            pass
