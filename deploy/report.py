"""What a run amounted to: the report of `--report`, and the summary at its end.

Everything comes from the supervisor's last view; nothing is counted twice because a task died.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from causal.shell.modes import mode_of_files, opened
from causal.topology import FULL_DEPTH

Buckets = dict[float, int]
"""Upper bound in ms → how many were at most that and above the bound before."""


def merged_buckets(tasks: Iterable[Mapping[str, Any]]) -> Buckets:
    """The latencies of all sink tasks together, bounds ascending."""
    total: Buckets = {}
    for task in tasks:
        for bound, count in task["figures"].get("latency_ms_buckets", {}).items():
            total[float(bound)] = total.get(float(bound), 0) + count
    return dict(sorted(total.items()))


def percentile_ms(buckets: Buckets, share: float) -> float | None:
    """The latency below which `share` of all lie, interpolated inside its bucket; None for no records."""
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
    told = {"p50": percentile_ms(buckets, 0.5), "p99": percentile_ms(buckets, 0.99), "max": highest}
    if highest is not None:
        told = {name: None if value is None else min(value, highest) for name, value in told.items()}
    return {name: None if value is None else round(value, 3) for name, value in told.items()}


def total(view: Mapping[str, Any], figure: str, kind: str | None = None) -> int:
    """Sum of a figure over the tasks, or those of one kind ("source", "sink")."""
    return sum(int(task["figures"].get(figure, 0)) for task in view["tasks"] if kind is None or task[kind])


def determinant_bytes(view: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of determinants logged, by kind."""
    kinds: dict[str, int] = {}
    for task in view["tasks"]:
        for kind, count in task["figures"].get("determinant_bytes", {}).items():
            kinds[kind] = kinds.get(kind, 0) + count
    return dict(sorted(kinds.items()))


def counts(view: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """operator → reason → elements that its tasks dropped, held back or revised (late, expired …)."""
    found: dict[str, dict[str, int]] = {}
    for task in view["tasks"]:
        for operator, reasons in task["figures"].get("counts", {}).items():
            told = found.setdefault(operator, {})
            for reason, count in reasons.items():
                told[reason] = told.get(reason, 0) + count
    return {operator: dict(sorted(found[operator].items())) for operator in sorted(found)}


def before(view: Mapping[str, Any], figure: str, kind: str) -> int:
    """The sum of a position over the tasks of a kind as it was when the job was last resumed; 0 if it never was."""
    positions = view["life"]["before"][figure]
    return sum(int(positions.get(task["task"], 0)) for task in view["tasks"] if task[kind])


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
    """Which `--kill` did not happen before the job ended, by the clock that they are counted by."""
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
        "checked_epochs": {t["task"]: t["checked_epochs"] for t in view["tasks"]} if view["check"] else None,
        "sent_bytes": total(view, "sent_bytes"),
        "received_bytes": total(view, "received_bytes"),
        "checkpoint_ms": view["checkpoint"]["took_ms"],
        "tasks": {task["task"]: task["figures"] for task in view["tasks"]},
    }


def beside(path: Path) -> Path:
    """Where a report is written before it has its name."""
    return path.with_name(path.name + ".new")


def write_report(path: Path, told: Mapping[str, Any]) -> None:
    """Write the report, whole or not at all.

    Raises:
        PipelineError: it cannot be written.
    """
    fresh = beside(path)
    try:
        with open(opened(fresh, os.O_WRONLY | os.O_TRUNC, mode_of_files()), "w") as file:
            file.write(json.dumps(told, indent=1) + "\n")
        os.replace(fresh, path)
    except OSError as problem:
        raise PipelineError(f"--report {path} cannot be written: {problem.strerror}") from None


def _number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.1f}{unit}"


def summary(told: Mapping[str, Any]) -> str:
    """A few lines for a person."""
    latency = told["latency_ms"]
    # Not every operator's output can be laid at the record it came from; what is not measured is not shown.
    percentiles = (
        ""
        if latency["p50"] is None
        else (f"latency p50 {_number(latency['p50'], ' ms')}, p99 {_number(latency['p99'], ' ms')}; ")
    )
    lines = [
        _counted(told),
        f"{percentiles}checkpoints {told['checkpoints']};"
        f" determinants {_number(sum(told['determinant_bytes'].values()))} bytes",
    ]
    for recovery in told["recoveries"]:
        steps = [
            f"{word} {_number(recovery[key], ' ms')}"
            for word, key in (
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
    for operator, reasons in told["counts"].items():
        lines.append(f"{operator}: " + ", ".join(f"{count:,} {reason}" for reason, count in reasons.items()))
    if told["checked_epochs"]:
        epochs = told["checked_epochs"].values()
        again = f"checked: {sum(epochs)} epochs of {sum(map(bool, epochs))} tasks were performed again"
        lines.append(f"{again} and found the same" if not told["status"] else again)
    if told["withdrawn"]:
        why = "which depended on lost determinants or were of a version that was rolled back"
        lines.append(f"withdrawn {told['withdrawn']:,} rows, {why}")
    if told["refused"]:
        lines.append(f"refused {told['refused']:,} rows, which their store would not take: see the dead letters")
    return "\n".join(lines)


def _counted(told: Mapping[str, Any]) -> str:
    """The line of records, rate and durations."""
    line = f"records in {told['records_in']:,}, out {told['records_out']:,}"
    if told["records_in_before"] or told["records_out_before"]:
        fresh = told["records_in"] - told["records_in_before"], told["records_out"] - told["records_out_before"]
        line += f" ({fresh[0]:,} and {fresh[1]:,} since it was resumed)"
    if told["active_s"] is not None:
        line += f", in {told['active_s']:.1f} s ({_number(told['throughput_rps'])} records/s)"
    return f"{line}; {told['wall_s']:.1f} s with start and end"
