"""The metrics of a job: their definitions, the merging of their values, and the totals that displays show.

`FIGURES` is the only list of the metrics that tasks report.  A metric's entry determines how the reports of a task's
incarnations are merged.  It also determines how the metric appears on the metrics page, in rates, in `causal status`,
in the progress of `causal run`, on the dashboard and in `causal top`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from standby.exit_status import STOPPED
from standby.supervision.job_view import JobView, Number, TaskView

AGENT_SILENT_S = 5.0
"""The silence after which displays report that the agent is silent."""

Buckets = dict[float, Number]
"""Upper bound in ms → the number of latencies that are at most this bound and above the previous one."""


class Merge(Enum):
    """The rule that merges the reports of a task's incarnations into one value."""

    SUM = "the sum of all incarnations"
    POSITION = "absolute, and taken back by a rollback: the highest counts"
    TOTAL = "kept by stores, over all incarnations, also after a rollback: the highest counts"
    LEVEL = "that of the current incarnation only"
    PEAK = "the highest of all incarnations"


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric that tasks report.

    Attributes:
        name: its key among a task's counters, in `status.json` and in the report.
        text: a sentence about the metric, which is also its help text in Prometheus.
        metric: its name in Prometheus, without `causal_`; empty if the value is not exported separately.
        of: the kind of task that reports the metric, "source" or "sink"; empty for any task.
        per_unit: how many of the metric's own units make one unit of the exported metric.
        label: its title where displays list metrics; empty if each display shows the metric separately.
    """

    name: str
    merge: Merge = Merge.SUM
    text: str = ""
    metric: str = ""
    of: str = ""
    per_unit: float = 1
    label: str = ""

    @property
    def counts(self) -> bool:
        """Whether the exported metric is a counter, which only ever increases."""
        return self.merge is not Merge.LEVEL


_SUM, _POSITION, _TOTAL, _LEVEL, _PEAK = Merge.SUM, Merge.POSITION, Merge.TOTAL, Merge.LEVEL, Merge.PEAK

FIGURES = [
    Figure("records_in", _POSITION, "Records that entered at this source task.", "records_in", "source"),
    Figure("records_out", _POSITION, "Rows that this sink task has written.", "records_out", "sink"),
    Figure("dead_letters", _POSITION, "Those of them that are dead letters."),
    Figure("delivered_elements", _POSITION, "Elements that the operators of the task have received.",
           "delivered_elements"),
    Figure("refused_rows", _POSITION, "Rows that the store of this sink task refused.", "refused_rows", "sink"),
    Figure("withdrawn_rows", _TOTAL, "Rows that were withdrawn, below full sharing depth.", "withdrawn_rows", "sink"),
    Figure("sent_bytes", _SUM, "Bytes sent to other tasks.", "sent_bytes"),
    Figure("received_bytes", _SUM, "Bytes received from other tasks.", "received_bytes"),
    Figure("replayed_elements", _SUM, "Elements replayed in recoveries.", "replayed_elements"),
    Figure("snapshot_bytes", _SUM, "Bytes of the snapshots that the task has written, including merged ones.",
           "snapshot_bytes"),
    Figure("snapshot_files", _LEVEL, "Files that a restore of the task's last snapshot reads.", "snapshot_files"),
    Figure("failed_merges", _SUM, "Merges of the task's snapshots that have failed.", "failed_snapshot_merges"),
    Figure("busy_s", _SUM, "Time in which the task worked.", "task_busy_seconds"),
    Figure("blocked_s", _SUM, "Time in which the task waited for a neighbour, or for a store to accept rows.",
           "task_blocked_seconds"),
    Figure("idle_s", _SUM, "Time in which the task had nothing to do.", "task_idle_seconds"),
    Figure("inflight_bytes", _LEVEL, "Bytes kept in memory for replay.", "inflight_bytes"),
    Figure("inflight_disk_bytes", _LEVEL, "Bytes kept on disk for replay.", "inflight_disk_bytes"),
    Figure("queued_bytes", _LEVEL, "Bytes received from other tasks that wait for the task to take them.",
           "queued_bytes"),
    Figure("log_bytes", _LEVEL, "Determinants in memory, of the task itself and of others.", "log_bytes"),
    Figure("checkpoint_ms", _LEVEL, "Duration of the task's last snapshot.", "snapshot_duration_seconds", "", 1e3),
    Figure("staged_rows", _LEVEL, "Rows of this sink task that wait for their checkpoint (guarantee epoch).",
           "staged_rows"),
    Figure("staged_bytes", _LEVEL, "Bytes that such rows take on disk or in the shared store.", "staged_bytes"),
    Figure("ingest_unread_bytes", _LEVEL,
           "Bytes that the source's own process has published and no checkpoint covers, at the reader of partition 0.",
           "ingest_unread_bytes"),
    Figure("ingest_waiting_s", _LEVEL,
           "Time for which that process has waited for space (`ingest_bytes_max`); 0 if it does not.",
           "ingest_waiting_seconds"),
    Figure("ingest_store_waiting_s", _LEVEL,
           "Time for which a store has not answered a task that reads the ingest log or objects there.",
           "ingest_store_waiting_seconds"),
    Figure("input_lag", _LEVEL,
           "What the partitions of this source task have beyond the last record read, as the system counts it.",
           "input_lag", "source", label="input lag"),
    Figure("input_gaps", _TOTAL,
           "Connections of this source that could not resume, so that messages before them may be missing.",
           "input_gaps", "source", label="input gaps"),
    Figure("new_partitions", _LEVEL, "Partitions of the input that the job does not read yet, at the first partition.",
           "new_partitions", "source"),
    Figure("unwritten_bytes", _LEVEL, "Bytes of determinants that are not written yet."),
    Figure("latency_ms_max", _PEAK, "The longest time from the source to the visible row."),
]  # fmt: skip
"""The metrics whose merging, export or display differs from the default, in the order of their export.

