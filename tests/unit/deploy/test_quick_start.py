"""Commands that people type often import little: the modules are bounded, which is what the start takes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import operators
from tests.architecture.source import ROOT

HEAVY = {
    "zmq",
    "msgspec",
    "rich",
    "operators.builder",
    "operators.engine",
    "operators.kinds",
    "standby.agent",
    "deploy.cli",
}
LISTED = """
import atexit, sys
atexit.register(lambda: print("modules", *sys.modules))
sys.argv = ["causal", *{argv}]
from deploy.entry import main
sys.exit(main())
"""


def imported(*argv: str) -> set[str]:
    """Return the modules that a command has imported when it ends."""
    program = LISTED.format(argv=list(argv))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    return set(done.stdout.rpartition("modules ")[2].split())


@pytest.mark.parametrize(
    ("argv", "most"),
    [(["--version"], 160), (["status", "--state-dir", "/nowhere"], 240), (["logs", "--state-dir", "/nowhere"], 200)],
)
def test_a_command_that_only_looks_imports_little(argv: list[str], most: int) -> None:
    names = imported(*argv)
    assert "deploy.entry" in names
    heavy = HEAVY - {"msgspec"} if argv[0] == "status" else HEAVY  # which reads the view of the job
    assert sorted(heavy & names) == []
    assert len(names) <= most


def test_each_public_name_is_imported_from_where_the_types_are() -> None:
    """The two lists of `operators/__init__.py` are the same."""
    tree = ast.parse(Path(operators.__file__).read_text())
    typed = {
        alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    places = {name: module for name, module in typed.items() if name in operators.__all__}
    assert sorted(places) == sorted(operators.__all__)
    assert getattr(operators, "_PLACE_OF") == places  # noqa: B009
    assert {name for name in operators.__all__ if getattr(operators, name).__name__ != name} == set()
    with pytest.raises(AttributeError, match="module 'operators' has no attribute 'Pipelin'"):
        getattr(operators, "Pipelin")  # noqa: B009
