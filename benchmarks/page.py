"""`python -m benchmarks.page`: writes the tables of the pages from `docs/benchmarks/**/*.json`.

    python -m benchmarks.page --take FILE    first put the results of `benchmarks all` into docs/benchmarks

The text around the tables is the page's own; what stands between the marks is made from the files and never typed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.measured import RESULTS, write
from benchmarks.peers import peers_table
from benchmarks.peers.venvs import PEERS
from benchmarks.report import goals, tables

DOCS = RESULTS.parent
PAGE, SCALE = DOCS / "benchmarks.md", DOCS / "scale.md"
ELSEWHERE = {"budget": DOCS / "performance.md", "sinks": DOCS / "sinks.md"}
"""Results whose table is on another page."""
PAGES = (PAGE, SCALE, *ELSEWHERE.values())

Result = Mapping[str, Any]


def marks(name: str) -> tuple[str, str]:
    """The lines between which a table stands."""
    return f"<!-- {name}: made by python -m benchmarks.page -->", f"<!-- end of {name} -->"


def table(result: Result) -> str:
    """Command, machine and all figures of one result."""
    machine, versions = result["machine"], result["versions"]
    libraries = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "python")
    commands = dict.fromkeys(f"`{each['command']}`" for each in result.get("pairs", [result]))
    where = (
        f"{', '.join(commands)}: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
        f" {machine['system']}; Python {versions['python']}, {libraries}."
    )
    if "pairs" in result:
        return f"{where}\n\n{peers_table.tables(result['pairs'])}"
    write_table = {"matrix": tables.matrix, "budget": tables.budget}.get(result["benchmark"], _figures)
    return f"{where}\n\n{write_table(result)}"


def _figures(result: Result) -> str:
    """A row per figure."""
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
    """The table of a result, its chart above it if there is one."""
    chart = RESULTS / f"{name}.png"
    picture = f"![{name}: what was measured, as a chart]({RESULTS.name}/{chart.name})\n\n" if chart.exists() else ""
    return f"{picture}{table(result)}"


def contents(results: Mapping[str, Result]) -> list[tuple[Path, str, str]]:
    """(page, name, text) of everything that is written into pages."""
    parts = [(ELSEWHERE.get(name, PAGE), name, shown(name, each)) for name, each in results.items() if name != "scale"]
    parts.append((PAGE, "goals", goals.table(goals.judged(results, {}))))
    if "scale" in results:
        parts += [(SCALE, name, text) for name, text in tables.scale(results["scale"]).items()]
    return parts


def filled(page: str, name: str, content: str) -> str:
    """The page with that content between the marks of that name.

    Raises:
        ValueError: the page lacks the marks.
    """
    begin, end = marks(name)
    before, opened, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise ValueError(f"the page has no marks for {name}; put '{begin}' and '{end}' where the table belongs")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def stored() -> dict[str, dict[str, Any]]:
    """Returns what docs/benchmarks holds, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.rglob("*.json"))}


def taken(everything: Result, earlier: Mapping[str, Result]) -> dict[str, dict[str, Any]]:
    """The results of `benchmarks all` by name; of peers, what is measured now and pairs of before that are not.

    Raises:
        ValueError: it is no such file, a quick one, or the pairs of before were measured on another machine.
    """
    if everything.get("benchmark") != "all":
        raise ValueError("--take wants what `python -m benchmarks all --json FILE` wrote")
    if everything["settings"]["quick"]:
        raise ValueError("--take wants a whole measurement; what --quick measured judges nothing")
    results = {name: dict(each) for name, each in everything["results"].items()}
    if "peers" in results and "peers" in earlier:
        fresh, before = results["peers"], earlier["peers"]
        if fresh["machine"] != before["machine"]:
            raise ValueError("docs/benchmarks/peers.json was measured on another machine; measure all peers again")
        measured = {(pair["workload"], pair["peer"]) for pair in fresh["pairs"]}
        kept = [pair for pair in before["pairs"] if (pair["workload"], pair["peer"]) not in measured]
        figures = {name: each for name, each in before["figures"].items() if tuple(name.split(".")[:2]) not in measured}
        fresh["pairs"] = sorted([*fresh["pairs"], *kept], key=lambda pair: list(PEERS).index(pair["peer"]))
        fresh["figures"] = {**fresh["figures"], **figures}
    return results


def main(arguments: Sequence[str] = ()) -> int:
    """Fill in every result that is there; exit status 2 for bad usage."""
    if arguments:
        if len(arguments) != 2 or arguments[0] != "--take":
            print("page: give nothing, or --take FILE", file=sys.stderr)
            return 2
        try:
            for name, result in taken(json.loads(Path(arguments[1]).read_text()), stored()).items():
                write(RESULTS / f"{name}.json", result)
        except (OSError, ValueError) as problem:
            print(f"page: {problem}", file=sys.stderr)
            return 2
    pages = {path: path.read_text() for path in PAGES}
    for path, name, text in contents(stored()):
        pages[path] = filled(pages[path], name, text)
    for path, text in pages.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
