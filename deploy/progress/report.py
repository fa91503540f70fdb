"""The figures of a run: the report of `--report`, and the summary at its end.

Everything comes from the supervisor's last view; nothing is counted twice because a task died.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from causal.storage.modes import mode_of_files, opened
from causal.topology import FULL_DEPTH
from standby.exit_status import STOPPED

LETTER_TASK = "dead-letters/0"
"""The task of `operators.graph.DEAD_LETTERS`, whose module a page need not load."""
Buckets = dict[float, int]
"""Upper bound in ms → the number of latencies up to it and above the bound before."""


def merged_buckets(tasks: Iterable[Mapping[str, Any]]) -> Buckets:
    """The latencies of all sink tasks together, bounds ascending."""
    total: Buckets = {}
    for task in tasks:
        for bound, count in task["figures"].get("latency_ms_buckets", {}).items():
            total[float(bound)] = total.get(float(bound), 0) + count
    return dict(sorted(total.items()))


def percentile_ms(buckets: Buckets, share: float) -> float | None:
    """The latency below which `share` of all are, interpolated inside its bucket; None for no records."""
    wanted = share * sum(buckets.values())
    if not wanted:
        return None
    below, passed = 0.0, 0
    for bound, count in buckets.items():
        if count and passed + count >= wanted:
            if bound == float("inf"):
                return below
            return below + (bound - below) * (wanted - passed) / count
        below, passed = bound, passed + count
    return below


def _latency(tasks: list[Mapping[str, Any]]) -> dict[str, float | None]:
    buckets = merged_buckets(tasks)
    exact = [task["figures"]["latency_ms_max"] for task in tasks if "latency_ms_max" in task["figures"]]
    highest = max(exact, default=None)
    if highest is None:
        filled = [bound for bound, count in buckets.items() if count and bound != float("inf")]
        highest = max(filled, default=None)
    latency = {"p50": percentile_ms(buckets, 0.5), "p99": percentile_ms(buckets, 0.99), "max": highest}
    if highest is not None:
        latency = {name: None if value is None else min(value, highest) for name, value in latency.items()}
    return {name: None if value is None else round(value, 3) for name, value in latency.items()}


MEANINGS = {
    "expired": "forgotten by time to live",
    "late_rows": "late rows",
    "held_back": "held back",
    "timed_out": "timed out",
    "unlike_keys": "keys of another type",
    "watermark_fell": "watermarks that fell",
}
"""The words of a summary for what operators count."""


def total(view: Mapping[str, Any], figure: str, kind: str | None = None) -> int:
    """The sum of a figure over all tasks, or over those of one kind ("source", "sink"); dead letters are no output."""
    return sum(int(task["figures"].get(figure, 0)) for task in view["tasks"] if kind is None or _is(task, kind))


def _is(task: Mapping[str, Any], kind: str) -> bool:
    return bool(task[kind]) and task["task"] != LETTER_TASK


def dead_letters(view: Mapping[str, Any]) -> int:
    """The records that were put aside."""
    return sum(int(task["figures"].get("records_out", 0)) for task in view["tasks"] if task["task"] == LETTER_TASK)


def determinant_bytes(view: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of determinants logged, by kind."""
    kinds: dict[str, int] = {}
    for task in view["tasks"]:
        for kind, count in task["figures"].get("determinant_bytes", {}).items():
            kinds[kind] = kinds.get(kind, 0) + count
    return dict(sorted(kinds.items()))


