"""The raw tables of all results: made from `docs/benchmarks/**/*.json` where the site is built, and kept nowhere.

A page asks for a table with a line `<!-- table: NAME -->`, and `docs/hooks.py` puts it there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.measured import RESULTS, origin, origin_of
from benchmarks.peers import peers_table
from benchmarks.report import tables

Result = Mapping[str, Any]

PLACE = re.compile(r"^<!-- table: (\S+) -->$", re.MULTILINE)
"""The line with which a page asks for a table."""
NOT_STORED = "No result is stored; the command above measures it."


def stored() -> dict[str, dict[str, Any]]:
    """Return what docs/benchmarks holds, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.rglob("*.json"))}


def where(result: Result) -> str:
    """Return the command, the machine and the versions of a result."""
    machine, versions = result["machine"], result["versions"]
    libraries = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "python")
    commands = dict.fromkeys(f"`{each['command']}`" for each in result.get("pairs", [result]))
    at = dict.fromkeys(origin(each if origin_of(each) else result) for each in result.get("pairs", [result]))
    return (
        f"{', '.join(commands)}: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
        f" {machine['system']}; Python {versions['python']}, {libraries};"
        f" {', '.join(at)}."
    )


def table(result: Result) -> str:
    """Return command, machine and all figures of one result."""
    if "pairs" in result:
        return f"{where(result)}\n\n{peers_table.tables(result['pairs'])}"
    return f"{where(result)}\n\n{_figures(result)}"


def _figures(result: Result) -> str:
    """Return a row per figure."""
    figures = result["figures"]
    wide = any("p99" in each for each in figures.values())
    heads = {name: name for name in (["median", "p90", "p99", "min", "max"] if wide else ["median", "min", "max"])}
    if any("chance" in each for each in figures.values()):
        heads |= {"low": "95 % from", "high": "to", "chance": "chance"}
    rows = [
        [name, *(f"{each[column]:,}" if column in each else "" for column in heads), str(len(each["runs"]))]
        for name, each in figures.items()
    ]
    text = tables.grid(["figure", *heads.values(), "runs"], rows)
    if "output" in result:
        text += "\n\nOutput: " + ", ".join(f"{name} {count:,}" for name, count in result["output"].items()) + "."
    return text


def shown(name: str, result: Result) -> str:
    """Return the table of a result, with its chart above it if there is one."""
    chart = RESULTS / f"{name}.png"
    picture = f"![{name}: what was measured, as a chart]({RESULTS.name}/{chart.name})\n\n" if chart.exists() else ""
    return f"{picture}{table(result)}"


def contents(results: Mapping[str, Result]) -> dict[str, str]:
    """Return every table by the name that pages use; those of `scale` have a name each."""
    parts = {name: shown(name, each) for name, each in results.items() if name != "scale"}
    return parts | (tables.scale(results["scale"]) if "scale" in results else {})


def filled(page: str, parts: Mapping[str, str]) -> str:
    """Return the page with every table that it asks for."""
    return PLACE.sub(lambda place: parts.get(place[1], NOT_STORED), page)
