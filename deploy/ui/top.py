"""`causal top`: shows one job in the terminal until the user quits with `q`."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import Any

from causal.errors import PipelineError
from deploy.jobs.chosen import add_job, chosen_job
from deploy.ui.dashboard import EXTRA


def add_parser(commands: Any) -> None:
    """Add this command to those of `causal`."""
    showing = commands.add_parser("top", help="show a job in the terminal: its tasks, rates and recoveries")
    add_job(showing)
    showing.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command until the user quits.

    Raises:
        PipelineError: there is no such job, it cannot be shown, or there is no terminal.
    """
    if importlib.util.find_spec("textual") is None:
        raise PipelineError(f"top needs a library for terminals; run: pip install 'causal-streams[{EXTRA}]'")
    from deploy.ui.observed import observed

    job = observed(chosen_job(arguments), breaks=False)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise PipelineError("top needs a terminal; causal status prints the same information once")
    from deploy.ui.terminal import Terminal

    Terminal(job).run()
    return 0
