"""The tables of results that have more than a row per figure: axes of a matrix, parts of a batch, a job that grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.measured import origin, series
from benchmarks.scale.scale import DEPTHS, SHAPES
from benchmarks.throughput.matrix import AXES, MODES

Result = Mapping[str, Any]
MATRIX = {
    "rps": "records/s",
    "ratio": "÷ base",
    "cpu_us": "CPU µs per record",
    "cpu_ratio": "÷ base",
    "wire": "determinant bytes per record",
    "checkpoint_bytes": "bytes per checkpoint",
    "first_output_ms": "first output, ms",
}
TASKS = ("source", "count", "sink")
PARTS = {
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
CONTROL = {
    "start: messages per task": "start_messages_per_task",
    "start: bytes of messages per task": "start_bytes_per_task",
    "start: CPU of the supervisor, µs per task": "start_cpu_us_per_task",
    "steady: messages per task and second": "steady_messages_per_task_s",
    "steady: bytes per task and second": "steady_bytes_per_task_s",
    "steady: CPU, µs per task and second": "steady_cpu_us_per_task_s",
    "one step in steady state, µs": "step_us",
    "a beat, bytes": "beat_bytes",
    "the agent's beat, bytes per task": "agent_beat_bytes_per_task",
    "checkpoint: messages per task": "checkpoint_messages_per_task",
    "checkpoint: bytes per task": "checkpoint_bytes_per_task",
    "checkpoint: CPU, µs per task": "checkpoint_cpu_us_per_task",
    "checkpoint: journal, bytes per task": "checkpoint_journal_bytes_per_task",
    "checkpoint: manifest, bytes per task": "manifest_bytes_per_task",
    "checkpoint: longest step, ms": "checkpoint_step_ms_max",
    "the journal that a new supervisor reads, bytes per task": "journal_kept_bytes_per_task",
    "failure: messages": "failure_messages",
    "failure: bytes": "failure_bytes",
    "failure: journal, bytes": "failure_journal_bytes",
    "failure: from the exit to `promote`, µs": "failure_step_us",
    "`status.json`, bytes per task": "status_bytes_per_task",
    "`status.json`, CPU, µs per task": "status_cpu_us_per_task",
    "a new supervisor: CPU, µs per task": "restart_cpu_us_per_task",
}
NEIGHBOURS = {
    "start: messages per task": "start_messages_per_task",
    "a beat, bytes": "beat_bytes",
    "failure: messages": "failure_messages",
    "failure: bytes": "failure_bytes",
}
DATA = {
    "determinant bytes per data frame": "wire_per_frame",
    "determinant bytes per record": "wire_per_record",
    "failure: HELLO bytes": "failure_hello_bytes",
    "failure: WELCOME and LOGS bytes": "failure_welcome_bytes",
}


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """A Markdown table; all columns but the first are numbers, aligned to the right."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * text_columns}{'---:|' * (len(head) - text_columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def matrix(result: Result) -> str:
    """Everything that was measured, one table per axis, and what there was no time for."""
    figures = result["figures"]
    parts = []
    for name, axis in AXES.items():
        rows = [
            [
                f"{value:,}" if isinstance(value, int) else str(value),
                mode,
                *(_exact_spread(figures.get(f"{name}/{value}/{mode}/{each}")) for each in MATRIX),
            ]
            for mode in MODES
            for value in axis.values
            if f"{name}/{value}/{mode}/rps" in figures
        ]
        if rows:
            parts += [grid([axis.unit, "", *MATRIX.values()], rows, text_columns=2), ""]
    rounds = result["settings"]["rounds"]
    times = "once" if rounds == 1 else f"{rounds} times"
    parts.append(f"Each point was run {times}, the base point of an axis before and after the others as well.")
    if result["left_out"]:
        parts.append(f"Not measured, for there was no time: {'; '.join(result['left_out'])}.")
    parts += [f"No figures for {point}: {problem}." for point, problem in result.get("problems", {}).items()]
    return "\n".join(parts).rstrip()


