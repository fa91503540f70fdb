"""Defines which figures of a result are drawn beside each other, what their rows are called, and where a goal is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.charts.style import Rows

KEYS_OF_MEMORY = 100_000
"""A result of `state` with fewer keys is about the memory beyond state."""


def kind(result: Mapping[str, Any]) -> str:
    """Returns which panels a result has: its benchmark's, but that of memory is a run of `state` with few keys."""
    name = str(result["benchmark"])
    return "memory" if name == "state" and result["settings"]["keys"] < KEYS_OF_MEMORY else name


_PHASES = {
    f"{name}_ms": name.replace("_", " ") for name in ("detected", "promoted", "collected", "first_output", "live")
}
_CASES = {
    "keyed_count_load": "keyed count, load",
    "keyed_count_single": "keyed count, 1 per batch",
    "fraud_chain_load": "fraud chain, load",
    "fraud_chain_paced": "fraud chain, 2,000/s",
}
_GUARANTEES = {"none": "none", "causal_f1": "causal, f = 1", "causal_full": "causal, full"}
_SIDE_BY_SIDE = ("none", "at-least-once", "causal", "epoch")
_CHAINS = {
    "victim": "killed chain",
    "sibling": "chain of the same source",
    "stranger": "chain of another source",
}
_SECONDS = {"before": "before a kill", "second1": "1st s after", "second2": "2nd s after", "second3": "3rd s after"}
_SINKS = {
    "sqlite": "SQLite",
    "sqlite_os": "SQLite, synced",
    "jsonlines": "JSON lines",
    "jsonlines_os": "JSON lines, synced",
    "parquet": "Parquet",
    "postgres": "PostgreSQL",
    "postgres_columns": "PostgreSQL, own columns",
    "postgres_by_copy": "(psycopg, COPY)",
    "postgres_by_executemany": "(psycopg, executemany)",
    "redis": "Redis",
    "redis_unsynced": "Redis, not synced",
}
_CAUSAL = {"causal_f1": "f = 1", "causal_full": "full"}
_FLUSHED = (("single", "1 per batch"), ("load", "load"), ("windows", "windows"))
_FLUSH = {"off": "no files", "background": "in files"}
_SYNCED = {"process": "not synced", "os": "synced"}
_BAD = {
    "hot_key": "one hot key",
    "giant_record": "giant records",
    "tiny_batches": "one record per batch",
    "slow_operator": "slow operator",
    "slow_sink": "slow sink",
}
_KILLED = (("", ""), ("_killed", ", killed twice"))
_LATENCIES = {"latency_p50_ms": "latency, p50", "latency_p99_ms": "latency, p99", "latency_p9999_ms": "latency, p99.99"}

