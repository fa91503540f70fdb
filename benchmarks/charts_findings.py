"""What a result says, in one sentence: the title of its chart, made from its figures and never typed."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.charts_panels import kind
from benchmarks.charts_style import machine
from benchmarks.peers.table import COLUMNS

Told = Mapping[str, Any]
WIDTH_CHARACTERS = 105


def title(told: Told, width: int = WIDTH_CHARACTERS) -> str:
    """The finding, and below it what was measured on which machine; without a finding the latter alone."""
    measured = f"{kind(told)} ({machine(told)})"
    found = finding(told)
    return f"{textwrap.fill(found, width)}\n{measured}" if found else measured


def finding(told: Told) -> str:
    """One sentence; empty where the result lacks a figure of it: not everything has to be measured."""
    try:
        return FINDINGS[kind(told)](told)
    except LookupError:
        return ""


def _median(told: Told, name: str) -> float:
    return float(told["figures"][name]["median"])


def _number(value: float) -> str:
    """Three figures that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _exact(output: Mapping[str, int]) -> str:
    """What became of the rows."""
    wrong = {name: output[name] for name in ("lost", "doubled", "contradicted")}
    if not any(wrong.values()):
        return f"none of {output['rows']:,} rows lost, doubled or contradicted"
    return ", ".join(f"{count:,} {name}" for name, count in wrong.items()) + f" of {output['rows']:,} rows"


def _throughput(told: Told) -> str:
    full, one = _median(told, "causal_full_efficiency"), _median(told, "causal_f1_over_none")
    cores = told["settings"]["cores"]
    return (
        f"Exactly once, the whole job makes {_number(full)} × what {cores} bare jobs on {cores} cores would;"
        f" sharing depth 1 makes {_number(one)} × no guarantee"
    )


def _guarantees(told: Told) -> str:
    causal, epoch = _median(told, "causal.p50_ms"), _median(told, "epoch.p50_ms")
    doubled, of_causal = _median(told, "at-least-once.doubled"), _median(told, "causal.doubled")
    return (
        f"A row is visible after {_number(causal)} ms with causal, {_number(epoch)} ms with epoch;"
        f" one death doubles {_number(of_causal)} rows with causal, {_number(doubled)} with at-least-once"
    )


def _recovery(told: Told) -> str:
    first = told["figures"]["first_output_ms"]
    return (
        f"{len(first['runs'])} times kill -9 → first new output: median {_number(first['median'])} ms,"
        f" p99 {_number(first['p99'])} ms; {_exact(told['output'])}"
    )


def _determinants(told: Told) -> str:
    load, single = _median(told, "keyed_count_load_full.wire"), _median(told, "keyed_count_single_full.wire")
    return (
        f"Determinants of a keyed count on the wire: {_number(load)} bytes per record at load,"
        f" {_number(single)} where each record is a batch"
    )


def _flush(told: Told) -> str:
    def ratio(name: str) -> str:
        return _number(_median(told, f"{name.format('background')}") / _median(told, f"{name.format('off')}"))

    return (
        f"Determinants in files: × {ratio('windows.{}.wire')} of the bytes on the wire where something waits,"
        f" × {ratio('single.{}.wire')} where nothing does; the first output after a kill comes after"
        f" × {ratio('recovery.{}.first_output_ms')} of the time"
    )


def _durability(told: Told) -> str:
    rps = _median(told, "load.os_over_process_rps")
    before, after = _median(told, "paced.process.p50_ms"), _median(told, "paced.os.p50_ms")
    return (
        f"Everything synced before it is acknowledged: × {_number(rps)} of the records/s,"
        f" median latency {_number(after)} ms instead of {_number(before)} ms"
    )


def _state(told: Told) -> str:
    keys, first = told["settings"]["keys"], _median(told, "first_output_ms")
    written = _median(told, "snapshot_bytes_per_checkpoint")
    return (
        f"{keys:,} keys: first new output {_number(first)} ms after kill -9;"
        f" a checkpoint writes {_number(written / 1024)} KiB, p99.99 of latency is"
        f" {_number(_median(told, 'latency_p9999_ms'))} ms"
    )


def _memory(told: Told) -> str:
    return (
        f"With {told['settings']['keys']:,} keys a task takes {_number(_median(told, 'task_mib'))} MiB,"
        f" its standby {_number(_median(told, 'standby_mib'))} MiB"
    )


def _overhead(told: Told) -> str:
    rps, cpu = _median(told, "causal_full_over_none"), _median(told, "causal_full_cpu_over_none")
    return (
        f"Five tasks in a row, exactly once: × {_number(rps)} of the records/s of no guarantee,"
        f" × {_number(cpu)} of its CPU, × {_number(_median(told, 'causal_full_p99_over_none'))} of its p99 latency"
    )


def _vectors(told: Told) -> str:
    chains, jobs = _median(told, "chains_ratio"), _median(told, "job_ratio")
    return (
        f"A keyed count over rows takes {_number(chains)} × the CPU of one over columns, whole jobs {_number(jobs)} ×"
    )


def _spark_vectors(told: Told) -> str:
    return f"Fed by Spark, our tasks take {_number(_median(told, 'tasks_ratio'))} × the CPU over rows as over columns"


