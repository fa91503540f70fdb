"""`causal ui`: serves the dashboard of one job on 127.0.0.1 until it is interrupted."""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
import socket
from typing import Any

from causal.errors import PipelineError
from deploy.jobs.chosen import add_job, chosen_job

EXTRA = "ui"
PORT = 8790
"""The default port; if it is in use, a free port is chosen instead."""
ADDRESS = "127.0.0.1"
CONNECTIONS_MAX = 64
KEEP_S = 15


def add_parser(commands: Any) -> None:
    """Add this command to those of `causal`."""
    showing = commands.add_parser("ui", help="show a job in the browser, also one that has ended")
    add_job(showing)
    showing.add_argument("--port", type=_port, metavar="N", help=f"on 127.0.0.1; default: {PORT}, or a free one")
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
    listening = _bound(arguments.port)
    token = secrets.token_urlsafe(18)
    port = listening.getsockname()[1]
    print(f"{job.path.name}: http://{ADDRESS}:{port}/#{token}", flush=True)
    import uvicorn

    from deploy.ui.output_check import OutputCheck
    from deploy.ui.pages import application
    from deploy.ui.patience import Impatient

    output = OutputCheck(job.path)
    config = uvicorn.Config(
        application(job, output, token), log_config=None, log_level="error", access_log=False,
        lifespan="off", ws="none", http=Impatient, loop="asyncio", limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_S, timeout_graceful_shutdown=1, server_header=False, date_header=False,
    )  # fmt: skip

    class Server(uvicorn.Server):  # type: ignore[misc]
        """A server that completes the requests under way before it ends."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            job.close()
            await super().shutdown(sockets)

    try:
        Server(config).run(sockets=[listening])
    finally:
        output.close()
    return 0


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; use 1 to 65535")
    return int(text)


def _bound(port: int | None) -> socket.socket:
    """Return a socket that listens on the loopback interface.

    Accepted connections inherit `TCP_NODELAY` from it.  asyncio sets this option only if the socket names its protocol,
    and without the option each answer would wait 40 ms for an acknowledgement.

    Raises:
        PipelineError: the requested port is in use.
    """
    for tried in (PORT, 0) if port is None else (port,):
        try:
            listening = socket.create_server((ADDRESS, tried))
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listening
        except OSError as problem:
            reason = os.strerror(problem.errno) if problem.errno and problem.errno > 0 else str(problem)
    raise PipelineError(f"--port {port} cannot be used: {reason}; use another port")
