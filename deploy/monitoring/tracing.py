"""Exports a job's traces with OpenTelemetry if the standard environment variables name a collector.

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 causal run job.py

Spans wait in a bounded queue, and a thread sends them.  If the collector is unavailable, spans are lost and one line is
printed.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol

from standby.supervision.job_view import JobView

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The OpenTelemetry variables that name a collector; its other variables are respected, too."""


class Traces(Protocol):
    """Exports traces based on the views of a job."""

    def show(self, view: JobView) -> None: ...

    def close(self) -> None: ...


class NoTraces:
    """Exports nothing, because no collector is specified."""

    def show(self, view: JobView) -> None:
        pass

    def close(self) -> None:
        pass


def are_wanted() -> bool:
    """Return whether the environment names a collector."""
    return any(os.environ.get(name) for name in ENDPOINTS)


def traces(job: str) -> Traces:
    """Return the exporter for a job's traces; without a collector, no library is imported."""
    if not are_wanted():
        return NoTraces()
    try:
        import opentelemetry.exporter.otlp.proto.http  # noqa: F401
    except ImportError:
        line = (
            "no traces: a collector is configured, but its library is missing; run: pip install 'causal-streams[otel]'"
        )
        print(f"causal: {line}", file=sys.stderr)
        return NoTraces()
    from deploy.monitoring.trace_export import ExportedTraces

    return ExportedTraces(job)
