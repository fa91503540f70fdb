"""`causal diff`: its arguments; the other modules of this package are loaded only when it runs."""

from __future__ import annotations

import argparse
from typing import Any

from deploy.jobs.chosen import add_job


def add_parser(commands: Any) -> None:
    """Add the command to those of `causal`."""
    comparing = commands.add_parser(
        "diff", help="perform new code on the recorded stream of a job, and compare the rows"
    )
    add_job(comparing)
    comparing.add_argument("--code", required=True, metavar="NEW.py", help="the new code")
    comparing.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the new code; repeatable"
    )
    comparing.add_argument("--config", metavar="FILE.toml", help="settings of the job, for the new code")
    comparing.add_argument("--last", metavar="1h", help="the last 90s, 30m, 1h or 1d of the recording")
    comparing.add_argument(
        "--epoch", metavar="A..B", help="epochs of the recording; default: all of the latest version"
    )
    comparing.add_argument(
        "--calls",
        metavar="STUBS.py|refuse|live",
        help="how requests are answered that only the new code makes: by functions named like the operators, not at "
        "all (a difference), or by the outside world itself; default: refuse",
    )
    comparing.add_argument(
        "--key",
        dest="row_keys",
        action="append",
        default=[],
        metavar="SINK=FIELD,…",
        help="the fields by which a sink's rows are matched",
    )
    comparing.add_argument(
        "--allow-dropped-state", action="store_true", help="leave behind state of operators that are gone"
    )
    comparing.add_argument("--json", metavar="FILE", help="write the result as JSON; - for standard output")
    comparing.add_argument("--html", metavar="FILE", help="write the result as a page")
    comparing.set_defaults(act=_diff)


def _diff(arguments: argparse.Namespace) -> int:
    from deploy.diffing.running import diff

    return diff(arguments)