A number that is not listed is summed over all incarnations and appears in `status.json` and in the report.
"""

RATED = (
    "records_in", "records_out", "dead_letters", "delivered_elements", "sent_bytes", "busy_s", "blocked_s", "idle_s",
)  # fmt: skip
"""The metrics that are displayed as growth per second."""


def names(*merges: Merge) -> frozenset[str]:
    """Return the names of the metrics that are merged in one of these ways."""
    return frozenset(figure.name for figure in FIGURES if figure.merge in merges)


def listed(task: TaskView) -> Iterator[tuple[str, Number]]:
    """Yield the title and value of each of a task's metrics that displays list."""
    for figure in FIGURES:
        if figure.label and figure.name in task.figures:
            yield figure.label, task.number(figure.name)


def listed_totals(view: JobView) -> Iterator[tuple[str, Number]]:
    """Yield the title of each metric that displays list, and its sum over all tasks."""
    for figure in FIGURES:
        if figure.label and any(figure.name in task.figures for task in view.tasks):
            yield figure.label, sum(task.number(figure.name) for task in view.tasks)


# Sums over tasks.


def total(view: JobView, figure: str, kind: str = "") -> int:
    """Return the sum of a metric over all tasks, or over those of one kind ("source" or "sink"); dead letters are not
    output.
    """
    return sum(int(_without_letters(figure, task.number)) for task in view.tasks if task.is_of(kind))


def _without_letters(figure: str, number: Callable[[str], Number]) -> Number:
    """Return a metric of a task; of the rows that it has written, only those that are not dead letters.

    Args:
        number: a function that returns the value of any metric of the task.
    """
    return number(figure) - number("dead_letters") if figure == "records_out" else number(figure)


def dead_letters(view: JobView) -> int:
    """Return the number of dead letters."""
    return int(total(view, "dead_letters"))


