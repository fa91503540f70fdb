"""The web application that answers questions about a job's state; every request needs the token.

Most questions are answered immediately, from memory. Those that read files or wait for a task use a few threads, and
are refused if many of them are under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hmac import compare_digest
from typing import Any

from causal.errors import CausalError, PipelineError, Unavailable
from deploy.serving.host_names import LOOPBACK, TOKEN, named_host
from deploy.serving.questions import Answers, encode, parsed
from deploy.serving.refused import (
    BAD_REQUEST,
    FAILED,
    FORBIDDEN,
    NOT_FOUND,
    TOO_MANY,
    UNAUTHORIZED,
    UNAVAILABLE,
    WRONG_METHOD,
    Refused,
)
from operators.queries.state_at import NoSuchState

WAITING_MAX = 16
"""The number of questions that may wait for files or tasks at the same time."""
BEARER = "bearer "
AGAIN_S = b"1"
"""The value of Retry-After."""
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Application:
    """An ASGI application.

    Args:
        token: the secret that each request must contain.
        answers: returns the answers, which may take a moment when it is called for the first time.
        any_name: whether the server may be addressed by any name, because it is not only on this machine.
    """

    def __init__(self, token: str, answers: Callable[[], Answers], any_name: bool = False) -> None:
        self._token = token.encode()
        self._answers = answers
        self._any_name = any_name
        self._threads = ThreadPoolExecutor(WAITING_MAX, thread_name_prefix="question")
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"a connection of type {scope['type']} is not served")
        try:
            status, body = 200, await self._answer(scope)
        except CausalError as problem:
            status, body = (
                status_of(problem),
                encode({"problem": " ".join(str(problem).split())}).encode(errors="backslashreplace"),
            )
        except OSError as problem:
            line = f"{problem.filename or 'the system'}: {problem.strerror or problem}"
            status, body = FAILED, encode({"problem": line}).encode(errors="backslashreplace")
        headers = [*_HEADERS, (b"content-length", b"%d" % len(body))]
        if status in (UNAVAILABLE, TOO_MANY):
            headers.append((b"retry-after", AGAIN_S))
        if status == UNAUTHORIZED:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def close(self) -> None:
        """End the threads, once the questions under way have been answered."""
        self._threads.shutdown(cancel_futures=True)

    async def _answer(self, scope: Scope) -> bytes:
        self._admit(scope)
        if scope["method"] != "GET":
            raise Refused(WRONG_METHOD, f"{scope['method']:.20} is not served; use GET")
        path: bytes = scope["raw_path"]
        question = parsed(path.decode("ascii", "replace"), scope["query_string"].decode("ascii", "replace"))
        answers = self._answers()
        if not answers.waits(question):
            return answers.to(question)
        if self._waiting >= WAITING_MAX:
            raise Refused(TOO_MANY, f"{WAITING_MAX} questions are being answered from files or by tasks; repeat yours")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, answers.to, question)
        finally:
            self._waiting -= 1

    def _admit(self, scope: Scope) -> None:
        """Refuse a request without the token, or one that another site's page has sent under that site's name."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if not self._any_name and named_host(headers.get(b"host", b"").decode("latin-1")) not in LOOPBACK:
            raise Refused(FORBIDDEN, "the address is not one of this machine; use the one that the server has printed")
        text = headers.get(b"authorization", b"").decode("latin-1")
        bearer = text[len(BEARER) :].strip() if text.lower().startswith(BEARER) else ""
        presented = headers.get(TOKEN.encode()) or bearer.encode("latin-1")
        if not compare_digest(presented, self._token):
            raise Refused(
                UNAUTHORIZED,
                "the token is missing or belongs to another server; send the header Authorization: Bearer TOKEN, with "
                "the token that the server has printed or read",
            )


def status_of(problem: CausalError) -> int:
    """Return the status of HTTP for an error."""
    if isinstance(problem, Refused):
        return problem.status
    if isinstance(problem, NoSuchState):
        return NOT_FOUND
    if isinstance(problem, PipelineError):
        return BAD_REQUEST
    if isinstance(problem, Unavailable):
        return UNAVAILABLE
    return FAILED
