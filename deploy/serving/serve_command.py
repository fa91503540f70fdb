"""`causal serve`: answers questions about the state of one job over HTTP until it is interrupted."""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from deploy.jobs.chosen import add_job, chosen_job
from deploy.serving.listening import ADDRESS, is_of_this_machine, listen, port_of

EXTRA = "ui"
PORT = 8791
"""The default port; if it is in use, a free port is chosen instead."""
CONNECTIONS_MAX = 256
KEEP_S = 60
TOKEN_MIN, TOKEN_MAX = 16, 1024
"""The bounds on the length of a token in a file."""


def add_parser(commands: Any) -> None:
    """Add this command to those of `causal`."""
    serving = commands.add_parser("serve", help="answer questions about the state of a job over HTTP")
    add_job(serving)
    serving.add_argument("--port", type=port_of, metavar="N", help=f"default: {PORT}, or a free one")
    serving.add_argument("--host", default=ADDRESS, metavar="ADDRESS", help=f"to listen on; default: {ADDRESS}")
    serving.add_argument(
        "--operator", action="append", default=[], metavar="NAME", help="hold only this one; repeatable; default: all"
    )
    serving.add_argument(
        "--token-file", metavar="FILE", help="the token; created if it is missing; default: a new token at each start"
    )
    serving.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command until it is interrupted.

    Raises:
        PipelineError: there is no such job or operator, the port is in use, or the token cannot be used.
    """
    if importlib.util.find_spec("uvicorn") is None:
        raise PipelineError(f"the query server needs a web server; run: pip install 'causal-streams[{EXTRA}]'")
    job = chosen_job(arguments)
    token = secrets.token_urlsafe(24) if arguments.token_file is None else _token_in(Path(arguments.token_file))
    listening = listen(arguments.host, arguments.port, PORT)
    import uvicorn

    from deploy.serving.application import Application
    from deploy.serving.followed_job import FollowedJob
    from deploy.serving.live_tasks import LiveTasks
    from deploy.serving.patience import Impatient
    from deploy.serving.questions import Answers

    followed, live = FollowedJob(job, arguments.operator), LiveTasks(job)
    answers = Answers(followed, live)
    application = Application(token, lambda: answers, any_name=not is_of_this_machine(arguments.host))
    try:
        followed.start()
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        print(f"{job.name}: http://{shown}:{port}/state{'' if arguments.token_file else f'#{token}'}", flush=True)
        config = uvicorn.Config(
            application, log_config=None, log_level="error", access_log=False, lifespan="off", ws="none",
            http=Impatient, loop="asyncio", limit_concurrency=CONNECTIONS_MAX, timeout_keep_alive=KEEP_S,
            timeout_graceful_shutdown=1, server_header=False, date_header=False,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        listening.close()
        application.close()
        followed.close()
        live.close()
    return 0


def _token_in(path: Path) -> str:
    """Return the token in a file that only its owner may read; a new one is written if the file is missing."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            token = secrets.token_urlsafe(24)
            file.write(f"{token}\n")
            return token
    except FileExistsError:
        return _read_token(path)
    except OSError as problem:
        raise PipelineError(f"--token-file {path} cannot be written: {problem.strerror}") from None


def _read_token(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            open_to_others = os.fstat(file.fileno()).st_mode & 0o077
            data = file.read(TOKEN_MAX + 2).strip()
    except OSError as problem:
        raise PipelineError(f"--token-file {path} cannot be read: {problem.strerror}") from None
    if open_to_others:
        raise PipelineError(f"--token-file {path} can be used by others; run: chmod 600 {path}")
    if not TOKEN_MIN <= len(data) <= TOKEN_MAX or not all(33 <= byte < 127 for byte in data):
        raise PipelineError(
            f"--token-file {path} does not contain a token of {TOKEN_MIN} to {TOKEN_MAX} visible ASCII characters; "
            "remove it to create a new one"
        )
    return data.decode()
