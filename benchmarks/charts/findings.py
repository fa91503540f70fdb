"""States what a result says, in one sentence: the title of its chart, made from its figures and never typed."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.charts.panels import kind
from benchmarks.harness.measured import series
from benchmarks.peers.peers_table import COLUMNS

Result = Mapping[str, Any]
WIDTH_CHARACTERS = 105

TEMPLATES: Mapping[str, str] = {
    "throughput": "Exactly once, the whole job makes {causal_full_efficiency} × what {settings.cores} bare jobs on"
    " {settings.cores} cores would; sharing depth 1 makes {causal_f1_over_none} × no guarantee",
    "guarantees": "A row is visible after {causal.p50_ms} ms with causal, {epoch.p50_ms} ms with epoch; one death"
    " doubles {causal.doubled} rows with causal, {at-least-once.doubled} with at-least-once",
    "recovery": "{first_output_ms:runs} times kill -9 → first new output: median {first_output_ms} ms,"
    " p99 {first_output_ms:p99} ms; {output}",
    "determinants": "Determinants of a keyed count on the wire: {keyed_count_load_full.wire} bytes per record at load,"
    " {keyed_count_single_full.wire} where each record is a batch",
    "flush": "Determinants in files: × {windows.background.wire / windows.off.wire} of the bytes on the wire where"
    " something waits, × {single.background.wire / single.off.wire} where nothing does; the first output after a kill"
    " comes after × {recovery.background.first_output_ms / recovery.off.first_output_ms} of the time",
    "durability": "Everything synced before it is acknowledged: × {load.os_over_process_rps} of the records/s,"
    " median latency {paced.os.p50_ms} ms instead of {paced.process.p50_ms} ms",
    "state": "{settings.keys} keys: first new output {first_output_ms} ms after kill -9; a checkpoint writes"
    " {snapshot_bytes_per_checkpoint:KiB} KiB, p99.99 of latency is {latency_p9999_ms} ms",
    "memory": "With {settings.keys} keys a task takes {task_mib} MiB, its standby {standby_mib} MiB",
    "overhead": "Five tasks in a row, exactly once: × {causal_full_over_none} of the records/s of no guarantee,"
    " × {causal_full_cpu_over_none} of its CPU, × {causal_full_p99_over_none} of its p99 latency",
    "vectors": "A keyed count over rows takes {chains_ratio} × the CPU of one over columns, whole jobs {job_ratio} ×",
    "spark_vectors": "Fed by Spark, our tasks take {tasks_ratio} × the CPU over rows as over columns",
    "isolation": "In the second after a kill the longest gap of the killed chain is × {victim.second1_ratio} of that"
    " before; told from noise elsewhere: {told_apart}",
    "sinks": "Rows/s that a sink stores exactly once: JSON lines {jsonlines_rows_s}, SQLite {sqlite_rows_s},"
    " PostgreSQL {postgres_rows_s}, Redis {redis_rows_s}",
    "latency_back": "After kill -9 latency is back within 10 % in {back_ms} ms (median), × {over_replayed} of the"
    " replayed stretch; {output}",
    "total_failure": "Every process killed at once, {settings.times} times: {output}, {visible}; the first new row is"
    " seen {first_row_ms} ms after the resume",
}
"""Sentences by kind of result.  A field is the median of a figure, `a / b` a ratio of two, `name:p99` another value."""


def number(value: float) -> str:
    """Three figures that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def exact(output: Mapping[str, int]) -> str:
    """Returns what became of the rows."""
    wrong = {name: output[name] for name in ("lost", "doubled", "contradicted")}
    if not any(wrong.values()):
        return f"none of {output['rows']:,} rows lost, doubled or contradicted"
    return ", ".join(f"{count:,} {name}" for name, count in wrong.items()) + f" of {output['rows']:,} rows"


