"""The import contracts of setup.cfg hold, and they bite."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGES, ROOT


def lint(directory: Path) -> tuple[int, str]:
    process = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory), "NO_COLOR": "1", "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return process.returncode, process.stdout + process.stderr


BREAKS = [
    ("causal/ids.py", "import operators", "Packages import downwards only"),
    ("operators/sinks/contract/sink.py", "import standby", "Packages import downwards only"),
    ("causal/ids.py", "import time", "The core performs no I/O"),
    ("causal/logs/log.py", "import os.path", "The core performs no I/O"),
    ("operators/sinks/contract/sink.py", "import zmq", "ZeroMQ is used by"),
    ("operators/sinks/contract/sink.py", "import pyspark", "PySpark is an extra"),
    ("causal/errors.py", "import causal.logs.log", "No cycles between siblings"),
]

AROUND = (*PACKAGES, "examples", "benchmarks", "docs", "tests")
"""The product, and what is around it: each imports only from itself and from those before it."""


def imported(path: Path) -> set[str]:
    """Return the top-level packages that a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("package", AROUND[:-1])
def test_what_is_around_the_product_imports_downwards_only(package: str) -> None:
    above = set(AROUND[max(len(PACKAGES), AROUND.index(package) + 1) :])
    packages = {str(path.relative_to(ROOT)): imported(path) & above for path in (ROOT / package).rglob("*.py")}
    assert packages
    assert {path: names for path, names in packages.items() if names} == {}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    return tmp_path


def test_the_contracts_hold(copied: Path) -> None:
    status, output = lint(copied)
    assert status == 0, output


def test_an_exception_that_no_import_needs_is_refused(copied: Path) -> None:
    setup = (copied / "setup.cfg").read_text()
    exception = "    causal.records.values -> datetime\n"
    assert exception in setup
    (copied / "setup.cfg").write_text(setup.replace(exception, f"{exception}    causal.task.services -> random\n"))
    status, output = lint(copied)
    assert status == 1 and "causal.task.services -> random" in output, output


@pytest.mark.parametrize(("file", "line", "contract"), BREAKS)
def test_a_contract_finds_what_breaks_it(copied: Path, file: str, line: str, contract: str) -> None:
    with (copied / file).open("a") as code:
        code.write(f"\n{line}\n")
    status, output = lint(copied)
    broken = [shown for shown in output.splitlines() if "BROKEN" in shown]
    assert status == 1, output
    assert any(contract in shown for shown in broken), output
