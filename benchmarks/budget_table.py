"""The tables of `docs/performance.md`: a batch's time by part and task, beside the bare job's, and a replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.budget import PER_TURN
from benchmarks.budget_drive import TASKS
from benchmarks.budget_parts import PARTS

MEANING = {
    "read": "ask the partition's reader",
    "socket in": "`recv_multipart`",
    "receive": "header, session, digest, chunks",
    "merge delta": "unpack, check and store the determinants that came",
    "decode": "records from bytes",
    "operators": "keys, the operators, sorting the output",
    "route": "key → channel, append",
    "log": "append the order determinant",
    "encode": "records to bytes",
    "keep": "number, seal, digest, in-flight log",
    "share delta": "what the holder downstream lacks, packed",
    "send": "header, frame, cursor",
    "socket out": "`send_multipart`",
    "credit": "give and take credit",
    "write": "the sink's bundle, one SQLite transaction",
    "turn": "poll, loop, what comes next",
}


def tables(told: Mapping[str, Any]) -> str:
    """One table per batch size, then the replay."""
    figures, settings = told["figures"], told["settings"]
    parts = []
    for size in settings["sizes"]:
        parts += [f"### {size:,} {'records' if size > 1 else 'record'} per batch", "", _table(figures, size), ""]
    rows = [[name, _spread(figures[f"replay/{name}"])] for name in PER_TURN]
    parts += ["### A replay, one record per event", "", _grid(["", "CPU µs per event"], rows)]
    return "\n".join(parts)


def _table(figures: Mapping[str, Any], size: int) -> str:
    def median(what: str, task: str, part: str) -> float:
        return float(figures.get(f"{size}/{what}/{task}/{part}", {"median": 0.0})["median"])

    rows = []
    for part in PARTS:
        ours = [median("parts", task, part) for task in TASKS]
        bare = sum(median("bare", task, part) for task in TASKS)
        if any(ours) or bare:
            per_record = [_number(sum(ours) / size * 1000), _number(bare / size * 1000) if bare else ""]
            rows.append([f"{part}: {MEANING[part]}", *map(_cell, ours), _number(sum(ours)), *per_record])
    sums = [sum(median("parts", task, part) for part in PARTS) for task in TASKS]
    whole = [median("whole", task, "whole") for task in TASKS]
    bare = sum(median("bare", task, part) for task in TASKS for part in PARTS)
    for name, each, beside in (("**sum**", sums, _number(bare / size * 1000)), ("no clock inside", whole, "")):
        rows.append([name, *map(_number, each), _number(sum(each)), _number(sum(each) / size * 1000), beside])
    sockets = median("whole", "threads", "sockets")
    rows.append(["ZeroMQ's threads", "", "", "", _number(sockets), _number(sockets / size * 1000), ""])
    head = ["CPU µs per batch", *TASKS, "all three", "ns per record", "bare job, ns per record"]
    return _grid(head, rows)


def _cell(value: float) -> str:
    return _number(value) if value >= 0.05 else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _spread(told: Mapping[str, Any]) -> str:
    return f"{told['median']:,.1f} [{told['min']:,.1f}–{told['max']:,.1f}]"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
