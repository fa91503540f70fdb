"""Charts whose panels depend on what a result has: axes, batch sizes, intervals, peers, and a job that grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.charts.style import Chart, Figures, Lines, Rows
from benchmarks.costs.budget_parts import PARTS, TASKS
from benchmarks.harness.measured import series
from benchmarks.latency.latency import GUARANTEES, INTERVALS_MS, KILLED, RATE, SHARES
from benchmarks.peers.peers_table import COLUMNS
from benchmarks.scale.scale import DEPTHS
from benchmarks.throughput.matrix_points import AXES

Result = Mapping[str, Any]
Charts = Mapping[str, Chart]
"""Charts by the part of the result that a chart shows; "" where there is one for all of it."""

MODES = {"free": "undisturbed", "failing": "killed every 2 s"}
PUBLISHED_MS: Mapping[str, tuple[float, ...]] = {
    "FlameStream, published median": (12, 11, 11),
    "Flink, published median": (165, 332, 591),
}
"""Medians of FlameStream's Figures 10 to 12 at these intervals, on ten machines of one core, Wikipedia articles."""
PEER_GOALS = {"count.rps.bytewax": 7.0, "index.docs_per_s.bytewax": 5.0}
CONTROL = {
    "CPU of the supervisor, µs per task": {
        "start": "start_cpu_us_per_task",
        "one second": "steady_cpu_us_per_task_s",
        "a checkpoint": "checkpoint_cpu_us_per_task",
        "new supervisor": "restart_cpu_us_per_task",
    },
    "bytes of messages per task": {
        "start": "start_bytes_per_task",
        "one second": "steady_bytes_per_task_s",
        "a checkpoint": "checkpoint_bytes_per_task",
        "status.json": "status_bytes_per_task",
    },
    "one failure": {
        "messages": "failure_messages",
        "bytes": "failure_bytes",
        "step that promotes, µs": "failure_step_us",
    },
}
DATA = {
    "depth": "hops from source to sink (2 tasks per layer)",
    "fan_in": "sources that a task reads",
    "width": "tasks per layer, all to all (4 hops)",
}
WIRE = {"wire_per_frame": "determinant bytes per data frame", "failure_welcome_bytes": "WELCOME bytes of one failure"}
LIVES = {"first_row_ms": "a reader sees the first new row", "live_ms": "the supervisor says that all tasks are live"}


