"""The Prometheus page of a host: the supervisor's latest view, read when somebody scrapes.

It is served by `causal run`, so it stays up when the supervisor is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from causal.errors import PipelineError
from deploy.report import counts

COUNTERS = {
    "records_in": "Records that entered at this source task",
    "records_out": "Records that this sink task has written",
    "sent_bytes": "Bytes sent to other tasks",
    "received_bytes": "Bytes received from other tasks",
    "replayed_elements": "Elements replayed in recoveries",
}
GAUGES = {"inflight_bytes": "Bytes kept for replay", "checkpoint_ms": "Duration of the task's last snapshot in ms"}
COUNTED = ("operator", "reason")

PHASES = ("detected_ms", "promoted_ms", "collected_ms", "first_output_ms", "live_ms")


class ViewCollector(Collector):
    """Turns the view into metrics.

    Args:
        latest: gives the latest view; None as long as there is none.
    """

    def __init__(self, latest: Callable[[], Mapping[str, Any] | None]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        view = self._latest()
        if view is None:
            return
        labels = ["job", "task"]
        for name, text in COUNTERS.items():
            yield self._family(CounterMetricFamily(f"causal_{name}", text, labels=labels), view, name)
        for name, text in GAUGES.items():
            yield self._family(GaugeMetricFamily(f"causal_{name}", text, labels=labels), view, name)
        kinds = CounterMetricFamily("causal_determinant_bytes", "Determinants logged", labels=[*labels, "kind"])
        operators = CounterMetricFamily(
            "causal_operator", "Elements that an operator dropped, held back or revised", labels=["job", *COUNTED]
        )
        incarnation = GaugeMetricFamily("causal_incarnation", "Incarnation that runs the task", labels=labels)
        away = GaugeMetricFamily(
            "causal_store_away_seconds",
            "How long a sink's task has waited for its store; 0: it does not",
            labels=labels,
        )
        for task in view["tasks"]:
            incarnation.add_metric([view["job"], task["task"]], task["incarnation"])
            if task["sink"]:
                away_ns = view["at_ns"] - task["waiting"]["since_ns"] if task.get("waiting") else 0
                away.add_metric([view["job"], task["task"]], away_ns / 1e9)
            for kind, count in task["figures"].get("determinant_bytes", {}).items():
                kinds.add_metric([view["job"], task["task"], kind], count)
        for operator, reasons in counts(view).items():
            for reason, count in reasons.items():
                operators.add_metric([view["job"], operator, reason], count)
        yield kinds
        yield operators
        yield incarnation
        yield away
        yield from self._recoveries(view)
        yield from self._checkpoints(view)

    def _family(self, family: Any, view: Mapping[str, Any], name: str) -> Metric:
        for task in view["tasks"]:
            if name in task["figures"]:
                family.add_metric([view["job"], task["task"]], task["figures"][name])
        metric: Metric = family
        return metric

    def _recoveries(self, view: Mapping[str, Any]) -> Iterator[Metric]:
        count = CounterMetricFamily("causal_recoveries", "Recoveries", labels=["job", "task", "mode"])
        last = GaugeMetricFamily(
            "causal_recovery_ms", "Last recovery: ms from the kill to each phase", labels=["job", "task", "phase"]
        )
        counts: dict[tuple[str, str], int] = {}
        latest: dict[str, Mapping[str, Any]] = {}
        for recovery in view["recoveries"]:
            key = (recovery["task"], recovery["mode"])
            counts[key] = counts.get(key, 0) + 1
            latest[recovery["task"]] = recovery
        for (task, mode), number in counts.items():
            count.add_metric([view["job"], task, mode], number)
        for task, recovery in latest.items():
            for phase in PHASES:
                if recovery[phase] is not None:
                    last.add_metric([view["job"], task, phase.removesuffix("_ms")], recovery[phase])
        yield count
        yield last

    def _checkpoints(self, view: Mapping[str, Any]) -> Iterator[Metric]:
        told = view["checkpoint"]
        count = CounterMetricFamily("causal_checkpoints", "Complete checkpoints", labels=["job"])
        count.add_metric([view["job"]], told["count"])
        took = GaugeMetricFamily(
            "causal_job_checkpoint_ms", "Last checkpoint: ms from trigger to durable manifest", labels=["job"]
        )
        if told["took_ms"]:
            took.add_metric([view["job"]], told["took_ms"][-1])
        yield count
        yield took


def serve(port: int, latest: Callable[[], Mapping[str, Any] | None]) -> Callable[[], None]:
    """Serve the page on 127.0.0.1; returns what stops it.

    Raises:
        PipelineError: the port cannot be used.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ViewCollector(latest))
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as problem:
        raise PipelineError(f"--metrics-port {port} cannot be used: {problem.strerror}; give another") from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)

    return stop
