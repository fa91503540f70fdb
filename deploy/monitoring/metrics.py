"""A host's Prometheus page, which shows the supervisor's latest view, read at each scrape.

The page remains available when the supervisor is replaced, and shows the age of the view.  docs/guide/metrics.md lists
the metrics with the same descriptions as this module.
"""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from causal.errors import PipelineError
from causal.task.activity import Activity
from causal.topology import LETTER_TASK
from deploy.installation import installed
from deploy.jobs.latest_view import latest, view_age_s
from deploy.jobs.lookup import VIEW, VIEW_BEFORE
from standby.supervision.durations import BOUNDS_S, Durations
from standby.supervision.figures import FIGURES, Figure, counts, dead_letters, merged_buckets, since_s
from standby.supervision.job_view import CheckpointView, JobView, TaskView, Wait

JOB = ("job",)
TASK = ("job", "task")
HOST = ("job", "host")
LATENCY_BOUNDS_MS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 60_000)
"""The bounds of the exported histogram.  They are coarser than the tasks' bounds, which would be 70 series per sink."""

AT_WORK = ("running", "finished")
UNITS = ("seconds", "bytes", "ratio")

Buckets = list[tuple[str, float]]


class ViewCollector(Collector):
    """Converts the view to metrics.

    Args:
        latest: a function that returns the latest view; None if there is none yet.
        age_s: a function that returns the age of that view in seconds.
    """

    def __init__(self, latest: Callable[[], JobView | None], age_s: Callable[[], float]) -> None:
        self._latest = latest
        self._age_s = age_s
        self._rising = Rising()
        self._one_at_a_time = threading.Lock()

    def continue_from(self, view: JobView) -> None:
        """Ensure that no counter falls below its value in this view, which an earlier process may have exported."""
        self._rising.begin(view.run)
        for _ in _families(view, self._rising):
            pass

    def collect(self) -> Iterator[Metric]:
        view = self._latest()
        if view is None:
            return
        with self._one_at_a_time:
            self._rising.begin(view.run)
            families = [*_about(view, self._age_s())]
            if not view.elsewhere:
                families += [*_families(view, self._rising)]
        yield from (family for family in families if family.samples)


class Rising:
    """The highest value that each counter has reached in this run.

    A supervisor that has just started has not heard from all tasks, and a rollback or a resumption lowers positions.
    In both cases, the counters would seem to restart from zero, and Prometheus would add everything a second time.
    """

    def __init__(self) -> None:
        self._run = ""
        self._highest: dict[tuple[str, ...], float] = {}

    def begin(self, run: str) -> None:
        """Discard the values if they belong to another run."""
        if run != self._run:
            self._run = run
            self._highest.clear()

    def reach(self, value: float, *series: str) -> float:
        """Return the highest value of a series so far, including this one."""
        highest = self._highest[series] = max(value, self._highest.get(series, value))
        return highest


def _unit(name: str) -> str:
    return next((unit for unit in UNITS if name.endswith(f"_{unit}")), "")


def _counter(name: str, text: str, labels: Sequence[str] = TASK) -> CounterMetricFamily:
    return CounterMetricFamily(f"causal_{name}", text, labels=labels, unit=_unit(name))


def _gauge(name: str, text: str, labels: Sequence[str] = TASK) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"causal_{name}", text, labels=labels, unit=_unit(name))


def _histogram(name: str, text: str, labels: Sequence[str] = TASK) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"causal_{name}", text, labels=labels, unit=_unit(name))


def described() -> list[Metric]:
    """Return every metric that a page can contain, in order; most of them have no values."""
    checkpoint = CheckpointView(durations=Durations().shown())
    view = JobView(job="", guarantee="causal", standbys="per-task", checkpoint=checkpoint)
    return [*_about(view, 0.0), *_families(view, Rising())]


def _about(view: JobView, age: float) -> Iterator[Metric]:
    """Yield the metrics about the page itself: the job's version, the view's age, and which supervisor leads."""
    build = InfoMetricFamily("causal_build", "The version that runs the job.", labels=JOB)
    build.add_metric([view.job], {"version": installed(), "python_version": platform.python_version()})
    view_age = _gauge(
        "supervisor_view_age_seconds",
        "Time since the supervisor wrote what this page shows; it writes twice a second.",
        JOB,
    )
    leads = _gauge(
        "supervisor_leads", "Whether the supervisor here leads the job (1), or another one (0), on several hosts.", JOB
    )
    leads.add_metric([view.job], int(not view.elsewhere))
    # A supervisor that only follows the job writes its view just once, so the age of that view means nothing.
    if not view.elsewhere:
        view_age.add_metric([view.job], age)
    yield from (build, view_age, leads)


def _families(view: JobView, rising: Rising) -> Iterator[Metric]:
    for figure in FIGURES:
        if figure.metric:
            yield _family(figure, view, rising)
    yield from _tasks(view)
    yield _standbys(view)
    yield _behind(view)
    yield from _outputs(view, rising)
    yield from _counted(view, rising)
    yield from _recoveries(view)
    yield from _checkpoints(view)
    yield from _recording(view)
    yield from _hosts(view, rising)