PANELS: Mapping[str, Sequence[Rows]] = {
    "throughput": (
        Rows("records/s", {"bare_rps": "bare job, one core", **{f"{g}_rps": n for g, n in _GUARANTEES.items()}}),
        Rows(
            "records/s ÷ (cores × bare job)",
            {f"{g}_efficiency": n for g, n in _GUARANTEES.items()},
            at_least={"causal_full_efficiency": 0.8},
        ),
        Rows(
            "records/s ÷ none",
            {f"{g}_over_none": n for g, n in _GUARANTEES.items()},
            at_least={"causal_f1_over_none": 0.98},
        ),
        Rows("CPU µs per record", {"bare_cpu_us": "bare job", **{f"{g}_cpu_us": n for g, n in _GUARANTEES.items()}}),
    ),
    "guarantees": (
        Rows("CPU µs per record", {f"{g}.cpu_us": g for g in _SIDE_BY_SIDE}),
        Rows(
            "ms from element to visible row",
            {f"{g}.{name}": f"{g}, {name[:3]}" for g in _SIDE_BY_SIDE for name in ("p50_ms", "p99_ms")},
            together=2,
            several=True,
        ),
        Rows(
            "ms without a row of the killed task",
            {
                f"{g}.{name}": f"{g}, {what}"
                for g in _SIDE_BY_SIDE
                for name, what in (("calm_gap_ms", "before the kill"), ("gap_ms", "at the kill"))
            },
            together=2,
            several=True,
        ),
        Rows(
            "rows doubled by one death",
            {f"{g}.doubled": g for g in _SIDE_BY_SIDE},
            at_most={"causal.doubled": 0, "epoch.doubled": 0},
        ),
    ),
    "recovery": (
        Rows("ms after SIGKILL", _PHASES, at_most={"first_output_ms": 50}),
        Rows("elements replayed", {"replayed_elements": "per kill"}),
    ),
    "determinants": (
        Rows(
            "bytes per record",
            {
                f"{case}_{depth}.{what}": f"{name}, {depth.replace('f1', 'f = 1')}: {what}"
                for case, name in _CASES.items()
                for depth in ("full", "f1")
                for what in ("logged", "wire")
            },
            at_most={
                **{f"keyed_count_load_full.{what}": 0.05 for what in ("logged", "wire")},
                **{f"keyed_count_single_full.{what}": 4 for what in ("logged", "wire")},
            },
            together=2,
            several=True,
        ),
    ),
    "flush": (
        Rows(
            "bytes of determinants per record",
            {
                f"{case}.{flush}.{what}": f"{name}, {label}: {what}"
                for case, name in _FLUSHED
                for what in ("wire", "bundle")
                for flush, label in _FLUSH.items()
            },
            together=2,
            several=True,
        ),
        Rows(
            "CPU µs per record",
            {
                f"{case}.{flush}.cpu_us": f"{name}, {label}"
                for case, name in _FLUSHED
                for flush, label in _FLUSH.items()
            },
            together=2,
            several=True,
        ),
        Rows(
            "ms after SIGKILL",
            {
                f"recovery.{flush}.{phase}_ms": f"{phase.replace('_', ' ')}, {label}"
                for phase in ("collected", "first_output", "live")
                for flush, label in _FLUSH.items()
            },
            together=2,
        ),
    ),
    "durability": (
        Rows("records/s at load", {f"load.{each}.throughput_rps": name for each, name in _SYNCED.items()}),
        Rows(
            "ms, paced",
            {
                f"paced.{each}.{figure}_ms": f"{figure}, {name}"
                for figure in ("p50", "p99", "checkpoint")
                for each, name in _SYNCED.items()
            },
            together=2,
            several=True,
        ),
    ),
    "state": (
        Rows("ms after SIGKILL", _PHASES, at_most={"first_output_ms": 80}),
        Rows("ms", {"checkpoint_ms": "a checkpoint", **_LATENCIES}, at_most={"latency_p9999_ms": 20}),
        Rows("MiB, state included", {"task_mib": "the task", "standby_mib": "its standby"}),
    ),
    "memory": (
        Rows(
            "MiB", {"task_mib": "the task", "standby_mib": "its standby"}, at_most={"task_mib": 60, "standby_mib": 60}
        ),
        Rows("ms", {"checkpoint_ms": "a checkpoint", **_LATENCIES}),
        Rows("ms after SIGKILL", _PHASES),
    ),
    "overhead": (
        Rows(
            "records/s, causal ÷ none",
            {f"{g}_over_none": name for g, name in _CAUSAL.items()},
            at_least={"causal_full_over_none": 0.95},
        ),
        Rows(
            "CPU, causal ÷ none",
            {f"{g}_cpu_over_none": name for g, name in _CAUSAL.items()},
            at_most={"causal_full_cpu_over_none": 1.05},
        ),
        Rows(
            "p99 latency at half load, causal ÷ none",
            {f"{g}_p99_over_none": name for g, name in _CAUSAL.items()},
            at_most={"causal_full_p99_over_none": 1.10},
        ),
    ),
    "vectors": (
        Rows(
            "CPU µs per record",
            {f"{at}_{form}_cpu_us": f"{at}, {form}" for at in ("chains", "job") for form in ("rows", "vectors")},
            together=2,
        ),
        Rows(
            "CPU of rows ÷ that of vectors",
            {"chains_ratio": "chains", "job_ratio": "jobs"},
            at_least={"chains_ratio": 5, "job_ratio": 5},
        ),
    ),
    "spark_vectors": (
        Rows("CPU µs per record, our tasks", {f"tasks_{form}_cpu_us": form for form in ("rows", "vectors")}),
        Rows("CPU of rows ÷ that of vectors", {"tasks_ratio": "our tasks"}),
    ),
    "isolation": (
        Rows(
            "ms, longest gap in a second",
            {
                f"{chain}.{each}_gap_ms": f"{name}, {at}"
                for chain, name in _CHAINS.items()
                for each, at in _SECONDS.items()
            },
            together=len(_SECONDS),
        ),
    ),
    "sinks": (
        Rows("bundles of one row per second", {f"{s}_bundles_s": name for s, name in _SINKS.items()}, several=True),
        Rows("rows/s in bundles of 1,000", {f"{s}_rows_s": name for s, name in _SINKS.items()}, several=True),
        Rows("CPU µs per row in the sink's task", {f"{s}_cpu_us": name for s, name in _SINKS.items()}, several=True),
    ),
    "bad_input": (
        Rows(
            "memory of a task ÷ what its budgets allow",
            {f"{case}{killed}.memory_share": name + said for case, name in _BAD.items() for killed, said in _KILLED},
            at_most={f"{case}{killed}.memory_share": 1 for case in _BAD for killed, _ in _KILLED},
            together=2,
        ),
        Rows(
            "records/s ÷ what the limiting part does alone",
            {f"{case}{killed}.of_alone": name + said for case, name in _BAD.items() for killed, said in _KILLED},
            together=2,
        ),
    ),
    "latency_back": (
        Rows(
            "ms",
            {
                "back_ms": "from the kill until latency is back",
                "control_ms": "the same without a kill",
                "replayed_ms": "the stretch that was replayed",
            },
            at_most={"back_ms": 500},
        ),
        Rows("÷ the replayed stretch", {"over_replayed": "until it is back"}, at_most={"over_replayed": 2}),
    ),
}
"""Panels by kind of result; rows that a result lacks are left out."""
