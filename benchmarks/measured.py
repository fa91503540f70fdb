"""The common form of every benchmark's result: where, with what, how, and each figure with all of its runs."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

LIBRARIES = ("pyzmq", "msgpack", "lz4", "xxhash")


def processor() -> str:
    """The processor's name as the kernel tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / (1 << 30), 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Python and the libraries that the figures depend on."""
    told = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    return told | {name: version(name) for name in LIBRARIES}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def figure(runs: Sequence[float], digits: int = 3) -> dict[str, Any]:
    """All runs of one figure with median, min and max."""
    rounded = [round(value, digits) for value in runs]
    return {"runs": rounded, "median": round(median(runs), digits), "min": min(rounded), "max": max(rounded)}


def distribution(values: Sequence[float], digits: int = 1) -> dict[str, Any]:
    """The same with the upper percentiles, for many events of one kind."""
    told = figure(values, digits)
    told["p90"] = round(percentile(values, 0.9), digits)
    told["p99"] = round(percentile(values, 0.99), digits)
    return told


def result(
    name: str, command: str, settings: Mapping[str, Any], figures: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """The JSON object of `--json`; `more` is what only this benchmark has."""
    return {
        "benchmark": name,
        "command": command,
        "machine": machine(),
        "versions": versions(),
        "settings": dict(settings),
        "figures": dict(figures),
        **more,
    }


def write(path: Path, told: Mapping[str, Any]) -> None:
    """Write the result, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(told, indent=1) + "\n")
    os.replace(fresh, path)


def shown(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """One line per figure, for a person."""
    width = max(len(name) for name in figures)
    lines = []
    for name, told in figures.items():
        upper = "".join(f", {key} {told[key]:,}" for key in ("p90", "p99") if key in told)
        spread = f"{told['min']:,} to {told['max']:,}{upper}, {len(told['runs'])} runs"
        lines.append(f"  {name:<{width}}  {told['median']:>12,}  ({spread})")
    return "\n".join(lines)
