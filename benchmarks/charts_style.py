"""How all charts look: colours that everybody can tell apart (Okabe and Ito), and how a file is written."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.runs import RunFailed

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Beside the colours: a chart is read in grey too."""
FAINT, GOAL = 0.35, "#000000"
WIDTH_INCH, ROW_INCH, DPI = 9.0, 0.32, 100


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


def saved(drawing: Any, title: str, path: Path) -> Path:
    """Write the figure and let go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.suptitle(title)
    drawing.tight_layout()
    drawing.savefig(path, dpi=DPI)
    pyplot().close(drawing)
    return path
