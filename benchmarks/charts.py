"""Results as PNG files; matplotlib comes with the extra `bench` and is needed for this only.

    python -m benchmarks.charts                       every result below docs/benchmarks beside its file
    python -m benchmarks.charts FILE.json CHART.png   one

`scale` has two, with names of their own, in the directory of CHART.png.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import charts_budget, charts_dots, charts_lives, charts_matrix, latency_chart, scale_charts
from benchmarks.charts_panels import PANELS
from benchmarks.page import RESULTS
from benchmarks.peers import chart as peers_chart
from benchmarks.runs import RunFailed

Draw = Callable[[Mapping[str, Any], Path], Path]

CHARTS: Mapping[str, Draw] = {
    **dict.fromkeys((name for name in PANELS if name != "memory"), charts_dots.draw),
    "matrix": charts_matrix.draw,
    "budget": charts_budget.draw,
    "latency": latency_chart.draw,
    "total_failure": charts_lives.draw,
    "peers": peers_chart.draw,
    "scale": lambda told, path: scale_charts.draw(told["figures"], path.parent)[0],
}
"""By benchmark."""


def main(arguments: Sequence[str]) -> int:
    """Draw what is asked for; exit status 2 for bad usage, 1 if it cannot be drawn."""
    if len(arguments) not in (0, 2):
        print("charts: give FILE.json CHART.png, or nothing for all of docs/benchmarks", file=sys.stderr)
        return 2
    wanted = [(Path(arguments[0]), Path(arguments[1]))] if arguments else [
        (path, path.with_suffix(".png")) for path in sorted(RESULTS.rglob("*.json"))
    ]  # fmt: skip
    for source, target in wanted:
        told = json.loads(source.read_text())
        if told["benchmark"] not in CHARTS:
            if arguments:
                print(f"charts: there is no chart for {told['benchmark']}", file=sys.stderr)
                return 1
            continue
        try:
            print(CHARTS[told["benchmark"]](told, target))
        except RunFailed as problem:
            print(f"charts: {problem}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
