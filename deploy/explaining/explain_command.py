"""`causal explain-divergence`: its arguments; the other modules of this package are loaded only when it runs."""

from __future__ import annotations

import argparse
from typing import Any

from deploy.jobs.chosen import add_job


def add_parser(commands: Any) -> None:
    """Add the command to those of `causal`."""
    explaining = commands.add_parser(
        "explain-divergence", help="say why a replay differs from the recording: the event, the line, the likely cause"
    )
    add_job(explaining)
    explaining.add_argument("--epoch", metavar="N", type=int, help="examine this epoch; default: the last 100 epochs")
    explaining.add_argument("--json", action="store_true", help="print JSON")
    explaining.set_defaults(act=_explain)


def _explain(arguments: argparse.Namespace) -> int:
    from deploy.explaining.explanation import explain

    return explain(arguments)
