"""The few figures that pages in the repository show: `docs/figures.md`, the README, `docs/comparison.md`.

Everything here is read from the stored results; a number that stands on one of these pages is never typed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.measured import RESULTS, origin
from benchmarks.peers.programs.ordinary.user_code import WORKLOADS
from benchmarks.report import goals
from benchmarks.report.tables import grid

Result = Mapping[str, Any]
Row = Mapping[str, Any]

README_ROWS: Mapping[str, str] = {
    "kill -9 → first new output, ms, median": "`kill -9` → first new output, median, ms",
    "the same, p99": "the same, 99th percentile, ms",
    "the same with 1,000,000 keys, ms, median": "the same with 1,000,000 keys of state, median, ms",
    "kill -9 → latency back within 10 %, ms, median": "`kill -9` → latency back within 10 % of normal, median, ms",
    "its p99, causal, ms: the worst of 50, 500, 1,000 ms between checkpoints": "99th percentile of latency without a "
    "failure, 50 documents/s, ms",
    "causal f = 1 ÷ none, records/s": "records/s with recovery (sharing depth 1) ÷ without any guarantee",
    "causal f = 1 ÷ at-least-once with the same checkpoints, records/s": "the same ÷ at-least-once, which takes the "
    "same checkpoints and logs nothing",
    "the same in CPU time, which other work hardly changes": "CPU time with recovery ÷ without, five tasks in a row",
    "the same, on the wire": "determinants on the wire at load, bytes per record",
}
"""The goals whose figures are in the README, and what they are called where the rows before them are absent."""

GUARANTEES: Mapping[str, Sequence[str]] = {
    "causal": (
        "exactly once, also of what is nondeterministic",
        "its standby replays, the others continue",
        "immediately",
    ),
    "epoch": ("exactly once", "every task goes back to the last checkpoint", "with the checkpoint"),
    "at-least-once": (
        "every record; rows since the last checkpoint come again, perhaps others",
        "every task goes back to the last checkpoint",
        "immediately",
    ),
    "none": ("nothing", "the task continues with empty state, the others continue", "immediately"),
}
"""Guarantee → its promise, what one death does, and when a row is visible."""

PEER_COLUMNS: Mapping[str, tuple[str, str]] = {
    "keyed count, records/s": ("count", "rps"),
    "inverted index, documents/s": ("index", "docs_per_s"),
    "kill → first new row, ms": ("failover", "gap_ms"),
}


ORDINARY_COLUMNS: Mapping[str, str] = {
    "ours_rps": "ours, records/s",
    "ours_none_rps": "guarantee `none`",
    "bytewax_rps": "Bytewax without recovery",
    "bytewax_recovery_rps": "with recovery",
    "bare_rps": "bare, one core",
    "ratio": "ours ÷ Bytewax",
    "efficiency": "ours ÷ (cores × bare)",
    "ours_cpu_us": "CPU s per million, ours",
    "bytewax_cpu_us": "Bytewax",
    "ours_peak_mib": "peak MiB, ours",
    "bytewax_peak_mib": "Bytewax ",
}


PER_PAIR: Mapping[str, str] = {
    "records/s": "rps",
    "peak MiB": "peak_mib",
    "CPU µs per record": "cpu_us",
    "s until the first record": "start_s",
}
ORDINARY = "ordinary beside bytewax"
"""The table of the comparison that keeps its text as long as no result of `ordinary` is stored."""


def contents(results: Mapping[str, Result]) -> dict[str, str]:
    """Return every table of these pages by name; a table that is absent keeps its text on the page."""
    rows = {row["figure"]: row for row in goals.judged(results, {})}
    texts: dict[str, list[str]] = {}
    for goal in goals.GOALS:
        texts.setdefault(goal.section, []).append(goal.text)
    parts = {section: goals.table([rows[text] for text in each]) for section, each in texts.items()}
    if (RESULTS / "hosts.png").exists():
        parts["hosts"] += "\n\n![Several hosts: recoveries and costs](benchmarks/hosts.png)"
    if (RESULTS / "ui.png").exists():
        parts["dashboard"] += "\n\n![The dashboard: start and CPU time](benchmarks/ui.png)"
    parts["total failure"] = goals.table(total_failure(results["total_failure"]))
    parts["four guarantees"] = four_guarantees(results["guarantees"])
    parts["ordinary records"] = ordinary(results.get("ordinary"))
    if "ordinary" in results:
        parts[ORDINARY] = beside_bytewax(results["ordinary"])
    parts["guarantees"] = guarantees(results["guarantees"])
    parts["figures"] = readme(rows)
    parts["measured beside us"] = peers(results["peers"]["pairs"])
    return parts


def ordinary(result: Result | None) -> str:
    """Return a row per workload of ordinary records: ours, Bytewax's best and the bare user code."""
    if result is None:
        return "No result is stored; `python -m benchmarks ordinary --json docs/benchmarks/ordinary.json` measures it."
    figures = result["figures"]
    rows = []
    for name, workload in result["workloads"].items():
        cells = [figures.get(f"{name}.{each}") for each in ORDINARY_COLUMNS]
        rows.append([f"{name} ({workload['records']:,})", *("" if each is None else _spread(each) for each in cells)])
    table = grid(["workload (records)", *ORDINARY_COLUMNS.values()], rows)
    return f"{table}\n\n* `{result['command']}`: {origin(result)}"


