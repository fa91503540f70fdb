"""The metrics of a run: the report for `--report`, and the summary at the end of the run.

All values come from the supervisor's last view, so nothing is counted twice because a task died.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from causal.errors import PipelineError
from causal.storage.modes import mode_of_files, opened
from causal.topology import FULL_DEPTH
from standby.supervision import figures
from standby.supervision.job_view import Figure, JobView, Number, RecoveryView, TaskView

MEANINGS = {
    "expired": "forgotten by time to live",
    "late_rows": "late rows",
    "held_back": "held back",
    "timed_out": "timed out",
    "unlike_keys": "keys of another type",
    "watermark_fell": "watermarks that fell",
}
"""The words that a summary uses for the reasons in operators' counts."""


def kills_missed(view: JobView) -> str:
    """Return the error about kills (`--kill`) that were not yet due when the job ended; it states how long the job was
    active.
    """
    seconds = figures.active_s(view)
    entered = (
        "no record had entered" if seconds is None else f"the last row came {seconds:.1f} s after the first record"
    )
    return f"it finished before --kill {', '.join(view.kills_left)}: {entered}"


class Latency(Struct, frozen=True):
    """Latencies in milliseconds; None if no record has a latency."""

    p50: float | None
    p99: float | None
    max: float | None


class HostReport(Struct, frozen=True):
    """One loss of a host, or a host that was never lost."""

    host: str
    tasks: Sequence[str]
    lost_ms: Number | None = None
    recovered_ms: Number | None = None


class Report(Struct, frozen=True):
    """The report of a run; its fields are those of the JSON object that `--report` writes.

    Attributes:
        hosts: None for a job on one machine, whose report omits this field and `latency_error_ms`.
    """

    job: str
    status: int | None
    records_in: int
    records_out: int
    dead_letters: int
    records_in_before: int
    records_out_before: int
    wall_s: float
    active_s: float | None
    throughput_rps: float | None
    latency_ms: Latency
    guarantee: str
    sharing_depth: int | str
    checkpoints: int
    determinant_bytes: dict[str, Number]
    counts: dict[str, dict[str, Number]]
    recoveries: Sequence[RecoveryView]
    kills_left: Sequence[str]
    withdrawn: int
    refused: int
    checked_epochs: dict[str, int] | None
    sent_bytes: int
    received_bytes: int
    checkpoint_ms: Sequence[Number]
    tasks: dict[str, dict[str, Figure]]
    hosts: Sequence[HostReport] | None = None
    latency_error_ms: float | None = None

    def content(self) -> dict[str, Any]:
        """Return the JSON object for `--report`."""
        content: dict[str, Any] = to_builtins(self)
        if self.hosts is None:
            del content["hosts"], content["latency_error_ms"]
        return content


def report(view: JobView, wall_s: float) -> Report:
    """Return the report of a run that took `wall_s` seconds."""
    depth, checked = view.sharing_depth, {task.task: task.checked_epochs for task in view.tasks}
    return Report(
        job=view.job,
        status=None if view.ended is None else view.ended.status,
        records_in=figures.total(view, "records_in", "source"),
        records_out=figures.total(view, "records_out", "sink"),
        dead_letters=figures.dead_letters(view),
        records_in_before=figures.before(view, "records_in", "source"),
        records_out_before=figures.before(view, "records_out", "sink"),
        wall_s=round(wall_s, 3),
        active_s=figures.active_s(view),
        throughput_rps=figures.throughput_rps(view),
        latency_ms=_latency([task for task in view.tasks if task.sink]),
        guarantee=view.guarantee,
        sharing_depth="full" if depth >= FULL_DEPTH else depth,
        checkpoints=view.checkpoint.count,
        determinant_bytes=figures.determinant_bytes(view),
        counts=figures.counts(view),
        recoveries=view.recoveries,
        kills_left=view.kills_left,
        withdrawn=figures.total(view, "withdrawn_rows"),
        refused=figures.total(view, "refused_rows"),
        checked_epochs=checked if view.verify_replay else None,
        sent_bytes=figures.total(view, "sent_bytes"),
        received_bytes=figures.total(view, "received_bytes"),
        checkpoint_ms=view.checkpoint.took_ms,
        tasks={task.task: task.figures for task in view.tasks},
        hosts=_hosts(view) if view.hosts else None,
        latency_error_ms=figures.latency_error_ms(view),
    )


