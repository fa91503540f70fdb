"""Traces of a real job at a real receiver of OTLP over HTTP, and a collector that is unavailable."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.faults.conftest import POOL, HeldChain
from tests.faults.test_lines import free_port

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """The address of a collector, and the spans that it has received."""
    received: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                received.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_recovery_and_checkpoints_reach_the_collector(
    start_chain: Callable[..., HeldChain], collector: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, collector[0])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    chain = start_chain("--checkpoint-interval", "0.3", *POOL)
    chain.job.until_warm()
    chain.job.replace("score/0")
    [recovery] = chain.finish_exactly()["recoveries"]
    spans = collector[1]
    [root] = [span for span in spans if span.name == "recovery"]
    facts = {each.key: each.value for each in root.attributes}
    assert facts["causal.task"].string_value == "score/0" and facts["causal.mode"].string_value == recovery["mode"]
    assert facts["causal.replayed_elements"].int_value == recovery["replayed_elements"]
    phases = [span for span in spans if span.parent_span_id == root.span_id]
    assert [span.name for span in phases] == ["detected", "promoted", "collected", "replayed", "first output"]
    assert all(span.trace_id == root.trace_id for span in phases)
    lasted_ms = (phases[-1].end_time_unix_nano - root.start_time_unix_nano) / 1e6
    assert abs(lasted_ms - recovery["first_output_ms"]) < 1
    checkpoints = [span for span in spans if span.name == "checkpoint"]
    assert checkpoints and all(span.end_time_unix_nano > span.start_time_unix_nano for span in checkpoints)


@pytest.mark.campaign
def test_a_collector_that_is_unavailable_costs_one_line(
    start_chain: Callable[..., HeldChain], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{free_port()}")
    chain = start_chain("--checkpoint-interval", "0.3", *POOL)
    chain.job.until_warm()
    chain.let_end()
    status, said = chain.job.finish()
    chain.assert_exact()
    assert status == 0
    assert [line for line in said.splitlines() if "trac" in line.lower()][0].startswith("causal: traces of held are")
    assert sum("127.0.0.1" in line or "Connection" in line for line in said.splitlines()) <= 1
