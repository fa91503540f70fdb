"""`causal bundle`: its arguments; the other modules of this package are loaded only when it runs."""

from __future__ import annotations

import argparse
from typing import Any

from deploy.jobs.chosen import add_job


def add_parser(commands: Any) -> None:
    """Add the command to those of `causal`."""
    bundling = commands.add_parser(
        "bundle", help="write a part of a recording to one file, which replays without the job, its files or sources"
    )
    add_job(bundling)
    bundling.add_argument(
        "--task", metavar="TASK", help="this task and all tasks upstream; with --at-crash, by default the one that died"
    )
    place = bundling.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--around", metavar="TIME", help="the epochs at this time: 2026-11-27T14:03:10, or 14:03:10 of the last day"
    )
    place.add_argument("--epoch", metavar="N", help="this epoch, or epochs A..B")
    place.add_argument("--at-crash", action="store_true", help="the epoch in which a task died last")
    bundling.add_argument("-o", dest="output", metavar="BUG.causal", required=True, help="the file to write")
    bundling.add_argument(
        "--redact",
        metavar="HOOK.py:FUNCTION",
        help="replace each record of a source by FUNCTION(source, record); state and recorded answers stay",
    )
    bundling.add_argument(
        "--max-size",
        metavar="SIZE",
        default="64MB",
        help="the most that the file may have, such as 200MB; default: 64MB",
    )
    bundling.set_defaults(act=_bundle)


def _bundle(arguments: argparse.Namespace) -> int:
    from deploy.bundling.bundling import bundle

    return bundle(arguments)
