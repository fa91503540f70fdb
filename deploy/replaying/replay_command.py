"""`causal replay` and `causal lineage`: their arguments; the other modules of this package are loaded when they run."""

from __future__ import annotations

import argparse
from typing import Any

from deploy.jobs.chosen import add_job


def add_parser(commands: Any) -> None:
    """Add the commands to those of `causal`."""
    replaying = commands.add_parser(
        "replay", help="perform a recorded job again, verify it, and stop at an event in a debugger"
    )
    add_job(replaying)
    replaying.add_argument("--task", metavar="TASK", help="replay this task and all tasks upstream; default: all tasks")
    place = replaying.add_mutually_exclusive_group()
    place.add_argument("--epoch", metavar="N", type=int, help="replay this epoch, or stop in it")
    place.add_argument(
        "--at", metavar="TIME", help="stop at this time, as 2026-11-27T14:03:10, or 14:03:10 of the last day"
    )
    place.add_argument("--row", metavar="SINK:POSITION", help="stop at the record that causes this row, from 0")
    replaying.add_argument(
        "--at-crash", action="store_true", help="stop where a task died last; with --epoch, last in that epoch"
    )
    replaying.add_argument("--key", metavar="KEY", help="stop at records, timers, windows and answers of this key")
    replaying.add_argument(
        "--break",
        dest="condition",
        metavar="EXPR",
        help="stop where this is true of record, key, state, ctx, operator or kind",
    )
    debugger = replaying.add_mutually_exclusive_group()
    debugger.add_argument("--pdb", action="store_true", help="stop in pdb, in the function that gets the record")
    debugger.add_argument(
        "--debugpy",
        metavar="PORT",
        type=int,
        help="stop there in an IDE, which attaches to this port of this machine with debugpy",
    )
    replaying.set_defaults(act=_replay)

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


def _replay(arguments: argparse.Namespace) -> int:
    from deploy.replaying.replay_attempts import replay

    return replay(arguments)


def _show(arguments: argparse.Namespace) -> int:
    from deploy.replaying.shown_lineage import lineage

    return lineage(arguments)