def beside_bytewax(result: Result) -> str:
    """Return a row per workload: speed, memory and start of ours and of Bytewax without recovery, ours ÷ Bytewax."""
    figures = result["figures"]
    rows = []
    for name in result["workloads"]:
        pairs = [[figures.get(f"{name}.{of}_{what}") for of in ("ours", "bytewax")] for what in PER_PAIR.values()]
        cells = [" / ".join("–" if each is None else goals.shown(each["median"]) for each in pair) for pair in pairs]
        ratio = figures.get(f"{name}.ratio")
        behind = ratio is not None and ratio["median"] < 1
        shown = "" if ratio is None else _spread(ratio)
        rows.append([WORKLOADS[name].title, cells[0], f"**{shown}**" if behind else shown, *cells[1:]])
    speed, *others = (f"{what}, ours / Bytewax" for what in PER_PAIR)
    table = grid(["", speed, "ours ÷ Bytewax", *others], rows)
    return f"{table}\n\n* `{result['command']}`: {origin(result)}"


def readme(rows: Mapping[str, Row]) -> str:
    """Return the small table of the README."""
    cells = []
    for text, label in README_ROWS.items():
        row = rows[text]
        cells.append([label, goals.spread(row), row["goal"] if row["met"] else f"{row['goal']}: **missed**"])
    return grid(["figure", "measured [min–max]", "goal"], cells)


def total_failure(result: Result) -> list[Row]:
    """Return the rows of a job all of whose processes are killed in one go, in the form that goals have."""
    output, first_ms = result["output"], result["figures"]["first_row_ms"]
    wrong = sum(output[name] for name in ("lost", "doubled", "contradicted", "visible_contradicted"))
    command = {"command": result["command"], "origin": origin(result)}
    times = result["settings"]["times"]
    rows_text = f"rows lost, doubled, contradicted or changed after they were visible, of {output['rows']:,}"
    return [
        {
            "figure": rows_text, "goal": "0", **command, "met": wrong == 0,
            "value": wrong, "low": wrong, "high": wrong, "runs": times,
        },
        {
            "figure": "`--resume` → first new row, ms, median", "goal": "none set", **command, "met": None,
            "value": first_ms["median"], "low": first_ms["min"], "high": first_ms["max"],
            "runs": len(first_ms["runs"]),
        },
    ]  # fmt: skip


def guarantees(result: Result) -> str:
    """Return what each guarantee promises, next to its measured latency."""
    figures = result["figures"]
    rows = []
    for name, promise in GUARANTEES.items():
        latency = " / ".join(goals.shown(figures[f"{name}.{which}_ms"]["median"]) for which in ("p50", "p99"))
        rows.append([f"`{name}`", *promise, latency, goals.shown(figures[f"{name}.gap_ms"]["median"])])
    heads = ["`--guarantee`", "promises", "after one death", "a row is visible", "p50 / p99, ms", "gap at a kill, ms"]
    return grid(heads, rows, text_columns=4)


def four_guarantees(result: Result) -> str:
    """Return what was measured under each guarantee."""
    figures = result["figures"]
    columns = {
        "p50_ms": "visible after, median, ms", "p99_ms": "p99, ms", "cpu_over_none": "CPU ÷ `none`",
        "calm_gap_ms": "longest gap without a kill, ms", "gap_ms": "at a kill, ms", "lost": "rows lost",
        "doubled": "doubled", "contradicted": "contradicted",
    }  # fmt: skip
    rows = [
        [f"`{name}`", *(_spread(figures[f"{name}.{each}"]) for each in columns)] for name in GUARANTEES
    ]  # fmt: skip
    return f"{grid(['', *columns.values()], rows)}\n\n* `{result['command']}`: {origin(result)}"


def peers(pairs: Sequence[Mapping[str, Any]]) -> str:
    """Return a row per peer: its median, ours in the same rounds, and how many times better ours is."""
    by_place = {(pair["peer"], pair["workload"]): pair for pair in pairs}
    names = dict.fromkeys(pair["peer"] for pair in pairs)
    rows = []
    for name in names:
        cells = [_beside(by_place.get((name, workload)), figure) for workload, figure in PEER_COLUMNS.values()]
        failover = by_place[name, "failover"]
        wrong = [f"{_spread(failover['theirs'][each])} {each}" for each in ("doubled", "contradicted")
                 if failover["theirs"][each]["max"]]  # fmt: skip
        rows.append([f"{name} {failover['version']}", *cells, ", ".join(wrong) or "none"])
    return grid(["", *PEER_COLUMNS, "rows of theirs that were wrong after the kill"], rows)


def _beside(pair: Mapping[str, Any] | None, name: str) -> str:
    if pair is None or name not in pair["ratios"]:
        return "not measured"
    theirs, ours, ratio = (goals.shown(pair[of][name]["median"]) for of in ("theirs", "ours", "ratios"))
    return f"{theirs} (ours {ours}), ×{ratio}"


def _spread(figure: Mapping[str, Any]) -> str:
    return goals.spread({"value": figure["median"], "low": figure["min"], "high": figure["max"]})
