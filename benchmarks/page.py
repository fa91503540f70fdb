"""`python -m benchmarks.page`: writes the tables of `docs/benchmarks.md` from `docs/benchmarks/*.json`.

The text around the tables is the page's own; what stands between the marks is made from the files and never typed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import table as peers

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "benchmarks.md"
RESULTS = DOCS / "benchmarks"


def marks(name: str) -> tuple[str, str]:
    """The lines between which a benchmark's table stands."""
    return f"<!-- {name}: made by python -m benchmarks.page -->", f"<!-- end of {name} -->"


def table(told: Mapping[str, Any]) -> str:
    """Command, machine and all figures of one result."""
    machine, versions = told["machine"], told["versions"]
    libraries = ", ".join(f"{name} {number}" for name, number in versions.items() if name != "python")
    wide = any("p99" in each for each in told["figures"].values())
    names = ("median", "p90", "p99", "min", "max") if wide else ("median", "min", "max")
    commands = dict.fromkeys(f"`{each['command']}`" for each in told.get("pairs", [told]))
    where = (
        f"{', '.join(commands)}: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
        f" {machine['system']}; Python {versions['python']}, {libraries}."
    )
    if "pairs" in told:
        return f"{where}\n\n{peers.tables(told['pairs'])}"
    lines = [
        where,
        "",
        f"| figure | {' | '.join(names)} | runs |",
        f"|---|{'---:|' * (len(names) + 1)}",
    ]
    for name, each in told["figures"].items():
        cells = [f"{each[column]:,}" if column in each else "" for column in names]
        lines.append(f"| {name} | {' | '.join(cells)} | {len(each['runs'])} |")
    if "output" in told:
        lines += ["", "Output: " + ", ".join(f"{name} {count:,}" for name, count in told["output"].items()) + "."]
    return "\n".join(lines)


def filled(page: str, name: str, content: str) -> str:
    """The page with that content between the marks of that name.

    Raises:
        ValueError: the page lacks the marks.
    """
    begin, end = marks(name)
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{PAGE} has no marks for {name}; put '{begin}' and '{end}' where the table belongs")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def main() -> int:
    """Fill in every result that is there."""
    page = PAGE.read_text()
    for path in sorted(RESULTS.glob("*.json")):
        page = filled(page, path.stem, table(json.loads(path.read_text())))
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
