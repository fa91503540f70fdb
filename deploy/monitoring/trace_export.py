"""The export of traces to a collector, which needs the library of OpenTelemetry."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

from deploy.monitoring.trace_spans import Span, TraceModel
from standby.supervision.job_view import JobView

TIMEOUT_S = 3.0
"""The longest time that a request may take, including the last request at the end of the job."""
QUEUE_MAX = 2048


class ExportedTraces:
    """Exports the traces of one job.  A bounded queue of spans waits for the thread that sends them."""

    def __init__(self, job: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._problem = _Problem()
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self._problem)
        logger.propagate = False
        self._model = TraceModel(time.monotonic_ns())
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "causal-streams")})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(timeout=TIMEOUT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=QUEUE_MAX))
        self._tracer = self._provider.get_tracer("causal")
        self._job = job

    def show(self, view: JobView) -> None:
        offset_ns = time.time_ns() - time.monotonic_ns()
        for span in self._model.take(view):
            self._export(span, offset_ns, None)

    def _export(self, span: Span, offset_ns: int, parent: Any) -> None:
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        exported = self._tracer.start_span(
            span.name, context=parent, attributes=dict(span.attributes), start_time=span.start_ns + offset_ns
        )
        for child in span.children:
            self._export(child, offset_ns, set_span_in_context(exported))
        if span.failed:
            exported.set_status(Status(StatusCode.ERROR, span.failed))
        exported.end(end_time=span.end_ns + offset_ns)

    def close(self) -> None:
        self._provider.shutdown()  # this sends the spans that are still waiting
        if self._problem.line:
            print(f"causal: traces of {self._job} are missing: {self._problem.line}", file=sys.stderr)


class _Problem(logging.Handler):
    """Stores, until the job ends, the first line that OpenTelemetry logs, because a collector may be unavailable
    throughout.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.line = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.line = self.line or record.getMessage().splitlines()[0]
