"""The commands that only show a job; they start without the modules that other commands import."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from deploy.command_frame import Parser, carried_out, without_commands
from deploy.jobs.chosen import add_job

NAMES = ("status", "logs", "state", "ui", "top", "serve")


def add_parsers(commands: Any) -> None:
    """Add these commands to those of `causal`; each imports its modules only when it runs."""
    showing = commands.add_parser("status", help="show a job")
    add_job(showing)
    showing.add_argument("--json", action="store_true", help="as JSON")
    showing.set_defaults(act=_status)

    logging = commands.add_parser("logs", help="show what the processes of a job have printed and logged")
    add_job(logging)
    logging.add_argument("task", metavar="TASK", nargs="?", help="only this task, whatever process ran it")
    logging.add_argument("--host", metavar="HOST", help="only this host of several")
    logging.add_argument("-f", "--follow", action="store_true", help="until the job ends")
    logging.add_argument("-n", "--lines", type=_count, metavar="N", help="begin with the last N lines; default: all")
    logging.set_defaults(act=_logs)

    querying = commands.add_parser("state", help="show what an operator keeps for a key, or its keys")
    add_job(querying)
    querying.add_argument("operator", metavar="OPERATOR")
    querying.add_argument(
        "key", metavar="KEY", nargs="?", help="a text or JSON, where a list stands for a tuple; without it, list keys"
    )
    querying.add_argument("--prefix", metavar="TEXT", default="", help="list the keys that begin so")
    querying.add_argument("--live", action="store_true", help="ask the running task, not the last checkpoint")
    querying.add_argument(
        "--at",
        metavar="EPOCH|TIME",
        help="an earlier checkpoint of a recorded job, such as 120, 14:03:10 or 2026-11-27T14:03:10; or a savepoint's",
    )
    querying.add_argument("--json", action="store_true", help="as JSON")
    querying.set_defaults(act=_state)

    from deploy.serving import serve_command
    from deploy.ui import dashboard, top

    dashboard.add_parser(commands)
    top.add_parser(commands)
    serve_command.add_parser(commands)


def _status(arguments: argparse.Namespace) -> int:
    from deploy.monitoring.status import status

    return status(arguments)


def _state(arguments: argparse.Namespace) -> int:
    from deploy.monitoring.querying import state

    return state(arguments)


def _logs(arguments: argparse.Namespace) -> int:
    from deploy.monitoring.logs import logs

    return logs(arguments)


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def parser() -> Parser:
    """Return a parser of `causal` that has only these commands."""
    result, commands = without_commands()
    add_parsers(commands)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of these commands as `deploy.cli` would, and return its exit status."""
    return carried_out(parser, argv)
