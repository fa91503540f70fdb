"""The Prometheus page of a host: the supervisor's latest view, read at each scrape.

`causal run` serves it, so it stays available when the supervisor is replaced.  docs/operations.md, which a test
compares with this module, has the meaning of each metric and those that are worth an alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from causal.errors import PipelineError
from deploy.report import counts, merged_buckets

View = Mapping[str, Any]

COUNTERS = {
    "records_in": ("source", "Records that entered at this source task"),
    "records_out": ("sink", "Rows that this sink task has written"),
    "refused_rows": ("sink", "Rows that the store of this sink task would not take"),
    "withdrawn_rows": ("sink", "Rows that were taken back because determinants were lost"),
    "sent_bytes": ("", "Bytes sent to other tasks"),
    "received_bytes": ("", "Bytes received from other tasks"),
    "replayed_elements": ("", "Elements replayed in recoveries"),
}
"""Figure of a task → (the kind of task that has it ("": any), its description)."""

GAUGES = {
    "inflight_bytes": "Bytes kept in memory for replay",
    "inflight_disk_bytes": "Bytes kept on disk for replay",
    "checkpoint_ms": "Duration of the task's last snapshot in ms",
    "staged_rows": "Rows of this sink task that wait for their checkpoint (guarantee epoch)",
    "staged_bytes": "Bytes of its disk that such rows take",
    "ingest_unread_bytes": "Bytes that the source's own process has published and no checkpoint covers",
    "ingest_waiting_s": "How long the source's own process has waited for room (ingest_bytes_max); 0: it does not",
    "ingest_store_waiting_s": "How long the shared store has not answered the readers of the ingest log; 0: it does",
}

TASK = ("job", "task")
HOST = ("job", "host")
PHASES = ("detected_ms", "promoted_ms", "collected_ms", "first_output_ms", "live_ms")
LATENCY_BOUNDS_MS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 60_000)
"""The bounds of the histogram, coarser than those of the tasks: seventy series per sink task would be too many."""

AT_WORK = ("running", "finished")


class ViewCollector(Collector):
    """Turns the view into metrics.

    Args:
        latest: returns the latest view; None as long as there is none.
    """

    def __init__(self, latest: Callable[[], View | None]) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        view = self._latest()
        if view is None:
            return
        for name, (kind, text) in COUNTERS.items():
            yield _figures(CounterMetricFamily(f"causal_{name}", text, labels=TASK), view, name, kind)
        for name, text in GAUGES.items():
            yield _figures(GaugeMetricFamily(f"causal_{name}", text, labels=TASK), view, name)
        yield from _tasks(view)
        yield from _counted(view)
        yield from _recoveries(view)
        yield from _checkpoints(view)
        if view["hosts"]:
            yield from _hosts(view)


def _figures(family: Any, view: View, name: str, kind: str = "") -> Metric:
    for task in view["tasks"]:
        if name in task["figures"] and (not kind or task[kind]):
            family.add_metric([view["job"], task["task"]], task["figures"][name])
    metric: Metric = family
    return metric


def _tasks(view: View) -> Iterator[Metric]:
    running = GaugeMetricFamily("causal_task_running", "1: at work; 0: starting or recovering", labels=TASK)
    incarnation = GaugeMetricFamily("causal_incarnation", "Incarnation that runs the task", labels=TASK)
    standbys = GaugeMetricFamily(
        "causal_standbys", "Processes that wait to take over; task is empty for a pool", labels=TASK
    )
    away = GaugeMetricFamily(
        "causal_store_away_seconds", "How long a sink's task has waited for its store; 0: it does not", labels=TASK
    )
    uploading = GaugeMetricFamily(
        "causal_snapshot_upload_seconds",
        "How long a task's snapshot has been on its way to the shared store; 0 below a second",
        labels=TASK,
    )
    busy = GaugeMetricFamily(
        "causal_task_busy_seconds",
        "How long a task has been in one record, one call or the loading of its state; 0 below half a second",
        labels=TASK,
    )
    latency = HistogramMetricFamily(
        "causal_latency_seconds", "From the source to the row that can be seen, in seconds", labels=TASK
    )
    pooled = view["standbys"] != "per-task"
    for task in view["tasks"]:
        labels = [view["job"], task["task"]]
        running.add_metric(labels, int(task["state"] in AT_WORK))
        incarnation.add_metric(labels, task["incarnation"])
        if not pooled:
            standbys.add_metric(labels, len(task["standbys"]))
        busy_ns = view["at_ns"] - task["doing"]["since_ns"] if task.get("doing") else 0
        busy.add_metric(labels, busy_ns / 1e9)
        uploading_ns = view["at_ns"] - task["uploading"]["since_ns"] if task.get("uploading") else 0
        uploading.add_metric(labels, uploading_ns / 1e9)
        if task["sink"]:
            away_ns = view["at_ns"] - task["waiting"]["since_ns"] if task["waiting"] else 0
            away.add_metric(labels, away_ns / 1e9)
            latency.add_metric(labels, _cumulative(task), None)
    if pooled:
        waiting = [p for p in view["processes"] if p["state"] == "idle" and not p["standby_of"]]
        standbys.add_metric([view["job"], ""], len(waiting))
    yield from (running, incarnation, standbys, away, uploading, busy, latency)


def _cumulative(task: View) -> list[tuple[str, int]]:
    """Bound in seconds → rows that took at most that."""
    fine = merged_buckets([task])
    buckets = [
        (str(bound / 1000), sum(count for upper, count in fine.items() if upper <= bound))
        for bound in LATENCY_BOUNDS_MS
    ]
    return [*buckets, ("+Inf", sum(fine.values()))]


def _counted(view: View) -> Iterator[Metric]:
    kinds = CounterMetricFamily("causal_determinant_bytes", "Determinants logged", labels=[*TASK, "kind"])
    for task in view["tasks"]:
        for kind, count in task["figures"].get("determinant_bytes", {}).items():
            kinds.add_metric([view["job"], task["task"], kind], count)
    operators = CounterMetricFamily(
        "causal_operator",
        "Elements that an operator dropped, held back or revised",
        labels=["job", "operator", "reason"],
    )
    for operator, reasons in counts(view).items():
        for reason, count in reasons.items():
            operators.add_metric([view["job"], operator, reason], count)
    yield from (kinds, operators)


def _recoveries(view: View) -> Iterator[Metric]:
    count = CounterMetricFamily("causal_recoveries", "Recoveries", labels=[*TASK, "mode"])
    last = GaugeMetricFamily(
        "causal_recovery_ms", "Last recovery: ms from the kill to each phase", labels=[*TASK, "phase"]
    )
    counts: dict[tuple[str, str], int] = {}
    newest: dict[str, View] = {}
    for recovery in view["recoveries"]:
        key = (recovery["task"], recovery["mode"])
        counts[key] = counts.get(key, 0) + 1
        newest[recovery["task"]] = recovery
    for (task, mode), number in counts.items():
        count.add_metric([view["job"], task, mode], number)
    for task, recovery in newest.items():
        for phase in PHASES:
            if recovery[phase] is not None:
                last.add_metric([view["job"], task, phase.removesuffix("_ms")], recovery[phase])
    yield from (count, last)


def _checkpoints(view: View) -> Iterator[Metric]:
    checkpoint = view["checkpoint"]
    count = CounterMetricFamily("causal_checkpoints", "Complete checkpoints", labels=["job"])
    count.add_metric([view["job"]], checkpoint["count"])
    took = GaugeMetricFamily(
        "causal_job_checkpoint_ms", "Last checkpoint: ms from trigger to durable manifest", labels=["job"]
    )
    if checkpoint["took_ms"]:
        took.add_metric([view["job"]], checkpoint["took_ms"][-1])
    yield from (count, took)


HOST_GAUGES = {
    "processes": "Processes of the job on the host",
    "slots": "Processes that it has room for",
    "heard_seconds": "Since the last beat of its agent",
    "clock_error_seconds": "The largest error of times that its processes report",
}


def _hosts(view: View) -> Iterator[Metric]:
    up = GaugeMetricFamily("causal_host_up", "1: it takes part; 0: it is lost", labels=HOST)
    losses = CounterMetricFamily("causal_host_losses", "Losses of the host", labels=HOST)
    gauges = {name: GaugeMetricFamily(f"causal_host_{name}", text, labels=HOST) for name, text in HOST_GAUGES.items()}
    for host in view["hosts"]:
        labels = [view["job"], host["host"]]
        living = host["state"] != "lost"
        up.add_metric(labels, int(living))
        losses.add_metric(labels, sum(1 for loss in view["host_losses"] if loss["host"] == host["host"]))
        figures = {
            "processes": len(host["tasks"]) + len(host["standbys"]),
            "slots": host["slots"],
            "heard_seconds": host["last_heard_ms"] and host["last_heard_ms"] / 1000,
            "clock_error_seconds": host["clock_error_ms"] and host["clock_error_ms"] / 1000,
        }
        for name, value in figures.items():
            if value is not None and (living or name in ("processes", "heard_seconds")):
                gauges[name].add_metric(labels, value)
    yield from (up, losses, *gauges.values())


def serve(port: int, latest: Callable[[], View | None]) -> Callable[[], None]:
    """Serves the page on 127.0.0.1 and returns a function that stops it.

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
