"""The common form of every benchmark's result: where, with what, how, and each figure with all of its runs."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness.runs import RunFailed

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
"""The results that the pages show, one file each."""
PHASES = ("detected_ms", "promoted_ms", "collected_ms", "first_output_ms", "live_ms")
"""Phases of a recovery, counted from the kill."""
LIBRARIES = ("pyzmq", "msgpack", "ormsgpack", "lz4", "xxhash")


def processor() -> str:
    """Return the processor's name as the kernel reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions(*more: str, extra: str = "") -> dict[str, str]:
    """Python and the libraries that the figures depend on.

    Args:
        more: libraries of an extra, beside those that every benchmark has.

    Raises:
        RunFailed: one of them is not installed.
    """
    missing = [name for name in more if find_spec(name) is None]
    if missing:
        raise RunFailed(f"{', '.join(missing)} is not installed; run `pip install 'causal-streams[{extra}]'`")
    known = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    return known | {name: version(name) for name in (*LIBRARIES, *more)}


def measured_now() -> dict[str, str]:
    """Return the date (UTC) and, in a checkout, the commit of the tree, `-dirty` if files were changed."""
    date = time.strftime("%Y-%m-%d", time.gmtime())
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=10"]
    try:
        described = subprocess.run(describe, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {"date": date}
    return {"date": date, "tree": described.stdout.strip()}


def origin_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result or a part of it says of when and where it was measured; nothing if it does not."""
    return {name: result[name] for name in ("measured", "stored") if name in result}


def origin(result: Mapping[str, Any]) -> str:
    """Return when and on which tree a result was measured; of one without that, when and with what it was stored."""
    if "measured" in result:
        measured = result["measured"]
        tree = f" on tree {measured['tree']}" if "tree" in measured else ""
        return f"measured on {measured['date']}{tree}"
    if "stored" in result:
        return f"stored on {result['stored']['date']} with commit {result['stored']['commit']}"
    return "neither date nor tree are known"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def figure(runs: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """Return all runs of one figure with median, min and max."""
    rounded = [round(value, digits) for value in runs]
    return {"runs": rounded, "median": round(median(runs), digits), "min": min(rounded), "max": max(rounded)}


def distribution(values: Sequence[float], digits: int = 1) -> dict[str, Any]:
    """Return the same with the upper percentiles, for many events of one kind."""
    summary = figure(values, digits)
    summary["p90"] = round(percentile(values, 0.9), digits)
    summary["p99"] = round(percentile(values, 0.99), digits)
    return summary


def longest_gap_ms(moments_ns: Sequence[int], from_ns: int, until_ns: int, none_ms: float | None = None) -> float:
    """Return the longest time between two moments, of those that end in a stretch of time.

    Args:
        none_ms: what it is if no moment lies in that stretch.

    Raises:
        RunFailed: none does, and `none_ms` is not given.
    """
    gaps = [(later - earlier) / 1e6 for earlier, later in pairwise(moments_ns) if from_ns <= later < until_ns]
    if not gaps and none_ms is None:
        raise RunFailed("no row was seen for a whole stretch; give it more seconds")
    return max(gaps, default=none_ms or 0.0)


def series(figures: Mapping[str, Mapping[str, Any]], kind: str, name: str) -> tuple[list[int], list[float]]:
    """Return the medians of the figures `kind.NUMBER.name`, by number."""
    medians = {}
    for key, each in figures.items():
        first, number, rest = key.split(".", 2)
        if (first, rest) == (kind, name):
            medians[int(number)] = float(each["median"])
    numbers = sorted(medians)
    return numbers, [medians[number] for number in numbers]


def result(
    name: str, command: str, settings: Mapping[str, Any], figures: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """Return the JSON object of `--json`; `more` is what only this benchmark has."""
    return {
        "benchmark": name,
        "command": command,
        "measured": measured_now(),
        "machine": machine(),
        "versions": versions(),
        "settings": dict(settings),
        "figures": dict(figures),
        **more,
    }


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write the result, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(fresh, path)


def shown(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one line per figure, for a person."""
    width = max((len(name) for name in figures), default=0)
    lines = []
    for name, each in figures.items():
        upper = "".join(f", {key} {each[key]:,}" for key in ("p90", "p99") if key in each)
        spread = f"{each['min']:,} to {each['max']:,}{upper}, {len(each['runs'])} runs"
        lines.append(f"  {name:<{width}}  {each['median']:>12,}  ({spread})")
    return "\n".join(lines)
