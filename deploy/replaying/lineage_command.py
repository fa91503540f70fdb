"""`causal lineage`: its arguments; the other modules of this package are loaded only when it runs."""

from __future__ import annotations

import argparse
from typing import Any

from deploy.jobs.chosen import add_job


def add_parser(commands: Any) -> None:
    """Add the command to those of `causal`."""
    showing = commands.add_parser("lineage", help="show the input records that a row of a recorded job comes from")
    add_job(showing)
    showing.add_argument("sink", metavar="SINK", help="the sink, or one of its tasks, as out/1")
    showing.add_argument("row", metavar="ROW", help="the position of the row in this task's output, from 0")
    showing.add_argument(
        "--back", metavar="EPOCHS", type=int, default=0,
        help="look this many epochs further back than the kept checkpoint before the row; default: 0",
    )  # fmt: skip
    showing.add_argument("--limit", metavar="N", type=int, help="list the last N input records, and the last N events")
    showing.add_argument("--json", action="store_true", help="as JSON")
    showing.set_defaults(act=_show)


def _show(arguments: argparse.Namespace) -> int:
    from deploy.replaying.shown_lineage import lineage

    return lineage(arguments)
