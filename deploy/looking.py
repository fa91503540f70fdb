"""The commands that only look at a job, by themselves: they start at once, without what the others import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deploy.command_line import Parser, carried_out, without_commands
from deploy.ui import dashboard, top

NAMES = ("ui", "top")


def add_parsers(commands: Any) -> None:
    """Adds the commands to those of `causal`."""
    dashboard.add_parser(commands)
    top.add_parser(commands)


def parser() -> Parser:
    """Returns the parser of `causal` with these commands alone."""
    result, commands = without_commands()
    add_parsers(commands)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one of the commands, as `deploy.cli` does; returns its exit status."""
    return carried_out(parser, argv)
