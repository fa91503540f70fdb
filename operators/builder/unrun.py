"""A hint for a user who runs `python counts.py`: the file only defines a pipeline; `causal run counts.py` runs it.

The hint is printed when the interpreter exits, provided that the program's own file built a pipeline, no code loaded or
checked a pipeline, no exception ended the program, and the file has no main section of its own.
"""

from __future__ import annotations

import atexit
import sys
from pathlib import Path

from operators.graph import caller

_noted: list[str] = []
"""The program file, once it has built a pipeline; replaced by "" once a pipeline has been used."""


def built() -> None:
    """Schedule the hint if the program's own file has built the pipeline."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if _noted or not file or hasattr(sys, "ps1") or sys.flags.interactive:
        return
    if caller().rpartition(":")[0] == file and "__name__" not in _text(file):
        _noted.append(file)
        atexit.register(_say)


def used() -> None:
    """Record that a pipeline has been used, so that no hint is printed."""
    _noted[:] = [""]


def _text(file: str) -> str:
    try:
        return Path(file).read_text(errors="replace")
    except OSError:
        return ""


def _say() -> None:
    if _noted[0] and getattr(sys, "last_type", None) is None and sys.stderr is not None:
        print(
            f"{sys.argv[0]} defines a pipeline but does not run it; run it with: causal run {sys.argv[0]}",
            file=sys.stderr,
        )
