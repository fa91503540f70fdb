"""`python -m benchmarks.page`: writes the tables of the pages from `docs/benchmarks/*.json`.

    python -m benchmarks.page --take FILE    first put the results of `benchmarks all` into docs/benchmarks

The text around the tables is the page's own; what stands between the marks is made from the files and never typed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import budget_table, goals, matrix_table
from benchmarks.measured import write
from benchmarks.peers import table as peers
from benchmarks.peers.venvs import PEERS

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
PERFORMANCE = DOCS / "performance.md"
RESULTS = DOCS / "benchmarks"
ELSEWHERE = {"budget": PERFORMANCE, "sinks": DOCS / "sinks.md"}
"""Results whose table is on another page."""
GOALS = "goals"

Results = dict[str, dict[str, Any]]


def marks(name: str) -> tuple[str, str]:
    """The lines between which a benchmark's table stands."""
    return f"<!-- {name}: made by python -m benchmarks.page -->", f"<!-- end of {name} -->"


def table(told: Mapping[str, Any]) -> str:
    """Command, machine and all figures of one result."""
    machine, versions = told["machine"], told["versions"]
    libraries = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "python")
    commands = dict.fromkeys(f"`{each['command']}`" for each in told.get("pairs", [told]))
    where = (
        f"{', '.join(commands)}: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
        f" {machine['system']}; Python {versions['python']}, {libraries}."
    )
    if "pairs" in told:
        return f"{where}\n\n{peers.tables(told['pairs'])}"
    if told["benchmark"] == "matrix":
        return f"{where}\n\n{matrix_table.tables(told)}"
    if told["benchmark"] == "budget":
        return f"{where}\n\n{budget_table.tables(told)}"
    return f"{where}\n\n{_figures(told)}"


def _figures(told: Mapping[str, Any]) -> str:
    """A row per figure."""
    wide = any("p99" in each for each in told["figures"].values())
    names = ["median", "p90", "p99", "min", "max"] if wide else ["median", "min", "max"]
    heads = list(names)
    if any("chance" in each for each in told["figures"].values()):
        names += ["low", "high", "chance"]
        heads += ["95 % from", "to", "chance"]
    lines = [f"| figure | {' | '.join(heads)} | runs |", f"|---|{'---:|' * (len(names) + 1)}"]
    for name, each in told["figures"].items():
        cells = [f"{each[column]:,}" if column in each else "" for column in names]
        lines.append(f"| {name} | {' | '.join(cells)} | {len(each['runs'])} |")
    if "output" in told:
        lines += ["", "Output: " + ", ".join(f"{name} {count:,}" for name, count in told["output"].items()) + "."]
    return "\n".join(lines)


def shown(name: str, told: Mapping[str, Any]) -> str:
    """The table of a result, its chart above it if there is one."""
    chart = RESULTS / f"{name}.png"
    picture = f"![{name}: what was measured, as a chart]({RESULTS.name}/{chart.name})\n\n" if chart.exists() else ""
    return f"{picture}{table(told)}"


def goals_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Every goal beside what the results say of it."""
    return goals.table(goals.judged(results, {}))


def filled(page: str, name: str, content: str) -> str:
    """The page with that content between the marks of that name.

    Raises:
        ValueError: the page lacks the marks.
    """
    begin, end = marks(name)
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no marks for {name}; put '{begin}' and '{end}' where the table belongs")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def results() -> Results:
    """What docs/benchmarks holds, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def taken(told: Mapping[str, Any], earlier: Mapping[str, Mapping[str, Any]]) -> Results:
    """The results of `benchmarks all` by name; of peers, what is measured now and pairs of before that are not.

    Raises:
        ValueError: it is no such file, a quick one, or the pairs of before were measured on another machine.
    """
    if told.get("benchmark") != "all":
        raise ValueError("--take wants what `python -m benchmarks all --json FILE` wrote")
    if told["settings"]["quick"]:
        raise ValueError("--take wants a whole measurement; what --quick measured judges nothing")
    found = {name: dict(each) for name, each in told["results"].items()}
    if "peers" in found and "peers" in earlier:
        fresh, before = found["peers"], earlier["peers"]
        if fresh["machine"] != before["machine"]:
            raise ValueError("docs/benchmarks/peers.json was measured on another machine; measure all peers again")
        measured = {(pair["workload"], pair["peer"]) for pair in fresh["pairs"]}
        kept = [pair for pair in before["pairs"] if (pair["workload"], pair["peer"]) not in measured]
        figures = {name: each for name, each in before["figures"].items() if _pair(name) not in measured}
        fresh["pairs"] = sorted([*fresh["pairs"], *kept], key=lambda pair: list(PEERS).index(pair["peer"]))
        fresh["figures"] = {**fresh["figures"], **figures}
    return found


def _pair(name: str) -> tuple[str, str]:
    workload, peer, *_ = name.split(".")
    return workload, peer


def main(arguments: Sequence[str] = ()) -> int:
    """Fill in every result that is there; exit status 2 for bad usage."""
    if arguments:
        if len(arguments) != 2 or arguments[0] != "--take":
            print("page: give nothing, or --take FILE", file=sys.stderr)
            return 2
        try:
            for name, told in taken(json.loads(Path(arguments[1]).read_text()), results()).items():
                write(RESULTS / f"{name}.json", told)
        except (OSError, ValueError) as problem:
            print(f"page: {problem}", file=sys.stderr)
            return 2
    found = results()
    pages = {path: path.read_text() for path in (PAGE, *ELSEWHERE.values())}
    for name, told in found.items():
        path = ELSEWHERE.get(name, PAGE)
        pages[path] = filled(pages[path], name, shown(name, told))
    pages[PAGE] = filled(pages[PAGE], GOALS, goals_table(found))
    for path, text in pages.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