def _latency(tasks: list[TaskView]) -> Latency:
    buckets = figures.merged_buckets(tasks)
    exact = [task.number("latency_ms_max") for task in tasks if "latency_ms_max" in task.figures]
    filled = [bound for bound, count in buckets.items() if count and bound != float("inf")]
    highest = max(exact or filled, default=None)

    def shown(value: float | None) -> float | None:
        bounded = value if value is None or highest is None else min(value, highest)
        return None if bounded is None else round(bounded, 3)

    return Latency(
        shown(figures.percentile_ms(buckets, 0.5)), shown(figures.percentile_ms(buckets, 0.99)), shown(highest)
    )


def _hosts(view: JobView) -> Sequence[HostReport]:
    """Return an entry for each loss of a host and for each host that was never lost, ordered by host."""
    lost = {loss.host for loss in view.host_losses}
    losses = [HostReport(loss.host, loss.tasks, loss.lost_ms, loss.recovered_ms) for loss in view.host_losses]
    whole = [
        HostReport(host.host, [task.task for task in view.tasks if task.host == host.host])
        for host in view.hosts
        if host.host not in lost
    ]
    return sorted([*losses, *whole], key=lambda entry: entry.host)


def beside(path: Path) -> Path:
    """Return the temporary path to which a report is written before it is renamed."""
    return path.with_name(path.name + ".new")


def write_report(path: Path, result: Report) -> None:
    """Write the report atomically.

    Raises:
        PipelineError: the report cannot be written.
    """
    fresh = beside(path)
    try:
        with open(opened(fresh, os.O_WRONLY | os.O_TRUNC, mode_of_files()), "w") as file:
            file.write(json.dumps(result.content(), indent=1) + "\n")
        os.replace(fresh, path)
    except OSError as problem:
        raise PipelineError(f"--report {path} cannot be written: {problem.strerror}") from None


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.1f}{unit}"


def summary(result: Report) -> str:
    """Return the summary of a report: a few lines for a user."""
    return "\n".join([*_totals(result), *recovered(result.recoveries), *_changes(result)])


def _totals(result: Report) -> Iterator[str]:
    """Yield the lines about records, latencies, checkpoints and determinants."""
    # Not every operator's output can be attributed to one record.  Values that were not measured are not shown.
    latency, percentiles = result.latency_ms, ""
    if latency.p50 is not None:
        error = "" if result.latency_error_ms is None else f" (± {result.latency_error_ms:.2f} ms between hosts)"
        percentiles = f"latency p50 {_number(latency.p50, ' ms')}, p99 {_number(latency.p99, ' ms')}{error}; "
    yield _counted(result)
    yield (
        f"{'since then: ' if _resumed(result) else ''}{percentiles}checkpoints {result.checkpoints};"
        f" determinants {_number(sum(result.determinant_bytes.values()))} bytes"
    )


def recovered(recoveries: Iterable[RecoveryView]) -> Iterator[str]:
    """Yield a line for each recovery, with its phases."""
    for recovery in recoveries:
        phases = ("detected", "promoted", "collected", "first_output", "live")
        steps = [f"{phase.replace('_', ' ')} {_number(recovery.after_ms(phase), ' ms')}" for phase in phases]
        yield (
            f"recovered {recovery.task} ({recovery.mode}): {', '.join(steps)};"
            f" replayed {_number(recovery.replayed_elements)} elements" + (f"; {recovery.why}" if recovery.why else "")
        )


