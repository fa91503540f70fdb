"""mypy knows the types of a pipeline, and finds the lines that must be wrong."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = [Path(__file__).parent / name for name in ("builder.py", "state.py")]

pytestmark = pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")


def test_each_line_that_must_be_wrong_is_found(tmp_path: Path) -> None:
    """The check of the whole tree says that all other lines are right."""
    must = set[tuple[str, int]]()
    for path in FILES:
        lines = path.read_text().splitlines()
        wrong = [n for n, line in enumerate(lines, 1) if "# type: ignore[" in line and "no-untyped" not in line]
        assert len(wrong) >= 8
        must |= {(path.name, n) for n in wrong}
        shown = [line.split("  # type: ignore")[0] if n in wrong else line for n, line in enumerate(lines, 1)]
        (tmp_path / path.name).write_text("\n".join(shown))
    argv = [sys.executable, "-m", "mypy", "--strict", "--config-file", "setup.cfg", "--cache-dir", ".mypy_cache",
            *(str(tmp_path / path.name) for path in FILES)]  # fmt: skip
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=280)
    errors = [line.split(":") for line in done.stdout.splitlines() if ": error:" in line]
    assert {(Path(path).name, int(number)) for path, number, *_ in errors} == must, done.stdout