def _family(figure: Figure, view: JobView, rising: Rising) -> Metric:
    """Return the exported metric for a figure that tasks report."""
    family = (_counter if figure.counts else _gauge)(figure.metric, figure.text)
    for task in view.tasks:
        if figure.name in task.figures and task.is_of(figure.of):
            value = task.number(figure.name) / figure.per_unit
            shown = rising.reach(value, figure.metric, task.task) if figure.counts else value
            family.add_metric([view.job, task.task], shown)
    return family


def _tasks(view: JobView) -> Iterator[Metric]:
    running = _gauge("task_running", "Whether the task is at work (1), or starts or recovers (0).")
    incarnation = _gauge("task_incarnation", "Incarnation that runs the task; each recovery raises it.")
    unavailable = _gauge(
        "store_unavailable_seconds", "Time for which the task of a sink has waited for its store; 0 if it does not."
    )
    uploading = _gauge(
        "snapshot_upload_seconds",
        "Time for which the task's snapshot has been on its way to the shared store; 0 below a second.",
    )
    event = _gauge(
        "task_event_seconds",
        "Time for which the task has been in one record, one call or the loading of its state; 0 below half a second.",
    )
    for task in view.tasks:
        labels = [view.job, task.task]
        running.add_metric(labels, int(task.state in AT_WORK))
        incarnation.add_metric(labels, task.incarnation)
        event.add_metric(labels, _since_s(view, task.doing))
        uploading.add_metric(labels, _since_s(view, task.uploading))
        if task.sink:
            unavailable.add_metric(labels, _since_s(view, task.waiting))
    yield from (running, incarnation, unavailable, uploading, event)


def _since_s(view: JobView, wait: Wait | Activity | None) -> float:
    """Return the seconds since a wait began; 0 if nothing is waiting."""
    return since_s(None if wait is None else wait.since_ns, view)


def _behind(view: JobView) -> Metric:
    """Return the lag of hot standbys, without tasks whose standby does not perform."""
    behind = _gauge(
        "hot_standby_behind_elements",
        "Elements that the task has received and its hot standby has not performed; absent while that is passive.",
    )
    for task in view.tasks:
        if task.shadow:
            behind.add_metric([view.job, task.task], task.shadow.behind)
    return behind


def _standbys(view: JobView) -> Metric:
    """Return the number of waiting standbys; finished tasks have no sample, and a job without standbys has none."""
    standbys = _gauge("standbys", "Processes that wait to take over; with a pool one series, whose task is empty.")
    if not view.standbys.isdecimal():
        for task in view.tasks:
            if task.state != "finished":
                standbys.add_metric([view.job, task.task], len(task.standbys))
    elif view.standbys != "0":
        waiting = [p for p in view.processes if p.state == "idle" and not p.standby_of]
        standbys.add_metric([view.job, ""], len(waiting))
    return standbys


def _outputs(view: JobView, rising: Rising) -> Iterator[Metric]:
    """Yield the latencies of rows, and the number of dead letters."""
    latency = _histogram("latency_seconds", "Time from the source to the visible row.")
    letters = _counter("dead_letters", "Records that were put aside because user code raised on them.", JOB)
    if any("dead_letters" in task.figures for task in view.tasks):
        letters.add_metric([view.job], rising.reach(dead_letters(view), "dead_letters"))
    for task in view.tasks:
        if task.sink and task.task != LETTER_TASK:
            buckets = [(bound, rising.reach(count, "latency", task.task, bound)) for bound, count in _cumulative(task)]
            seconds = rising.reach(task.number("latency_ms_sum") / 1e3, "latency", task.task)
            latency.add_metric([view.job, task.task], buckets, seconds)
    yield from (latency, letters)


def _cumulative(task: TaskView) -> Buckets:
    """Return the cumulative buckets: bound in seconds → the number of rows whose latency is at most this bound."""
    fine = merged_buckets([task])
    buckets: Buckets = [
        (str(bound / 1000), sum(count for upper, count in fine.items() if upper <= bound))
        for bound in LATENCY_BOUNDS_MS
    ]
    return [*buckets, ("+Inf", sum(fine.values()))]


def _counted(view: JobView, rising: Rising) -> Iterator[Metric]:
    kinds = _counter("determinant_bytes", "Bytes of determinants logged.", (*TASK, "kind"))
    for task in view.tasks:
        for kind, count in task.numbers("determinant_bytes").items():
            kinds.add_metric([view.job, task.task, kind], rising.reach(count, "determinants", task.task, kind))
    operators = _counter(
        "operator_elements",
        "Elements that an operator dropped, held back or revised: `late`, `expired` and others.",
        ("job", "operator", "reason"),
    )
    for operator, reasons in counts(view).items():
        for reason, count in reasons.items():
            operators.add_metric([view.job, operator, reason], rising.reach(count, "operator", operator, reason))
    yield from (kinds, operators)