def summed(figures: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Several figures as one: the sums of their medians, of their least and of their most."""
    known = list(figures)
    return {"runs": [], **{name: sum(each[name] for each in known) for name in ("median", "min", "max")}}


def _matrix(result: Result) -> Charts:
    panels = []
    for name, axis in AXES.items():
        for mode, unit, figure in (
            ("free", "records/s ÷ base", "ratio"),
            ("failing", "ms to first output", "first_output_ms"),
        ):
            rows = {f"{name}/{value}/{mode}/{figure}": f"{axis.unit}: {value}" for value in axis.values}
            panels.append(Rows(f"{unit}, {MODES[mode]}", rows))
    return {"": Chart(panels, result["figures"], columns=2)}


def _budget(result: Result) -> Charts:
    figures: dict[str, Any] = {}
    panels = []
    for size in result["settings"]["sizes"]:
        rows = {}
        for part in PARTS:
            for what, label in (("parts", part), ("bare", f"{part}, bare job")):
                names = [f"{size}/{what}/{task}/{part}" for task in TASKS]
                if known := [result["figures"][name] for name in names if name in result["figures"]]:
                    rows[f"{size}/{what}/{part}"] = label
                    figures[f"{size}/{what}/{part}"] = summed(known)
        panels.append(Rows(f"CPU µs in all tasks, batches of {size:,}", rows))
    return {"": Chart(panels, figures, columns=len(panels))}


def _latency(result: Result) -> Charts:
    figures, panels = dict(result["figures"]), list[Rows | Lines]()
    for place, interval_ms in enumerate(INTERVALS_MS):
        rows = {
            f"{name}.{interval_ms}.{share}_ms": f"{name}, {share}"
            for name in GUARANTEES
            if f"{name}.{interval_ms}.p50_ms" in figures
            for share in SHARES
        }
        for label, medians in PUBLISHED_MS.items():
            rows[f"{label}.{interval_ms}"] = label
            figures[f"{label}.{interval_ms}"] = summed([dict.fromkeys(("median", "min", "max"), medians[place])])
        goal = {f"causal.{interval_ms}.p99_ms": 50.0}
        unit = f"ms, document in → all rows seen, {interval_ms:,} ms between checkpoints"
        panels.append(Rows(unit, rows, at_most=goal, together=len(SHARES), several=True))
    for name, run in result.get("series", {}).items():
        points = [(number / RATE, took) for number, took in enumerate(run["latency_ms"]) if took is not None]
        wrong = [f"{run[what]:,} {what}" for what in ("incomplete", "contradicted") if run.get(what)]
        label = f"{name}: {', '.join(wrong) or 'every row exactly once'}"
        axis = f"s, when the document was due; {KILLED} is killed at the dotted lines"
        lines = {label: ([at for at, _ in points], [took for _, took in points])}
        panels.append(Lines(axis, "ms", lines, joined=False, upright=run["kills_s"], several="y"))
    return {"": Chart(panels, figures)}


def lives_of(result: Result) -> Sequence[Mapping[str, Any]]:
    """One by one; of a result without them, what its figures have in the order in which they came."""
    if "lives" in result:
        return list(result["lives"])
    runs = [result["figures"][name]["runs"] for name in LIVES]
    return [{**dict(zip(LIVES, each, strict=True)), "replayed_elements": None} for each in zip(*runs, strict=True)]


def points(lives: Sequence[Mapping[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """(numbers of the resumes, values) of the lives that have it, from 1."""
    known = [(number, life[name]) for number, life in enumerate(lives, 1) if life[name] is not None]
    return [float(number) for number, _ in known], [float(value) for _, value in known]


def _total_failure(result: Result) -> Charts:
    lives = lives_of(result)
    times = {label: points(lives, name) for name, label in LIVES.items()}
    panels = [Lines("number of the resume", "ms from the resume", times, joined=False)]
    if (replayed := points(lives, "replayed_elements"))[0]:
        panels.append(Lines("number of the resume", "elements", {"replayed": replayed}, joined=False))
    return {"": Chart(panels)}


def _peers(result: Result) -> Charts:
    figures: dict[str, Any] = {}
    panels = []
    for workload, columns in COLUMNS.items():
        rows = {}
        for name, head in columns:
            for pair in result["pairs"]:
                if pair["workload"] == workload and name in pair.get("ratios", {}):
                    key = f"{workload}.{name}.{pair['peer']}"
                    rows[key], figures[key] = f"{head}: {pair['peer']}", pair["ratios"][name]
        panels.append(Rows(f"{workload}: ours ÷ peer, above 1 ours is better", rows, at_least=PEER_GOALS, several=True))
    return {"": Chart(panels, figures, columns=len(panels))}


def _scale(result: Result) -> Charts:
    figures: Figures = result["figures"]
    control = [
        Lines(
            "tasks of the job",
            label,
            {line: series(figures, "control", name) for line, name in lines.items()},
            several="xy",
        )
        for label, lines in CONTROL.items()
    ]
    depths = {depth: f"{depth} sharing" if depth == "full" else depth.replace("f", "f = ") for depth in DEPTHS}
    data = [
        Lines(shape, label, {line: series(figures, kind, f"{depth}.{name}") for depth, line in depths.items()})
        for name, label in WIRE.items()
        for kind, shape in DATA.items()
    ]
    return {"control": Chart(control, columns=3), "data": Chart(data, columns=3)}


LAYOUTS: Mapping[str, Callable[[Result], Charts]] = {
    "matrix": _matrix,
    "budget": _budget,
    "latency": _latency,
    "total_failure": _total_failure,
    "peers": _peers,
    "scale": _scale,
}
"""Layouts by benchmark; all others have the rows of `panels`."""
