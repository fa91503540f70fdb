"""Results as PNG files; matplotlib comes with the extra `bench` and is needed for this only.

    python -m benchmarks.charts.draw                       every result below docs/benchmarks next to its file, and the
                                                           recovery of the README (which needs no matplotlib)
    python -m benchmarks.charts.draw FILE.json CHART.png   one

`scale` has two, with names of their own, in the directory of CHART.png.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.charts import style, timeline
from benchmarks.charts.catalogue import WITH_CHART, charts_of, kind
from benchmarks.harness.measured import RESULTS
from benchmarks.harness.runs import RunFailed
from benchmarks.report.goals import bounds


def draw(result: Mapping[str, Any], path: Path) -> list[Path]:
    """Write the charts of a result.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    charts = charts_of(result)
    places = [path] if len(charts) == 1 else [path.with_name(f"{name}.png") for name in charts]
    return [
        style.draw(chart, result["figures"], bounds(kind(result)), place)
        for chart, place in zip(charts.values(), places, strict=True)
    ]


def main(arguments: Sequence[str]) -> int:
    """Draw the requested charts; exit status 2 for bad usage, 1 if it cannot be drawn."""
    if len(arguments) not in (0, 2):
        print("charts: give FILE.json CHART.png, or nothing for all of docs/benchmarks", file=sys.stderr)
        return 2
    wanted = [(path, path.with_suffix(".png")) for path in sorted(RESULTS.rglob("*.json"))]
    if arguments:
        wanted = [(Path(arguments[0]), Path(arguments[1]))]
    for source, target in wanted:
        result = json.loads(source.read_text())
        if result["benchmark"] not in WITH_CHART:
            if arguments:
                print(f"charts: there is no chart for {result['benchmark']}", file=sys.stderr)
                return 1
            continue
        try:
            print(*draw(result, target), sep="\n")
        except RunFailed as problem:
            print(f"charts: {problem}", file=sys.stderr)
            return 1
    return 0 if arguments else timeline.main()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