def _recoveries(view: JobView) -> Iterator[Metric]:
    count = _counter("recoveries", "Recoveries that have ended, by `standby`, `cold` or `rollback`.", (*TASK, "mode"))
    phases = _histogram(
        "recovery_phase_seconds",
        "Time from the kill, or the last sign of life, to `detected`, `promoted`, `collected`, `replayed`, "
        "`first_output` and `live`.",
        ("job", "mode", "phase"),
    )
    totals = view.recovery_totals
    usual = "rollback" if view.guarantee in ("at-least-once", "epoch") else "standby"
    # To Prometheus, a counter that first appears with the value 1 has not grown, so each counter is exported from the
    # beginning.
    numbers = {(task.task, usual): 0 for task in view.tasks}
    numbers |= {(each.task, each.mode): each.number for each in totals.numbers}
    for (task, mode), number in numbers.items():
        count.add_metric([view.job, task, mode], number)
    for each in totals.phases:
        phases.add_metric([view.job, each.mode, each.phase], _buckets(each.counts), each.sum_s)
    yield from (count, phases)


def _buckets(counts_by_bound: Sequence[int]) -> Buckets:
    """Convert the buckets of `standby.supervision.durations` to cumulative ones."""
    buckets: Buckets = []
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), counts_by_bound, strict=True):
        buckets.append((bound, count + (buckets[-1][1] if buckets else 0)))
    return buckets


def _checkpoints(view: JobView) -> Iterator[Metric]:
    if view.guarantee == "none":
        return  # the job performs no checkpoints, so an alert must not wait for one
    checkpoint, labels = view.checkpoint, [view.job]
    count = _counter("checkpoints", "Complete checkpoints.", JOB)
    count.add_metric(labels, checkpoint.count)
    took = _histogram("checkpoint_duration_seconds", "Time from a checkpoint's trigger to its durable manifest.", JOB)
    took.add_metric(labels, _buckets(checkpoint.durations.counts), checkpoint.durations.sum_s)
    under_way = _gauge("checkpoint_under_way_seconds", "Age of the checkpoint under way; 0 if there is none.", JOB)
    under_way.add_metric(labels, since_s(checkpoint.since_ns, view))
    failures = _gauge("checkpoint_write_failures", "Failures in a row to write the manifest under way.", JOB)
    failures.add_metric(labels, checkpoint.failures)
    yield from (count, took, under_way, failures)


def _recording(view: JobView) -> Iterator[Metric]:
    size = _gauge("recording_bytes", "Size of the recording, with the input that is kept for it.", JOB)
    span = _gauge("recording_span_seconds", "Time that can be replayed without a gap, up to the last checkpoint.", JOB)
    problem = _gauge("recording_failed", "Whether the last checkpoint could not be recorded (1).", JOB)
    recording = view.recording
    if recording is not None:
        size.add_metric([view.job], recording.bytes)
        span.add_metric([view.job], recording.span_s)
        problem.add_metric([view.job], int(bool(recording.problem)))
    yield from (size, span, problem)


HOST_GAUGES = {
    "processes": "Processes of the job on the host.",
    "slots": "Processes that the host has room for.",
    "heard_seconds": "Time since the last beat of the host's agent; it is lost at `host_timeout_ms`.",
    "clock_error_seconds": "The largest error of latencies between the host and the supervisor's.",
}


def _hosts(view: JobView, rising: Rising) -> Iterator[Metric]:
    up = _gauge("host_up", "Whether the host takes part (1), or is lost (0).", HOST)
    losses = _counter("host_losses", "Losses of the host.", HOST)
    gauges = {name: _gauge(f"host_{name}", text, HOST) for name, text in HOST_GAUGES.items()}
    refused = _counter("refused_connections", "Connections to the supervisor of several hosts that proved no key.", JOB)
    if view.refused_connections is not None:
        refused.add_metric([view.job], rising.reach(view.refused_connections, "refused_connections"))
    for host in view.hosts:
        labels = [view.job, host.host]
        living = host.state != "lost"
        up.add_metric(labels, int(living))
        losses.add_metric(labels, host.losses)
        figures = {
            "processes": len(host.tasks) + len(host.standbys),
            "slots": host.slots,
            "heard_seconds": host.last_heard_ms and host.last_heard_ms / 1000,
            "clock_error_seconds": host.clock_error_ms and host.clock_error_ms / 1000,
        }
        for name, value in figures.items():
            if value is not None and (living or name in ("processes", "heard_seconds")):
                gauges[name].add_metric(labels, value)
    yield from (up, losses, refused, *gauges.values())


def serve(address: str, port: int, job: Path) -> Callable[[], None]:
    """Serve the metrics page of the job in a directory; return a function that stops it.

    Raises:
        PipelineError: the address or the port cannot be used.
    """
    registry = CollectorRegistry(auto_describe=False)
    collector = ViewCollector(lambda: latest(job), lambda: view_age_s(job))
    for name in (VIEW_BEFORE, VIEW):
        with suppress(FileNotFoundError, ValueError):  # the view may be missing or damaged
            collector.continue_from(JobView.of(json.loads((job / name).read_text())))
    registry.register(collector)
    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except OSError as problem:
        where = f"--metrics-port {port}" if address == "127.0.0.1" else f"--metrics-listen {address}, port {port},"
        raise PipelineError(f"{where} cannot be used: {problem.strerror}; use another port") from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)

    return stop
