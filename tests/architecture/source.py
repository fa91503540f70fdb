"""Every shipped module, parsed once: what the architecture tests look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("causal", "operators", "standby", "deploy")
PURE = (
    "causal",
    "deploy.serving.host_names",
    "deploy.ui.admission",
    "deploy.progress.progress_model",
    "deploy.monitoring.trace_spans",
    "deploy.changes.scaling",
    "deploy.ui.meter",
    "deploy.ui.drawn_graph",
    "deploy.ui.models",
    "deploy.ui.recorded_axis",
    "deploy.ui.replay_commands",
    "standby.leadership",
    "standby.supervision",
    "operators.graph",
    "operators.builder.drawing",
    "operators.engine.chain",
    "operators.engine.chain_state",
    "operators.engine.fusion",
    "operators.engine.tree",
    "operators.kinds",
    "operators.spark.limits",
    "operators.records.arithmetic",
    "operators.records.cutting",
    "operators.records.nesting",
    "operators.records.seconds",
    "operators.runtime.backlog",
    "operators.runtime.hot_standby",
    "operators.runtime.membership",
    "operators.runtime.rescaling",
    "operators.sinks.contract.account",
    "operators.stage.branch",
    "operators.stage.failures",
    "operators.stage.routing",
    "operators.stage.stages",
    "operators.stage.watermark_merge",
    "operators.state.declared",
    "operators.state.due_index",
    "operators.state.keyed_tables",
    "operators.state.slots",
    "operators.state.timers",
    "operators.state.undo",
)
"""Modules and packages that decide and do not act: no I/O, no clock, no chance."""
SHELL = ("causal.shell", "causal.network", "causal.storage", "causal.process")
"""Packages within those that act all the same."""


def within(name: str, places: tuple[str, ...]) -> bool:
    """Return whether a module is one of these, or in one of these packages."""
    return any((name + ".").startswith(place + ".") for place in places)


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
        return within(self.name, ("causal",)) and not within(self.name, SHELL)

    @property
    def pure(self) -> bool:
        """Whether it may not touch the world."""
        return within(self.name, PURE) and not within(self.name, SHELL)

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
    """Return a module from its text; for tests of the rules themselves."""
    return Module(name, ROOT / f"{name.replace('.', '/')}.py", text, ast.parse(text))


@cache
def modules() -> tuple[Module, ...]:
    """Return all shipped modules, by name."""
    modules = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text()
            modules.append(Module(name, path, text, ast.parse(text, str(path))))
    return tuple(modules)
