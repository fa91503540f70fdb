"""The addresses of `causal serve` in the dashboard, whose modules and state are loaded when they are first used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

if TYPE_CHECKING:
    from deploy.serving.application import Application
    from deploy.serving.questions import Answers

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

ROOMS = ("/state", "/windows")


class LateQuestions:
    """An ASGI application that begins to follow the job with the first question that has the token.

    Args:
        others: the application that answers all other requests.
    """

    def __init__(self, job: Path, token: str, others: Any) -> None:
        self._job = job
        self._token = token
        self._others = others
        self._application: Application | None = None
        self._answers: Answers | None = None
        self._close: list[Callable[[], None]] = []

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not any(f"{scope['path']}/".startswith(f"{room}/") for room in ROOMS):
            await self._others(scope, receive, send)
            return
        if self._application is None:
            loaded = await run_in_threadpool(self._loaded)
            self._application = self._application or loaded  # another request may have come in between
        await self._application(scope, receive, send)

    def _loaded(self) -> Application:
        from deploy.serving.application import Application

        return Application(self._token, self._begun)

    def _begun(self) -> Answers:
        if self._answers is None:
            from deploy.serving.followed_job import FollowedJob
            from deploy.serving.live_tasks import LiveTasks
            from deploy.serving.questions import Answers

            followed, live = FollowedJob(self._job), LiveTasks(self._job)
            self._answers = Answers(followed, live)
            self._close += [followed.close, live.close]
            followed.start(read=False)
        return self._answers

    def close(self) -> None:
        """Free the state; nothing is answered afterwards."""
        if self._application is not None:
            self._application.close()
        for close in self._close:
            close()
