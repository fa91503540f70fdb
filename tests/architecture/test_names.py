"""Each module of `benchmarks` has a file name of its own, and siblings there do not import each other in a circle."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.circles import circles
from tests.architecture.source import ROOT

PACKAGE = "benchmarks"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted((ROOT / PACKAGE).rglob("*.py"))
}


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module


def test_no_file_name_comes_twice() -> None:
    counts = Counter(path.name for path in MODULES.values() if path.name != "__init__.py")
    assert [name for name, count in counts.items() if count > 1] == []


def test_siblings_import_each_other_without_a_circle() -> None:
    assert circles((name, target) for name, path in MODULES.items() for target in imported(path)) == {}