def _exact_spread(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return ""
    middle, low, high = (f"{figure[name]:,}".removesuffix(".0") for name in ("median", "min", "max"))
    return middle if low == high else f"{middle} [{low}–{high}]"


def budget(result: Result) -> str:
    """One table per batch size, then the replay: of a stored result, what measured it is no longer here."""
    figures, settings = result["figures"], result["settings"]
    parts = []
    for size in settings["sizes"]:
        parts += [f"### {size:,} {'records' if size > 1 else 'record'} per batch", "", _of_size(figures, size), ""]
    replays = {name.removeprefix("replay/"): each for name, each in figures.items() if name.startswith("replay/")}
    rows = [[name, f"{each['median']:,.1f} [{each['min']:,.1f}–{each['max']:,.1f}]"] for name, each in replays.items()]
    parts += ["### A replay, one record per event", "", grid(["", "CPU µs per event"], rows)]
    return "\n".join(parts)


def _of_size(figures: Mapping[str, Any], size: int) -> str:
    def median(what: str, task: str, part: str) -> float:
        return float(figures.get(f"{size}/{what}/{task}/{part}", {"median": 0.0})["median"])

    rows = []
    for part, meaning in PARTS.items():
        ours = [median("parts", task, part) for task in TASKS]
        bare = sum(median("bare", task, part) for task in TASKS)
        if any(ours) or bare:
            cells = [_tenths(each) if each >= 0.05 else "" for each in ours]
            per_record = [_tenths(sum(ours) / size * 1000), _tenths(bare / size * 1000) if bare else ""]
            rows.append([f"{part}: {meaning}", *cells, _tenths(sum(ours)), *per_record])
    sums = [sum(median("parts", task, part) for part in PARTS) for task in TASKS]
    whole = [median("whole", task, "whole") for task in TASKS]
    bare = sum(median("bare", task, part) for task in TASKS for part in PARTS)
    for name, each, beside in (("**sum**", sums, _tenths(bare / size * 1000)), ("no clock inside", whole, "")):
        rows.append([name, *map(_tenths, each), _tenths(sum(each)), _tenths(sum(each) / size * 1000), beside])
    sockets = median("whole", "threads", "sockets")
    rows.append(["ZeroMQ's threads", "", "", "", _tenths(sockets), _tenths(sockets / size * 1000), ""])
    return grid(["CPU µs per batch", *TASKS, "all three", "ns per record", "bare job, ns per record"], rows)


def _tenths(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def scale(result: Result) -> dict[str, str]:
    """All tables of the page about scale, by name."""
    figures, machine = result["figures"], result["machine"]
    where = f"`{result['command']}`: {machine['processor']}, Python {result['versions']['python']}; {origin(result)}."
    return {
        "control": f"{where}\n\n{_numbered(figures, 'control', 'tasks', CONTROL)}",
        "neighbours": _numbered(figures, "neighbours", "tasks per layer", NEIGHBOURS),
        "depth": _shaped(figures, "depth", "hops from source to sink"),
        "fan-in": _shaped(figures, "fan_in", "sources that a task reads"),
        "width": _shaped(figures, "width", "tasks per layer, all to all, 4 hops"),
    }


def _three(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _numbered(figures: Mapping[str, Any], kind: str, head: str, lines: Mapping[str, str]) -> str:
    """Figures by the number that is varied, one column each."""
    numbers, _ = series(figures, kind, next(iter(lines.values())))
    rows = [[label, *map(_three, series(figures, kind, name)[1])] for label, name in lines.items()]
    return grid([head, *(f"{number:,}" for number in numbers)], rows)


def _shaped(figures: Mapping[str, Any], kind: str, head: str) -> str:
    """The data plane's figures for one way to vary the graph, a row for each sharing depth."""
    numbers = list(SHAPES[kind])
    rows = []
    for label, name in DATA.items():
        for depth in DEPTHS:
            medians = dict(zip(*series(figures, kind, f"{depth}.{name}"), strict=True))
            cells = [_three(medians[number]) if number in medians else "" for number in numbers]
            rows.append([f"{label}, {depth.replace('f1', 'f = 1').replace('f2', 'f = 2')}", *cells])
    return grid([head, *map(str, numbers)], rows)