class _Fields(string.Formatter):
    """Fills a template with what a result has; LookupError where it lacks something."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        return field_name, field_name

    def format_field(self, value: str, format_spec: str) -> str:
        result, figures = self._result, self._result["figures"]
        if value.startswith("settings."):
            return f"{result['settings'][value.removeprefix('settings.')]:,}"
        if value == "output":
            return exact(result["output"])
        if value == "told_apart":
            return ", ".join(result["told_apart"]) or "nowhere"
        if value == "visible":
            output = result["output"]
            return f"{output['visible_contradicted'] or 'none'} of {output['seen']:,} rows that a reader saw changed"
        if format_spec == "runs":
            return str(len(figures[value]["runs"]))
        if format_spec == "KiB":
            return number(figures[value]["median"] / 1024)
        above, _, below = value.partition(" / ")
        median = float(figures[above][format_spec or "median"])
        return number(median / figures[below]["median"] if below else median)


def _bad_input(result: Result) -> str:
    shares = [each["max"] for name, each in result["figures"].items() if name.endswith(".memory_share")]
    alone = [each["median"] for name, each in result["figures"].items() if name.endswith(".of_alone")]
    if not shares or not alone:
        raise LookupError("no case was measured")
    return (
        f"Bad input: at most × {number(max(shares))} of the memory that the budgets allow, every output exactly once;"
        f" at least × {number(min(alone))} of the records/s of what limits it"
    )


def _budget(result: Result) -> str:
    size = result["settings"]["sizes"][0]
    parts, bare = (
        sum(each["median"] for name, each in result["figures"].items() if name.startswith(f"{size}/{what}/"))
        for what in ("parts", "bare")
    )
    if not parts or not bare:
        raise LookupError(f"no sums for batches of {size}")
    return (
        f"A batch of {size:,} records takes three tasks {number(parts)} µs of CPU,"
        f" the bare job with all stages {number(bare)} µs"
    )


def _matrix(result: Result) -> str:
    medians = {name: each["median"] for name, each in result["figures"].items()}
    ratios: dict[str, list[float]] = {}
    for name, value in medians.items():
        if name.endswith("/free/ratio"):
            ratios.setdefault(name.split("/")[0], []).append(value)
    first_ms = [value for name, value in medians.items() if name.endswith("/first_output_ms")]
    spread = {axis: max(values) / min(values) for axis, values in ratios.items()}
    if not spread or not first_ms:
        raise LookupError("a matrix without points")
    most, least = max(spread, key=lambda axis: spread[axis]), min(spread, key=lambda axis: spread[axis])
    return (
        f"Records/s depend most on {most} (× {number(spread[most])} from least to most), least on {least}"
        f" (× {number(spread[least])}); at full load the first new output of a killed task comes after"
        f" {number(min(first_ms))} to {number(max(first_ms))} ms"
    )


def _latency(result: Result) -> str:
    figures = result["figures"]
    between = sorted({int(name.split(".")[1]) for name in figures if name.endswith(".p50_ms")})
    intervals, causal, epoch = (
        " / ".join(map(number, values))
        for values in (
            between,
            *([figures[f"{g}.{ms}.p50_ms"]["median"] for ms in between] for g in ("causal", "epoch")),
        )
    )
    return (
        f"Inverted index: with {intervals} ms between checkpoints a document is visible after {causal} ms"
        f" with causal, {epoch} ms with epoch (medians)"
    )


def _peers(result: Result) -> str:
    ratios = {
        (pair["workload"], pair["peer"], name): each["median"]
        for pair in result["pairs"]
        for name, each in pair.get("ratios", {}).items()
    }
    heads = {(workload, name): head for workload, columns in COLUMNS.items() for name, head in columns}
    behind = [f"{heads[work, name]} of {work} ({peer})" for (work, peer, name), each in ratios.items() if each < 1]
    ahead = len(ratios) - len(behind)
    return f"Ours is ahead in {ahead} of {len(ratios)} comparisons; behind in {', '.join(behind) or 'none'}"


def _control(result: Result) -> str:
    sizes, us = series(result["figures"], "control", "steady_cpu_us_per_task_s")
    _, messages = series(result["figures"], "control", "failure_messages")
    return (
        f"From {sizes[0]:,} to {sizes[-1]:,} tasks: {us[0]:,.0f} → {us[-1]:,.0f} µs of the supervisor's CPU per task"
        f" and second, {messages[0]:,.0f} → {messages[-1]:,.0f} messages per failure"
    )


def _data(result: Result) -> str:
    parts = []
    for name, what in (("depth", "{:,} hops"), ("fan_in", "{:,} sources of a task"), ("width", "{:,} tasks per layer")):
        numbers, sizes = series(result["figures"], name, "full.wire_per_frame")
        parts.append(f"{sizes[0]:.3g} → {sizes[-1]:.3g} at {what.format(numbers[-1])}")
    return f"Determinant bytes per frame with full sharing: {', '.join(parts)}"


FINDINGS: Mapping[str, Callable[[Result], str]] = {
    "bad_input": _bad_input,
    "budget": _budget,
    "matrix": _matrix,
    "latency": _latency,
    "peers": _peers,
    "scale.control": _control,
    "scale.data": _data,
}
"""Findings that have to look at more than single figures; one without an entry has its name as title."""


def finding(result: Result, part: str = "") -> str:
    """One sentence; empty where the result lacks a figure of it: not everything has to be measured."""
    name = f"{kind(result)}.{part}" if part else kind(result)
    try:
        return _Fields(result).format(TEMPLATES[name]) if name in TEMPLATES else FINDINGS[name](result)
    except LookupError:
        return ""


def title(result: Result, width: int = WIDTH_CHARACTERS, part: str = "") -> str:
    """The finding, and below it what was measured on which machine; without a finding the latter alone."""
    machine = result["machine"]
    measured = f"{kind(result)} ({machine['processor']}, {machine['cores']} cores)"
    sentence = finding(result, part)
    return f"{textwrap.fill(sentence, width)}\n{measured}" if sentence else measured
