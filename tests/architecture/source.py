"""Every shipped module, parsed once: what the architecture tests look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("causal", "operators", "standby", "deploy")
PURE_STANDBY = frozenset(
    ("attention", "checkpoints", "checks", "companions", "detector", "effects", "events", "failures", "figures")
    + ("injection", "inquiries", "promotion", "recoveries", "requests", "roster", "savepoints", "supervision", "view")
)
"""Modules of `standby` that decide and do not act, whichever of them exist."""


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, text and tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def place(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def in_core(self) -> bool:
        """Whether it is in `causal` and outside of its shell."""
        return self.name.split(".")[0] == "causal" and not (self.name + ".").startswith("causal.shell.")

    @property
    def pure(self) -> bool:
        """Whether it may not touch the world."""
        return self.in_core or (self.name.startswith("standby.") and self.name.split(".")[1] in PURE_STANDBY)

    def imports(self) -> Iterator[tuple[int, str]]:
        """(line, dotted name) of everything imported anywhere in the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    yield node.lineno, f"{node.module}.{alias.name}"


def parsed(name: str, text: str) -> Module:
    """A module from its text; for tests of the rules themselves."""
    return Module(name, ROOT / f"{name.replace('.', '/')}.py", text, ast.parse(text))


@cache
def modules() -> tuple[Module, ...]:
    """All shipped modules, by name."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text()
            found.append(Module(name, path, text, ast.parse(text, str(path))))
    return tuple(found)