def counts(view: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """operator → reason → elements that its tasks dropped, held back or revised (late, expired …)."""
    counts_by_operator: dict[str, dict[str, int]] = {}
    for task in view["tasks"]:
        for operator, reasons in task["figures"].get("counts", {}).items():
            by_reason = counts_by_operator.setdefault(operator, {})
            for reason, count in reasons.items():
                by_reason[reason] = by_reason.get(reason, 0) + count
    return {operator: dict(sorted(counts_by_operator[operator].items())) for operator in sorted(counts_by_operator)}


def before(view: Mapping[str, Any], figure: str, kind: str) -> int:
    """The sum of a position over the tasks of a kind as it was when the job was last resumed; 0 if it never was."""
    positions = view["life"]["before"][figure]
    return sum(int(positions.get(task["task"], 0)) for task in view["tasks"] if _is(task, kind))


def stopped(view: Mapping[str, Any]) -> bool:
    """Whether the job ended at a savepoint, where it can be resumed."""
    ended = view["ended"]
    return bool(ended) and not ended["status"] and str(ended["reason"]).startswith(STOPPED)


def active_s(view: Mapping[str, Any]) -> float | None:
    """Seconds between the first record that entered, since the job was last resumed, and the last output."""
    first, last = view["life"]["first_record_ns"], view["last_output_ns"]
    if first is None or last is None or last <= first:
        return None
    return int(last - first) / 1e9


def throughput_rps(view: Mapping[str, Any]) -> float | None:
    """Records per second that entered while the job was active, since it was last resumed."""
    seconds = active_s(view)
    if seconds is None:
        return None
    return round((total(view, "records_in", "source") - before(view, "records_in", "source")) / seconds, 3)


def kills_missed(view: Mapping[str, Any]) -> str:
    """The error for kills (`--kill`) that the end of the job came before, with the time that the job was active."""
    seconds = active_s(view)
    entered = (
        "no record had entered" if seconds is None else f"the last row came {seconds:.1f} s after the first record"
    )
    return f"it finished before --kill {', '.join(view['kills_left'])}: {entered}"


def report(view: Mapping[str, Any], wall_s: float) -> dict[str, Any]:
    """The JSON object of `--report`."""
    depth = view["sharing_depth"]
    return {
        "job": view["job"],
        "status": (view["ended"] or {}).get("status"),
        "records_in": total(view, "records_in", "source"),
        "records_out": total(view, "records_out", "sink"),
        "dead_letters": dead_letters(view),
        "records_in_before": before(view, "records_in", "source"),
        "records_out_before": before(view, "records_out", "sink"),
        "wall_s": round(wall_s, 3),
        "active_s": active_s(view),
        "throughput_rps": throughput_rps(view),
        "latency_ms": _latency([task for task in view["tasks"] if task["sink"]]),
        "guarantee": view["guarantee"],
        "sharing_depth": "full" if depth >= FULL_DEPTH else depth,
        "checkpoints": view["checkpoint"]["count"],
        "determinant_bytes": determinant_bytes(view),
        "counts": counts(view),
        "recoveries": view["recoveries"],
        "kills_left": view["kills_left"],
        "withdrawn": total(view, "withdrawn_rows"),
        "refused": total(view, "refused_rows"),
        "checked_epochs": {t["task"]: t["checked_epochs"] for t in view["tasks"]} if view["verify_replay"] else None,
        "sent_bytes": total(view, "sent_bytes"),
        "received_bytes": total(view, "received_bytes"),
        "checkpoint_ms": view["checkpoint"]["took_ms"],
        "tasks": {task["task"]: task["figures"] for task in view["tasks"]},
        **({"hosts": _hosts(view), "latency_error_ms": latency_error_ms(view)} if view["hosts"] else {}),
    }


def latency_error_ms(view: Mapping[str, Any]) -> float | None:
    """The largest error of a latency between two hosts: that of both clocks; None before two have been measured."""
    errors = sorted(host["clock_error_ms"] for host in view["hosts"] if host["clock_error_ms"] is not None)
    return round(sum(errors[-2:]), 3) if len(errors) > 1 else None


def _hosts(view: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An entry for each loss of a host, and one for each host that was never lost; ordered by host."""
    lost = {loss["host"] for loss in view["host_losses"]}
    losses = [
        {name: loss[name] for name in ("host", "tasks", "lost_ms", "recovered_ms")} for loss in view["host_losses"]
    ]
    whole = [
        {
            "host": host["host"],
            "tasks": [task["task"] for task in view["tasks"] if task["host"] == host["host"]],
            "lost_ms": None,
            "recovered_ms": None,
        }
        for host in view["hosts"]
        if host["host"] not in lost
    ]
    return sorted([*losses, *whole], key=lambda entry: str(entry["host"]))


def beside(path: Path) -> Path:
    """The temporary path at which a report is written before it is renamed."""
    return path.with_name(path.name + ".new")


def write_report(path: Path, result: Mapping[str, Any]) -> None:
    """Writes the report atomically.

    Raises:
        PipelineError: it cannot be written.
    """
    fresh = beside(path)
    try:
        with open(opened(fresh, os.O_WRONLY | os.O_TRUNC, mode_of_files()), "w") as file:
            file.write(json.dumps(result, indent=1) + "\n")
        os.replace(fresh, path)
    except OSError as problem:
        raise PipelineError(f"--report {path} cannot be written: {problem.strerror}") from None


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.1f}{unit}"


def summary(result: Mapping[str, Any]) -> str:
    """The summary of a report, a few lines for a user."""
    latency = result["latency_ms"]
    # Not every operator's output can be attributed to one record; what is not measured is not shown.
    percentiles = ""
    if latency["p50"] is not None:
        error_ms = result.get("latency_error_ms")
        error = "" if error_ms is None else f" (± {error_ms:.2f} ms between hosts)"
        percentiles = f"latency p50 {_number(latency['p50'], ' ms')}, p99 {_number(latency['p99'], ' ms')}{error}; "
    lines = [
        _counted(result),
        f"{'since then: ' if _resumed(result) else ''}{percentiles}checkpoints {result['checkpoints']};"
        f" determinants {_number(sum(result['determinant_bytes'].values()))} bytes",
    ]
    for recovery in result["recoveries"]:
        steps = [
            f"{phase} {_number(recovery[key], ' ms')}"
            for phase, key in (
                ("detected", "detected_ms"),
                ("promoted", "promoted_ms"),
                ("collected", "collected_ms"),
                ("first output", "first_output_ms"),
                ("live", "live_ms"),
            )
        ]
        replayed = recovery["replayed_elements"]
        lines.append(
            f"recovered {recovery['task']} ({recovery['mode']}): {', '.join(steps)};"
            f" replayed {_number(replayed)} elements" + (f"; {recovery['why']}" if recovery["why"] else "")
        )
    for loss in (host for host in result.get("hosts", ()) if host["lost_ms"] is not None):
        live_ms = loss["recovered_ms"]
        live = "never all live again" if live_ms is None else f"live {_number(live_ms, ' ms')}"
        detected = _number(loss["lost_ms"], " ms")
        lines.append(f"lost host {loss['host']}: detected {detected}, {len(loss['tasks'])} tasks {live}")
    for operator, reasons in result["counts"].items():
        counted = ", ".join(f"{count:,} {MEANINGS.get(reason, reason)}" for reason, count in reasons.items())
        lines.append(f"{operator}: {counted}")
    if result["checked_epochs"]:
        epochs = result["checked_epochs"].values()
        again = f"checked: {sum(epochs)} epochs of {sum(map(bool, epochs))} tasks were performed again"
        lines.append(f"{again} and found the same" if not result["status"] else again)
    if result["withdrawn"]:
        why = "which depended on lost determinants or were of a version that was rolled back"
        lines.append(f"withdrawn {result['withdrawn']:,} rows, {why}")
    if result["dead_letters"]:
        lines.append(f"dead letters {result['dead_letters']:,}")
    if result["refused"]:
        lines.append(f"refused {result['refused']:,} rows, which their store would not take: see the dead letters")
    return "\n".join(lines)


def operators_table(view: Mapping[str, Any]) -> str:
    """A table of the operators that tasks are named after: elements in, records read or rows written, recoveries.

    All are figures since the job was last resumed.
    """
    rows: dict[str, list[Any]] = {}
    earlier = view.get("life", {}).get("before", {})
    for task in view["tasks"]:
        figures, kind = task["figures"], "source" if task["source"] else "sink" if task["sink"] else "operator"
        row = rows.setdefault(task["task"].rpartition("/")[0], [kind, 0, 0, 0, 0])
        row[1] += 1
        row[2] += int(figures.get("delivered_elements", 0))
        figure = "records_in" if task["source"] else "records_out"
        row[3] += int(figures.get(figure, 0)) - int(earlier.get(figure, {}).get(task["task"], 0))
        row[4] += sum(recovery["task"] == task["task"] for recovery in view["recoveries"])
    lines = [("", "", "tasks", "elements in", "records", "recoveries")]
    for name, (kind, tasks, taken, written, recovered) in rows.items():
        records = "" if kind == "operator" else f"{written:,}"
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


def _resumed(result: Mapping[str, Any]) -> bool:
    """Whether positions of an earlier life are part of the records; all other figures are of this one."""
    return bool(result["records_in_before"] or result["records_out_before"])


def _counted(result: Mapping[str, Any]) -> str:
    """The line of records, rate and durations."""
    line = f"records in {result['records_in']:,}, out {result['records_out']:,}"
    if _resumed(result):
        fresh = result["records_in"] - result["records_in_before"], result["records_out"] - result["records_out_before"]
        line += f" in the whole run; since it was resumed: in {fresh[0]:,}, out {fresh[1]:,}"
    if result["active_s"] is not None:
        line += f", in {result['active_s']:.1f} s ({_number(result['throughput_rps'])} records/s)"
    return f"{line}; {result['wall_s']:.1f} s with start and end"