def before(view: JobView, figure: str, kind: str) -> int:
    """Return the sum of a position over the tasks of a kind at the last resumption of the job; 0 if there was none."""
    positions = (partial(_before_of, view, task) for task in view.tasks if task.is_of(kind))
    return sum(int(_without_letters(figure, of)) for of in positions)


def _before_of(view: JobView, task: TaskView, figure: str) -> Number:
    return view.life.before.get(figure, {}).get(task.task, 0)


def determinant_bytes(view: JobView) -> dict[str, Number]:
    """Return the number of logged determinant bytes, by determinant kind."""
    kinds: dict[str, Number] = {}
    for task in view.tasks:
        for kind, count in task.numbers("determinant_bytes").items():
            kinds[kind] = kinds.get(kind, 0) + count
    return dict(sorted(kinds.items()))


def counts(view: JobView) -> dict[str, dict[str, Number]]:
    """Return, by operator and reason (late, expired …), how many elements were dropped, held back or revised."""
    counts_by_operator: dict[str, dict[str, Number]] = {}
    for task in view.tasks:
        for operator, reason, count in task.counts():
            by_reason = counts_by_operator.setdefault(operator, {})
            by_reason[reason] = by_reason.get(reason, 0) + count
    return {operator: dict(sorted(counts_by_operator[operator].items())) for operator in sorted(counts_by_operator)}


# Latencies.


def merged_buckets(tasks: Iterable[TaskView]) -> Buckets:
    """Return the combined latencies of all these tasks, with bounds in ascending order."""
    merged: Buckets = {}
    for task in tasks:
        for bound, count in task.numbers("latency_ms_buckets").items():
            merged[float(bound)] = merged.get(float(bound), 0) + count
    return dict(sorted(merged.items()))


def percentile_ms(buckets: Buckets, share: float) -> float | None:
    """Return the latency below which a share of all latencies lies, interpolated in its bucket; None without
    records.
    """
    wanted = share * sum(buckets.values())
    if not wanted:
        return None
    below: float = 0.0
    passed: Number = 0
    for bound, count in buckets.items():
        if count and passed + count >= wanted:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (wanted - passed) / count
        below, passed = bound, passed + count
    return below


def latency_error_ms(view: JobView) -> float | None:
    """Return the largest possible error of a latency between two hosts: the sum of the two largest clock errors.

    Returns: None unless at least two clock errors are known.
    """
    errors = sorted(host.clock_error_ms for host in view.hosts if host.clock_error_ms is not None)
    return round(sum(errors[-2:]), 3) if len(errors) > 1 else None


# The job as a whole.


def stopped(view: JobView) -> str:
    """Return a description of the savepoint at which the job stopped and can be resumed; empty if there is none."""
    ended = view.ended
    return ended.reason if ended is not None and not ended.status and ended.reason.startswith(STOPPED) else ""


def active_s(view: JobView) -> float | None:
    """Return the seconds from the first record after the job was last resumed to the last output; None if unknown."""
    first, last = view.life.first_record_ns, view.last_output_ns
    if first is None or last is None or last <= first:
        return None
    return int(last - first) / 1e9


def throughput_rps(view: JobView) -> float | None:
    """Return the number of records that entered per second of activity since the last resumption; None if unknown."""
    seconds = active_s(view)
    if seconds is None:
        return None
    return round((total(view, "records_in", "source") - before(view, "records_in", "source")) / seconds, 3)


def since_s(wait_ns: int | None, view: JobView) -> float:
    """Return the seconds from the beginning of a wait to the time of the view; 0 if nothing is waiting."""
    return 0.0 if wait_ns is None else max(0.0, (view.at_ns - wait_ns) / 1e9)


def agent_silent(view: JobView) -> str:
    """Return a message about a silent agent; empty if the agent is not silent."""
    silent_s = view.agent_silent_s
    if silent_s < AGENT_SILENT_S:
        return ""
    return (
        f"the agent has been silent for {silent_s:.0f} s: the death of a process would go unnoticed, and no process "
        "can be started"
    )
