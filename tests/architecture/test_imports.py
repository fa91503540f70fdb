"""The import contracts of setup.cfg hold, and they bite."""

from __future__ import annotations

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
