"""`python -m benchmarks.page`: writes the small tables of pages from `docs/benchmarks/**/*.json`.

    python -m benchmarks.page --take FILE    first put the results of `benchmarks all`, or of one, into docs/benchmarks
    python -m benchmarks.page --show NAME    print the raw table of one result instead

The text around the tables is the page's own; what stands between the marks is made from the files and never typed.
Raw tables are on the site only, which asks `benchmarks/report/appendix.py` for them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.measured import RESULTS, origin_of, write
from benchmarks.peers.venvs import PEERS
from benchmarks.report import appendix, main_figures

DOCS = RESULTS.parent
README, FIGURES, COMPARISON = DOCS.parent / "README.md", DOCS / "figures.md", DOCS / "comparison.md"
PLACES = {
    "figures": README,
    "guarantees": README,
    "measured beside us": COMPARISON,
    main_figures.ORDINARY: COMPARISON,
}
"""Tables that are on another page than that of the figures."""
PAGES = (README, FIGURES, COMPARISON)

Result = Mapping[str, Any]


def marks(name: str) -> tuple[str, str]:
    """Return the lines between which a table stands."""
    return f"<!-- {name}: made by python -m benchmarks.page -->", f"<!-- end of {name} -->"


def contents(results: Mapping[str, Result]) -> list[tuple[Path, str, str]]:
    """(page, name, text) of everything that is written into pages."""
    return [(PLACES.get(name, FIGURES), name, text) for name, text in main_figures.contents(results).items()]


def filled(page: str, name: str, content: str) -> str:
    """Return the page with that content between the marks of that name.

    Raises:
        ValueError: the page lacks the marks.
    """
    begin, end = marks(name)
    before, opened, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise ValueError(f"the page has no marks for {name}; put '{begin}' and '{end}' where the table belongs")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def taken(measured: Result, earlier: Mapping[str, Result]) -> dict[str, dict[str, Any]]:
    """Return the results of `benchmarks all` by name, or the one of another benchmark.

    Of peers, earlier pairs that were not measured again are kept.

    Raises:
        ValueError: it is no result, a quick one, or the earlier pairs were measured on another machine.
    """
    if "benchmark" not in measured:
        raise ValueError("--take wants what `python -m benchmarks NAME --json FILE` wrote")
    if measured["settings"].get("quick"):
        raise ValueError("--take wants a whole measurement; what --quick measured judges nothing")
    results = {name: dict(each) for name, each in measured.get("results", {measured["benchmark"]: measured}).items()}
    if "peers" in results and "peers" in earlier:
        fresh, before = results["peers"], earlier["peers"]
        if fresh["machine"] != before["machine"]:
            raise ValueError("docs/benchmarks/peers.json was measured on another machine; measure all peers again")
        again = {(pair["workload"], pair["peer"]) for pair in fresh["pairs"]}
        kept = [
            {"command": before["command"], **origin_of(before), **pair}
            for pair in before["pairs"]
            if (pair["workload"], pair["peer"]) not in again
        ]
        figures = {name: each for name, each in before["figures"].items() if tuple(name.split(".")[:2]) not in again}
        fresh["pairs"] = sorted([*fresh["pairs"], *kept], key=lambda pair: list(PEERS).index(pair["peer"]))
        fresh["figures"] = {**fresh["figures"], **figures}
    return results


def main(arguments: Sequence[str] = ()) -> int:
    """Fill in every result that is there; exit status 2 for bad usage."""
    try:
        match list(arguments):
            case []:
                pass
            case ["--take", name]:
                for kind, result in taken(json.loads(Path(name).read_text()), appendix.stored()).items():
                    write(RESULTS / f"{kind}.json", result)
            case ["--show", name]:
                print(shown(name))
                return 0
            case _:
                raise ValueError("give nothing, --take FILE or --show NAME")
    except (OSError, ValueError) as problem:
        print(f"page: {problem}", file=sys.stderr)
        return 2
    pages = {path: path.read_text() for path in PAGES}
    for path, name, text in contents(appendix.stored()):
        pages[path] = filled(pages[path], name, text)
    for path, text in pages.items():
        path.write_text(text)
    return 0


def shown(name: str) -> str:
    """Return the raw table of a stored result.

    Raises:
        ValueError: nothing is stored under that name.
    """
    parts = appendix.contents(appendix.stored())
    if name not in parts:
        raise ValueError(f"no table of that name; there are {', '.join(sorted(parts))}")
    return parts[name]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
