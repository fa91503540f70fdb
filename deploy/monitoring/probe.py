"""`causal probe`: checks whether the supervisor or agent of a directory is alive, for tools that restart it.

Both renew a file for as long as their loops run; an agent does so even while it waits for a supervisor.  An old file
therefore means that the process hangs or has ended.  Whether the job makes progress is a different question, which
`causal status` answers.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from causal.errors import Unavailable
from causal.network.host_file import SIGN
from deploy.jobs.lookup import VIEW

OLD_S = 15.0
"""The age at which a sign of life no longer counts, which is far longer than a busy machine needs to renew it."""


def add_parser(commands: Any) -> None:
    """Add this command to those of `causal`."""
    probing = commands.add_parser(
        "probe", help="exit with 0 if the supervisor or the agent of a directory lives, else 1"
    )
    probing.add_argument("--state-dir", required=True, metavar="DIR", help="that of `causal run` or of `causal agent`")
    probing.add_argument("--joined", action="store_true", help="of an agent: and if it takes part in a job")
    probing.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return 0.

    Raises:
        Unavailable: no process of that directory is alive, or its agent does not take part in a job.
    """
    directory = Path(arguments.state_dir)
    signs = [path for path in (directory / SIGN, directory / VIEW) if path.exists()]
    if not signs:
        raise Unavailable(
            f"{directory} shows no sign of life; check that it is the --state-dir of an agent or of a job"
        )
    age_s = min(time.time() - path.stat().st_mtime for path in signs)
    if age_s >= OLD_S:
        raise Unavailable(f"the last sign of life in {directory} is {age_s:,.0f} s old; see its logs")
    if arguments.joined and (directory / SIGN).exists() and not json.loads((directory / SIGN).read_text())["joined"]:
        raise Unavailable(f"the agent in {directory} is not part of a job at the moment; see its logs")
    return 0
