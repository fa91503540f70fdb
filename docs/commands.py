"""Writes the page of the command line from the parser of `causal`.

python docs/commands.py          # rewrite the page; a test fails while it is not up to date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from deploy.cli import parser  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "commands.md"
_HEAD = """# Commands

Exit status 0: the job has finished, or what was asked for is printed. 1: the job failed. 2: the pipeline, a setting or
the command line is wrong. 130 or 143: interrupted, `--resume` continues. Every error is one line on standard error that
begins with `causal:`.
"""


def _invocation(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    value = ""
    if action.nargs != 0:
        value = f" {action.metavar or '|'.join(map(str, action.choices or ())) or action.dest.upper()}"
    return ", ".join(option + value for option in action.option_strings).replace("|", "\\|")


def _meaning(action: argparse.Action) -> str:
    return (action.help or "").replace("|", "\\|").replace("%%", "%")


def _command(name: str, summary: str, command: argparse.ArgumentParser) -> list[str]:
    lines = [
        f"\n## `causal {name}`",
        "",
        summary[0].upper() + summary[1:] + ".",
        "",
        "| argument | meaning |",
        "|---|---|",
    ]
    for action in command._actions:
        if not isinstance(action, argparse._HelpAction):
            lines.append(f"| `{_invocation(action)}` | {_meaning(action)} |")
    return lines


def page() -> str:
    """Return the page, of the parser as it is."""
    commands = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    summaries = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    lines = [_HEAD.rstrip()]
    for name, command in commands.choices.items():
        lines += _command(name, summaries[name], command)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