def _changes(result: Report) -> Iterator[str]:
    """Yield the lines about lost hosts, operators' counts, checked epochs, withdrawn and refused rows, and dead
    letters.
    """
    for loss in (host for host in result.hosts or () if host.lost_ms is not None):
        live_ms = loss.recovered_ms
        live = "never all live again" if live_ms is None else f"live {_number(live_ms, ' ms')}"
        tasks = f"{len(loss.tasks)} task{'s' * (len(loss.tasks) != 1)}"
        yield f"lost host {loss.host}: detected {_number(loss.lost_ms, ' ms')}, {tasks} {live}"
    for operator, reasons in result.counts.items():
        counted = ", ".join(f"{count:,} {MEANINGS.get(reason, reason)}" for reason, count in reasons.items())
        yield f"{operator}: {counted}"
    if result.checked_epochs:
        epochs = result.checked_epochs.values()
        again = f"checked: {sum(epochs)} epochs of {sum(map(bool, epochs))} tasks were performed again"
        yield f"{again} with the same result" if not result.status else again
    if result.withdrawn:
        why = "which depended on lost determinants or were of a version that was rolled back"
        yield f"withdrawn {result.withdrawn:,} row{'s' * (result.withdrawn != 1)}, {why}"
    if result.dead_letters:
        yield f"dead letters {result.dead_letters:,}"
    if result.refused:
        rows = f"{result.refused:,} row{'s' * (result.refused != 1)}"
        yield f"refused {rows}, which the store did not accept: see the dead letters"


def operators_table(view: JobView) -> str:
    """Return a table of the operators that name tasks: elements in, records read or rows written, and recoveries.

    All values are counted from the last resumption of the job.
    """
    rows: dict[str, list[Any]] = {}
    for task in view.tasks:
        kind = "source" if task.source else "sink" if task.sink else "operator"
        kind = "source, sink" if task.source and task.sink else kind
        row = rows.setdefault(task.task.rpartition("/")[0], [kind, 0, 0, 0, 0, 0])
        row[1] += 1
        row[2] += int(task.number("delivered_elements"))
        for place, figure in ((3, "records_in"), (4, "records_out")):
            row[place] += int(task.number(figure)) - int(view.life.before.get(figure, {}).get(task.task, 0))
        row[5] += sum(recovery.task == task.task for recovery in view.recoveries)
    lines = [("", "", "tasks", "elements in", "records", "recoveries")]
    for name, (kind, tasks, taken, read, written, recovered) in rows.items():
        records = {
            "source": f"{read:,}", "sink": f"{written:,}", "source, sink": f"{read:,} in, {written:,} out"
        }.get(kind, "")  # fmt: skip
        lines.append((name, kind, f"{tasks:,}", f"{taken:,}", records, f"{recovered:,}" if recovered else ""))
    widths = [max(map(len, column)) for column in zip(*lines)]
    left, right = widths[:2], widths[2:]
    return "\n".join(
        "  ".join([
            *(cell.ljust(width) for cell, width in zip(line, left)),
            *(cell.rjust(width) for cell, width in zip(line[2:], right)),
        ]).rstrip()
        for line in lines
    )  # fmt: skip


def _resumed(result: Report) -> bool:
    """Return whether the record counts include those from before the last resumption; all other values exclude them."""
    return bool(result.records_in_before or result.records_out_before)


def _counted(result: Report) -> str:
    """Return the line about records, their rate and durations."""
    line = f"records in {result.records_in:,}, out {result.records_out:,}"
    if _resumed(result):
        fresh = result.records_in - result.records_in_before, result.records_out - result.records_out_before
        line += f" in the whole run; since it was resumed: in {fresh[0]:,}, out {fresh[1]:,}"
    if result.active_s is not None:
        line += f", in {result.active_s:.1f} s ({_number(result.throughput_rps)} records/s)"
    return f"{line}; {result.wall_s:.1f} s with start and end"
