"""`causal replay`: its arguments; the other modules of this package are loaded only when it runs."""

from __future__ import annotations

import argparse
from typing import Any

from deploy.jobs.chosen import add_job


def add_parser(commands: Any) -> None:
    """Add the command to those of `causal`."""
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


def _replay(arguments: argparse.Namespace) -> int:
    from deploy.replaying.replay_attempts import replay

    return replay(arguments)