def _isolation(told: Told) -> str:
    where = ", ".join(told["told_apart"]) or "nowhere"
    ratio = _number(_median(told, "victim.second1_ratio"))
    return (
        f"In the second after a kill the longest gap of the killed chain is × {ratio} of that before;"
        f" told from noise elsewhere: {where}"
    )


def _sinks(told: Told) -> str:
    names = {"jsonlines": "JSON lines", "sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
    parts = [f"{name} {_number(_median(told, f'{sink}_rows_s'))}" for sink, name in names.items()]
    return f"Rows/s that a sink stores exactly once: {', '.join(parts)}"


def _latency_back(told: Told) -> str:
    back, ratio = _median(told, "back_ms"), _median(told, "over_replayed")
    return (
        f"After kill -9 latency is back within 10 % in {_number(back)} ms (median),"
        f" × {_number(ratio)} of the replayed stretch; {_exact(told['output'])}"
    )


def _bad_input(told: Told) -> str:
    shares = [each["max"] for name, each in told["figures"].items() if name.endswith(".memory_share")]
    alone = {name: each["median"] for name, each in told["figures"].items() if name.endswith(".of_alone")}
    if not shares or not alone:
        raise LookupError("no case was measured")
    return (
        f"Bad input: at most × {_number(max(shares))} of the memory that the budgets allow, every output exactly once;"
        f" at least × {_number(min(alone.values()))} of the records/s of what limits it"
    )


def _budget(told: Told) -> str:
    size = told["settings"]["sizes"][0]
    sums = {
        what: sum(each["median"] for name, each in told["figures"].items() if name.startswith(f"{size}/{what}/"))
        for what in ("parts", "bare")
    }
    if not all(sums.values()):
        raise LookupError(f"no sums for batches of {size}")
    return (
        f"A batch of {size:,} records takes three tasks {_number(sums['parts'])} µs of CPU,"
        f" the bare job with all stages {_number(sums['bare'])} µs"
    )


def _matrix(told: Told) -> str:
    found = {name: each["median"] for name, each in told["figures"].items()}
    ratios: dict[str, list[float]] = {}
    for name, value in found.items():
        if name.endswith("/free/ratio"):
            ratios.setdefault(name.split("/")[0], []).append(value)
    away = [value for name, value in found.items() if name.endswith("/first_output_ms")]
    spread = {axis: max(values) / min(values) for axis, values in ratios.items()}
    if not spread or not away:
        raise LookupError("a matrix without points")
    most, least = max(spread, key=lambda axis: spread[axis]), min(spread, key=lambda axis: spread[axis])
    return (
        f"Records/s depend most on {most} (× {_number(spread[most])} from least to most), least on {least}"
        f" (× {_number(spread[least])}); at full load the first new output of a killed task comes after"
        f" {_number(min(away))} to {_number(max(away))} ms"
    )


def _total_failure(told: Told) -> str:
    output, times = told["output"], told["settings"]["times"]
    first = _median(told, "first_row_ms")
    seen = f"{output['visible_contradicted'] or 'none'} of {output['seen']:,} rows that a reader saw changed"
    return (
        f"Every process killed at once, {times} times: {_exact(output)}, {seen};"
        f" the first new row is seen {_number(first)} ms after the resume"
    )


def _latency(told: Told) -> str:
    held = told["figures"]
    between = sorted({int(name.split(".")[1]) for name in held if name.endswith(".p50_ms")})
    causal, epoch = ([held[f"{name}.{each}.p50_ms"]["median"] for each in between] for name in ("causal", "epoch"))
    return (
        f"Inverted index: with {_spelt(between)} ms between checkpoints a document is visible after {_spelt(causal)} ms"
        f" with causal, {_spelt(epoch)} ms with epoch (medians)"
    )


def _spelt(values: Sequence[float]) -> str:
    return " / ".join(_number(each) for each in values)


def _peers(told: Told) -> str:
    ratios = {
        (pair["workload"], pair["peer"], name): each["median"]
        for pair in told["pairs"]
        for name, each in pair.get("ratios", {}).items()
    }
    heads = {(workload, name): head for workload, columns in COLUMNS.items() for name, head in columns}
    behind = [f"{heads[work, name]} of {work} ({peer})" for (work, peer, name), each in ratios.items() if each < 1]
    ahead = len(ratios) - len(behind)
    return f"Ours is ahead in {ahead} of {len(ratios)} comparisons; behind in {', '.join(behind) or 'none'}"


FINDINGS: Mapping[str, Callable[[Told], str]] = {
    "throughput": _throughput,
    "guarantees": _guarantees,
    "recovery": _recovery,
    "determinants": _determinants,
    "flush": _flush,
    "durability": _durability,
    "state": _state,
    "memory": _memory,
    "overhead": _overhead,
    "vectors": _vectors,
    "spark_vectors": _spark_vectors,
    "isolation": _isolation,
    "sinks": _sinks,
    "latency": _latency,
    "latency_back": _latency_back,
    "bad_input": _bad_input,
    "budget": _budget,
    "matrix": _matrix,
    "total_failure": _total_failure,
    "peers": _peers,
}
"""By kind of result; one without an entry has its name as title."""
