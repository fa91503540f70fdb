"""Ratios of `peers` as a PNG file; matplotlib comes with the extra `bench` and is needed here only.

python -m benchmarks.peers.chart FILE.json CHART.png
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.peers.table import COLUMNS
from benchmarks.runs import RunFailed


def bars(pairs: Sequence[Mapping[str, Any]], workload: str, name: str) -> tuple[list[str], list[float]]:
    """The peers that have this ratio in this workload, and its medians."""
    found = [pair for pair in pairs if pair["workload"] == workload and name in pair.get("ratios", {})]
    return [pair["peer"] for pair in found], [float(pair["ratios"][name]["median"]) for pair in found]


def draw(pairs: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Write one panel per workload, one group of bars per figure: how many times better ours is than each peer.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise RunFailed("the chart of peers needs matplotlib; install the extra: pip install '.[bench]'")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawing, panels = pyplot.subplots(1, len(COLUMNS), figsize=(5 * len(COLUMNS), 5))
    for panel, (workload, columns) in zip(panels, COLUMNS.items(), strict=True):
        labels: list[str] = []
        for name, head in columns:
            peers, ratios = bars(pairs, workload, name)
            places = range(len(labels), len(labels) + len(peers))
            panel.barh(places, [ratio - 1 for ratio in ratios], left=1, label=head)
            labels += peers
        panel.set(xscale="log", title=f"{workload}: ours ÷ peer (right of 1: ours is ahead)")
        panel.set_yticks(range(len(labels)), labels)
        panel.invert_yaxis()
        panel.axvline(1, color="black", linewidth=1)
        panel.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.tight_layout()
    drawing.savefig(path, dpi=80)
    pyplot.close(drawing)
    return path


def main(arguments: Sequence[str]) -> int:
    """Draw the pairs of a file."""
    if len(arguments) != 2:
        print("chart: give FILE.json CHART.png", file=sys.stderr)
        return 2
    try:
        draw(json.loads(Path(arguments[0]).read_text())["pairs"], Path(arguments[1]))
    except RunFailed as problem:
        print(f"chart: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
