"""`causal ui`: serves the dashboard of one job on 127.0.0.1 until it is interrupted."""

from __future__ import annotations

import argparse
import importlib.util
import secrets
import socket
from typing import Any

from causal.errors import PipelineError
from deploy.jobs.chosen import add_job, chosen_job
from deploy.serving.listening import ADDRESS, listen, port_of

EXTRA = "ui"
PORT = 8790
"""The default port; if it is in use, a free port is chosen instead."""
CONNECTIONS_MAX = 64
KEEP_S = 15


def add_parser(commands: Any) -> None:
    """Add this command to those of `causal`."""
    showing = commands.add_parser("ui", help="show a job in the browser, also one that has ended")
    add_job(showing)
    showing.add_argument("--port", type=port_of, metavar="N", help=f"on 127.0.0.1; default: {PORT}, or a free one")
    showing.add_argument("--no-break", action="store_true", help="the page has no buttons that kill processes")
    showing.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command until it is interrupted.

    Raises:
        PipelineError: there is no such job, it cannot be shown, or the port is in use.
    """
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise PipelineError(f"the dashboard needs a web server; run: pip install 'causal-streams[{EXTRA}]'")
    from deploy.ui.observed import observed

    job = observed(chosen_job(arguments), not arguments.no_break)
    listening = listen(ADDRESS, arguments.port, PORT)
    token = secrets.token_urlsafe(18)
    port = listening.getsockname()[1]
    print(f"{job.path.name}: http://{ADDRESS}:{port}/#{token}", flush=True)
    import uvicorn

    from deploy.serving.patience import Impatient
    from deploy.ui.late_questions import LateQuestions
    from deploy.ui.output_check import OutputCheck
    from deploy.ui.pages import application
    from deploy.ui.past import Past

    output, past = OutputCheck(job.path), Past(job.path)
    served = LateQuestions(job.path, token, application(job, output, past, token))
    config = uvicorn.Config(
        served, log_config=None, log_level="error", access_log=False,
        lifespan="off", ws="none", http=Impatient, loop="asyncio", limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_S, timeout_graceful_shutdown=1, server_header=False, date_header=False,
    )  # fmt: skip

    class Server(uvicorn.Server):  # type: ignore[misc]
        """A server that completes the requests under way before it ends."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            job.close()
            past.close()
            await super().shutdown(sockets)

    try:
        Server(config).run(sockets=[listening])
    finally:
        output.close()
        past.close()
        served.close()
    return 0
