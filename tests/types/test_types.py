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


def checked(path: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    argv = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        str(ROOT / "setup.cfg"),
        "--cache-dir",
        str(cache),
    ]
    return subprocess.run([*argv, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_types_are_known(path: Path) -> None:
    done = checked(path, ROOT / ".mypy_cache")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_line_that_must_be_wrong_is_found(path: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    lines = path.read_text().splitlines()
    must = [number for number, line in enumerate(lines, 1) if "# type: ignore[" in line and "no-untyped" not in line]
    wrong.write_text(
        "\n".join([line.split("  # type: ignore")[0] if n in must else line for n, line in enumerate(lines, 1)])
    )
    done = checked(wrong, ROOT / ".mypy_cache")
    wrong_lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert wrong_lines == set(must) and len(must) >= 8
