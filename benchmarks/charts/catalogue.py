"""The chart of each kind of result: its title, a sentence made from the figures, and which figures its panels show."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.charts.style import Chart, Lines, Rows
from benchmarks.harness.measured import series

Result = Mapping[str, Any]
Panels = Sequence[Rows | Lines]

KEYS_OF_MEMORY = 100_000
"""A result of `state` with fewer keys is about the memory beyond state."""
WIDTH_CHARACTERS, COLUMN_CHARACTERS = 90, 70
PHASES = Rows("ms after SIGKILL", "(detected|promoted|collected|first_output|live)_ms")
STATE = (PHASES, Rows("ms", r"(checkpoint|latency_p\d+)_ms"), Rows("MiB", "(task|standby)_mib"))

CHARTS: Mapping[str, tuple[str, Panels]] = {
    "throughput": (
        "Exactly once, the whole job makes {causal_full_efficiency} × what {settings.cores} bare jobs on"
        " {settings.cores} cores would; sharing depth 1 makes {causal_f1_over_none} × no guarantee",
        (
            Rows("records/s", "(.*)_rps"),
            Rows("records/s ÷ (cores × bare job)", "(.*)_efficiency"),
            Rows("records/s ÷ none", "(.*)_over_none"),
            Rows("records/s ÷ at-least-once", "(causal_f1|causal_full)_over_at_least_once"),
            Rows("CPU µs per record", "(.*)_cpu_us"),
        ),
    ),
    "guarantees": (
        "A row is visible after {causal.p50_ms} ms with causal, {epoch.p50_ms} ms with epoch; one death doubles"
        " {causal.doubled} rows with causal, {at-least-once.doubled} with at-least-once",
        (
            Rows("CPU µs per record", r"(.*)\.cpu_us"),
            Rows("ms from element to visible row", r"(.*)\.(p\d+)_ms"),
            Rows("ms without a row of the killed task, at the kill unless it says before", r"(.*)\.(calm_)?gap_ms"),
            Rows("rows doubled by one death", r"(.*)\.doubled"),
        ),
    ),
    "recovery": (
        "{settings.kills} times kill -9 → first new output: median {first_output_ms} ms, p99 {first_output_ms:p99} ms;"
        " {output}",
        (PHASES, Rows("elements replayed per kill", "replayed_elements")),
    ),
    "determinants": (
        "Determinants of a keyed count on the wire: {keyed_count_load_full.wire} bytes per record at load,"
        " {keyed_count_single_full.wire} where each record is a batch",
        (Rows("bytes per record", r"((?:keyed_count|fraud_chain).*)\.(logged|wire)"),),
    ),
    "state": (
        "{settings.keys} keys: first new output {first_output_ms} ms after kill -9; a checkpoint writes"
        " {snapshot_bytes_per_checkpoint} bytes, p99.99 of latency is {latency_p9999_ms} ms",
        STATE,
    ),
    "memory": ("With {settings.keys} keys a task takes {task_mib} MiB, its standby {standby_mib} MiB", STATE[::-1]),
    "overhead": (
        "Five tasks in a row, exactly once: × {causal_full_over_none} of the records/s of no guarantee,"
        " × {causal_full_cpu_over_none} of its CPU, × {causal_full_p99_over_none} of its p99 latency",
        (
            Rows("records/s, causal ÷ none", "(causal_f1|causal_full)_over_none"),
            Rows("CPU, causal ÷ none", "(.*)_cpu_over_none"),
            Rows("p99 latency at half load, causal ÷ none", "(.*)_p99_over_none"),
        ),
    ),
    "vectors": (
        "A keyed count over rows takes {chains_ratio} × the CPU of one over columns, whole jobs {job_ratio} ×",
        (
            Rows("CPU µs per record", "(chains|job)_(rows|vectors)_cpu_us"),
            Rows("CPU of rows ÷ that of vectors", "(chains|job)_ratio"),
        ),
    ),
    "isolation": (
        "In the second after a kill the longest gap of the killed chain is × {victim.second1_ratio} of that before,"
        " × {sibling.second1_ratio} in a chain of the same source, × {stranger.second1_ratio} in one of another",
        (Rows("ms, longest gap in a second", r"(victim|sibling|stranger)\.(before|second\d)_gap_ms"),),
    ),
    "hosts": (
        "First new output {killed.first_output_ms} ms after a host's processes are killed, {cut.first_output_ms} ms"
        " after it is cut off; TCP with CURVE × {count.curve_over_ipc} of the records/s of ipc",
        (
            Rows("ms after every process of a host was killed", r"killed\.(\w+)_ms"),
            Rows("ms after a host was cut off", r"cut\.(\w+)_ms"),
            Rows("records/s ÷ ipc, or ÷ snapshots on the own disk", r"(\w+)\.(curve|directory|s3)_over_(?:ipc|local)"),
            Rows("cores of the supervisor, idle hosts", r"agents\.(cores)"),
        ),
    ),
    "connectors": (
        "Kafka → count per key → Kafka, exactly once: × {ours_over_quix} of the events/s of Quix Streams,"
        " × {ours_over_confluent} of a loop without an engine; kill -9 → next committed row: {kill.count_ms} ms",
        (
            Rows("events/s", r"(ours|confluent_\d|quix_\d)\.rps"),
            Rows("CPU µs per event", r"(ours|confluent_\d|quix_\d)\.cpu_us"),
            Rows("peak MiB", r"(ours|confluent_\d|quix_\d)\.peak_mib"),
        ),
    ),
    "replay": (
        "Recorded, a job has × {recorder.orders.rps_over_off} of its records/s; one task is replayed at"
        " × {speed.orders.over_1000} of real time at 1,000 records/s; first stop after {stop.first_s} s, an hour"
        " compared with other code in {diff.changed.hour_s} s",
        (
            Rows("records/s with a recorder ÷ without", r"recorder\.(\w+)\.rps_over_off"),
            Rows("CPU time with a recorder ÷ without", r"recorder\.(\w+)\.cpu_over_off"),
            Rows("bytes recorded per record", r"recorder\.(\w+)\.bytes_per_record(?:_at_(\d+))?"),
            Rows("replay of one task ÷ its job at full speed", r"speed\.(\w+)\.over_full"),
            Rows("replay of one task ÷ real time, by records/s", r"speed\.(\w+)\.over_(\d+)"),
            Rows("s of a command", r"(stop\.first|lineage\.row|diff\.\w+\.hour)_s"),
        ),
    ),
    "host_losses": (
        "{output} after {losses_per_job} losses of hosts per job (median)",
        (Rows("per job", "(losses|recoveries)_per_job"), Rows("seconds per job", "(seconds)_per_job")),
    ),
    "bad_input": (
        "Every output exactly once; of the memory that the budgets allow, a task takes at most"
        " × {hot_key_killed.memory_share} with one hot key, × {giant_record_killed.memory_share} with giant records",
        (Rows("memory of a task ÷ what its budgets allow", r"(.*)_killed\.memory_share"),),
    ),
    "ordinary": (
        "Ordinary records, exactly once, ÷ the best of Bytewax without recovery: own operator × {profile.ratio},"
        " tumbling windows × {windows.ratio}, interval join × {join.ratio}, word count × {words.ratio}",
        (
            Rows("records/s ÷ Bytewax's best without recovery, above 1 ours is faster", r"(.*)\.ratio"),
            Rows("records/s", r"(.*)\.(ours|ours_none|bytewax|bytewax_recovery|bare)_rps"),
            Rows("records/s ÷ (cores × bare)", r"(.*)\.efficiency"),
            Rows("records/s, causal ÷ none", r"(.*)\.over_none"),
            Rows("CPU s per million records", r"(.*)\.(ours|ours_none|bytewax|bare)_cpu_us"),
            Rows("peak MiB", r"(.*)\.(ours|bytewax|bare)_peak_mib"),
        ),
    ),
    "latency": (
        "Inverted index: with 50 / 500 / 1,000 ms between checkpoints a document is visible after {causal.50.p50_ms} /"
        " {causal.500.p50_ms} / {causal.1000.p50_ms} ms with causal, {epoch.50.p50_ms} / {epoch.500.p50_ms} /"
        " {epoch.1000.p50_ms} ms with epoch (medians)",
        tuple(
            Rows(f"ms, document in → all rows seen, {each:,} ms between checkpoints", rf"(.*)\.{each}\.(p\d+)_ms")
            for each in (50, 500, 1000)
        ),
    ),
    "latency_flink": (
        "Inverted index at {settings.documents_per_s} documents/s, exactly once: with 50 / 500 / 1,000 ms between"
        " checkpoints a document is visible after {causal.50.p50_ms} / {causal.500.p50_ms} / {causal.1000.p50_ms} ms,"
        " in PyFlink after {pyflink.50.p50_ms} / {pyflink.500.p50_ms} / {pyflink.1000.p50_ms} ms",
        (
            Rows("ms, document due → all rows seen, median", r"(causal|pyflink)\.(.*)\.p50_ms"),
            Rows("the same, 99th percentile", r"(causal|pyflink)\.(.*)\.p99_ms"),
        ),
    ),
    "latency_back": (
        "After kill -9 latency is back within 10 % in {back_ms} ms (median), × {over_replayed} of the replayed stretch;"
        " {output}",
        (
            Rows("ms; control is without a kill", "(back|control|replayed)_ms"),
            Rows("÷ the replayed stretch", "over_replayed"),
        ),
    ),
    "ui": (
        "The dashboard is painted {first_paint_ms} ms after causal ui (median, {settings.page}); with 200 tasks it"
        " takes {cores_at_200_tasks} cores, and watching a job at full speed {watching_over_job} of the job's CPU time",
        (
            Rows("ms from causal ui", "(first_paint|shown)_ms"),
            Rows("cores, two questions per second", "(cores_at_200_tasks)"),
            Rows("CPU time ÷ that of the job", "(watching_over_job)"),
        ),
    ),
    "spark": (
        "A line that Spark is sent is in the operator after {ours.p50_ms} ms (median), in Python with PySpark alone"
        " after {bare.p50_ms} ms",
        (
            Rows("ms from sent to Python", "(ours|bare)\\.(p\\d+)_ms"),
            Rows("s to the first line", "(ours|bare)\\.ready_s"),
        ),
    ),
    "change": (
        "While the job runs, no row comes for {running.wider.gap_ms} ms from 2 tasks to 4, {running.narrower.gap_ms} ms"
        " from 4 to 2, {running.upgrade.gap_ms} ms for other code; rolled back in {running.rollback.first_row_s} s;"
        " {output}",
        (
            Rows("ms, longest gap at a change", r"(running|stop)\.(wider|narrower|upgrade)\.gap_ms"),
            Rows(
                "ms, the same in an operator apart",
                r"(running|stop)\.(wider|narrower|upgrade)\.(apart_(?:gap|calm))_ms",
            ),
            Rows("s, rollback: command → first row", r"(running|stop)\.rollback\.first_row_s"),
            Rows("× real time, until withdrawn rows are there again", r"(running|stop)\.rollback\.again_over_real"),
        ),
    ),
    "quiet": (
        "An idle job takes {causal.0.cores} cores, one of 1,000 records/s {causal.1000.cores}; its rows are visible"
        " after {causal.1000.p50_ms} ms (median)",
        (
            Rows("cores, by records/s", r"(causal|none|bytewax)\.(\d+)\.cores"),
            Rows("ms, median, by records/s", r"(causal|none)\.(\d+)\.p50_ms"),
            Rows("ms, p99, by records/s", r"(causal|none)\.(\d+)\.p99_ms"),
        ),
    ),
}
"""The charts whose panels are the same for every result."""


def _total_failure(result: Result) -> Panels:
    def line(name: str) -> tuple[list[float], list[float]]:
        known = [(number, life[name]) for number, life in enumerate(result["lives"], 1) if life[name] is not None]
        return [float(number) for number, _ in known], [float(value) for _, value in known]

    times = {"a reader sees the first new row": line("first_row_ms"), "all tasks are live": line("live_ms")}
    return [
        Lines("number of the resume", "ms from the resume", times, joined=False),
        Lines("number of the resume", "elements", {"replayed": line("replayed_elements")}, joined=False),
    ]


def _state_sizes(result: Result) -> Panels:
    panels = {
        "ms, kill -9 → first new output": ("first_output_ms",),
        "ms, a checkpoint": ("checkpoint_ms",),
        "bytes of a checkpoint": ("checkpoint_bytes",),
        "records/s as it is filled": ("fill_rps",),
        "MiB of memory": ("task_mib", "standby_mib"),
    }
    sized = {name: each for name, each in result["figures"].items() if "." in name}
    places = dict.fromkeys(name.partition(".")[0] for name in sized)
    return [
        Lines(
            "MB of state", unit,
            {
                f"{place}{', standby' if name == 'standby_mib' else ''}": series(sized, place, name)
                for place in places
                for name in names
            },
        )
        for unit, names in panels.items()
    ]  # fmt: skip


def _peers(result: Result) -> Panels:
    workloads = dict.fromkeys(pair["workload"] for pair in result["pairs"])
    return [Rows(f"{each}: ours ÷ peer, above 1 ours is better", rf"{each}\.(.*)\.ratios\.(.*)") for each in workloads]


def _control(result: Result) -> Panels:
    lines = {
        "CPU of the supervisor, µs per task": {
            "start": "start_cpu_us_per_task", "one second": "steady_cpu_us_per_task_s",
            "a checkpoint": "checkpoint_cpu_us_per_task", "new supervisor": "restart_cpu_us_per_task",
        },
        "bytes of messages per task": {
            "start": "start_bytes_per_task", "one second": "steady_bytes_per_task_s",
            "a checkpoint": "checkpoint_bytes_per_task", "status.json": "status_bytes_per_task",
        },
        "one failure": {
            "messages": "failure_messages", "bytes": "failure_bytes", "step that promotes, µs": "failure_step_us",
        },
    }  # fmt: skip
    return [
        Lines("tasks of the job", unit, {name: series(result["figures"], "control", each) for name, each in of.items()})
        for unit, of in lines.items()
    ]


def _data(result: Result) -> Panels:
    shapes = {
        "depth": "hops from source to sink (2 tasks per layer)",
        "fan_in": "sources that a task reads",
        "width": "tasks per layer, all to all (4 hops)",
    }
    units = {
        "wire_per_frame": "determinant bytes per data frame",
        "failure_welcome_bytes": "WELCOME bytes of one failure",
    }
    return [
        Lines(
            shape, unit, {depth: series(result["figures"], kind, f"{depth}.{name}") for depth in ("f1", "f2", "full")}
        )
        for name, unit in units.items()
        for kind, shape in shapes.items()
    ]


OF_RESULT: Mapping[str, tuple[str, Callable[[Result], Panels], int]] = {
    "total_failure": (
        "All processes of a job killed at the same time, {settings.times} times: {output}; the first new row is seen"
        " {first_row_ms} ms after the resume",
        _total_failure,
        1,
    ),
    "state_sizes": (
        "Over all sizes of state the slowest failover takes {failover_spread} × the fastest (medians)",
        _state_sizes,
        3,
    ),
    "peers": ("Ours and each peer on the same work", _peers, 3),
    "scale-control": (
        "From 10 to 10,000 tasks: {control.10.steady_cpu_us_per_task_s} → {control.10000.steady_cpu_us_per_task_s} µs"
        " of the supervisor's CPU per task and second, {control.10.failure_messages} →"
        " {control.10000.failure_messages} messages per failure",
        _control,
        3,
    ),
    "scale-data": (
        "Determinant bytes per frame with full sharing: {depth.1.full.wire_per_frame} →"
        " {depth.8.full.wire_per_frame} at 8 hops, {fan_in.64.full.wire_per_frame} at 64 sources of a task,"
        " {width.16.full.wire_per_frame} at 16 tasks per layer",
        _data,
        3,
    ),
}
"""The charts whose panels depend on what a result has: (title, panels, columns)."""
WITH_CHART = frozenset((*CHARTS, *OF_RESULT, "scale")) - {"memory", "scale-control", "scale-data"}
"""The benchmarks that have a chart."""


def kind(result: Result) -> str:
    """Return which chart a result has: that of its benchmark, but that of memory is a run of `state` with few keys."""
    name = str(result["benchmark"])
    return "memory" if name == "state" and result["settings"]["keys"] < KEYS_OF_MEMORY else name


def charts_of(result: Result) -> dict[str, Chart]:
    """Return the charts of a result by name: one, but two of `scale`."""
    charts = {}
    for name in ("scale-control", "scale-data") if kind(result) == "scale" else (kind(result),):
        if name in CHARTS:
            (template, panels), columns = CHARTS[name], 1
        else:
            template, panels_of, columns = OF_RESULT[name]
            panels = panels_of(result)
        width = WIDTH_CHARACTERS if columns == 1 else COLUMN_CHARACTERS * columns
        charts[name] = Chart(title(template, result, width), panels, columns)
    return charts


def title(template: str, result: Result, width: int = WIDTH_CHARACTERS) -> str:
    """Return the sentence, and below it what was measured on which machine; the latter alone if a figure is absent."""
    machine = result["machine"]
    measured = f"{kind(result)} ({machine['processor']}, {machine['cores']} cores)"
    try:
        sentence = re.sub(r"\{(.+?)\}", lambda field: _value(result, field[1]), template)
    except LookupError:
        return measured
    return f"{textwrap.fill(sentence, width)}\n{measured}"


def _value(result: Result, field: str) -> str:
    """Return the median of a figure, `a / b` the ratio of two, `name:p99` another value, a setting, or `output`."""
    if field == "output":
        return exact(result["output"])
    if field.startswith("settings."):
        setting = result["settings"][field.removeprefix("settings.")]
        return setting if isinstance(setting, str) else f"{setting:,}"
    name, _, which = field.partition(":")
    over, _, under = name.partition(" / ")
    value = float(result["figures"][over][which or "median"])
    value /= result["figures"][under]["median"] if under else 1
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def exact(output: Mapping[str, int]) -> str:
    """Return what became of the rows."""
    wrong = {name: output[name] for name in ("lost", "doubled", "contradicted")}
    if not any(wrong.values()):
        return f"none of {output['rows']:,} rows lost, doubled or contradicted"
    return ", ".join(f"{count:,} {name}" for name, count in wrong.items()) + f" of {output['rows']:,} rows"
