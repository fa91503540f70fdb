"""How all charts look: colours that everybody can tell apart (Okabe and Ito), and how a file is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.runs import RunFailed

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Beside the colours: a chart is read in grey too."""
FAINT, GOAL = 0.35, "#000000"
WIDTH_INCH, ROW_INCH, DPI = 9.0, 0.32, 100
TITLE_POINTS = 11


def check() -> None:
    """
    Raises:
        RunFailed: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise RunFailed("--chart needs matplotlib; install the extra: pip install '.[bench]'")


def pyplot() -> Any:
    """matplotlib's drawing interface, without a screen.

    Raises:
        RunFailed: matplotlib is not installed.
    """
    check()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as drawing

    return drawing


def plain(axis: Any) -> None:
    """Numbers on an axis as one would write them: 2,500,000 and 0.001."""
    axis.set_major_formatter(lambda value, place: f"{value:,.10g}")


def logarithmic(axis: Any, values: Sequence[float]) -> None:
    """An axis of several orders of magnitude, with enough numbers on it to read off a value; as it is if one is 0."""
    from matplotlib import ticker

    if min(values) > 0:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        close = max(values) < 300 * min(values)
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if close else (1,), numticks=30))
        axis.set_minor_formatter(ticker.NullFormatter())
    plain(axis)


def machine(told: Mapping[str, Any]) -> str:
    """What a result was measured on, for a title."""
    return f"{told['machine']['processor']}, {told['machine']['cores']} cores"


def saved(drawing: Any, title: str, path: Path) -> Path:
    """Write the figure and let go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.suptitle(title, fontsize=TITLE_POINTS)
    drawing.tight_layout()
    drawing.savefig(path, dpi=DPI)
    pyplot().close(drawing)
    return path
