"""A connection to NATS of one thread: it acts only within its calls, each of which ends in time.

The client of nats-py has an event loop of its own, which runs only during a call; there is no thread. A server that
asks for a sign of life in between gets it with the next call, or closes the connection, and the next call makes another
one. A forked process leaves the connection to its parent. A call that fails ends the connection, because it is unknown
how much of its requests was performed.
"""

from __future__ import annotations

import asyncio
import json
import os
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from causal.errors import CausalError, PipelineError, invariant
from operators.nats.nats_errors import Declined, translated
from operators.nats.nats_servers import DOMAIN, Servers

T = TypeVar("T")
CLOSE_S = 0.5
PASSES, PASSES_MAX = 4, 256
"""The turns of the loop after which a message that has arrived is there, and the most turns of one call."""
Headers = Mapping[str, str]


def require_nats(said: str) -> None:
    """Raise `PipelineError`, with the remedy, unless nats-py can be imported."""
    try:
        import nats  # noqa: F401
    except ImportError as problem:
        raise PipelineError(
            f"{said} needs nats-py ({problem}); run `pip install -e '.[nats]'` in the checkout"
        ) from None


class _Reports:
    """The reports of a client outside of its calls: its last error, and the end of the connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.last: Exception | None = None
        self.end: asyncio.Future[Exception] = loop.create_future()

    async def note(self, problem: Exception) -> None:
        """Keep an error; one of missing permission ends the current call, which would otherwise wait for an answer."""
        self.last = problem
        if "permissions violation" in str(problem).lower() and not self.end.done():
            self.end.set_result(problem)

    async def note_end(self) -> None:
        """Keep the reason for which the connection has ended."""
        if not self.end.done():
            self.end.set_result(self.last or ConnectionError("the connection has ended"))


class Link:
    """One connection, which is made immediately. Only one thread may use it at a time.

    Args:
        timeout_s: the time limit of each call, the making of the connection included.

    Raises:
        Unavailable: the servers cannot be reached.
        PipelineError: they refuse this user.
    """

    def __init__(self, servers: Servers, timeout_s: float) -> None:
        import nats

        self.servers = servers
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = asyncio.new_event_loop()
        self._reports = _Reports(self._loop)
        self._client: Any = nats.NATS()
        self._end = weakref.finalize(self, _closed, self._loop, self._client)
        _OPEN.add(self)
        self.call(self._connect)

    async def _connect(self) -> None:
        options = {name: value for name, value in self.servers.options.items() if name != DOMAIN}
        try:
            await self._client.connect(
                [address if "://" in address else f"nats://{address}" for address in self.servers.addresses],
                **{"name": "causal", **options},
                error_cb=self._reports.note,
                closed_cb=self._reports.note_end,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=max(1, int(self._timeout_s)),
            )
        except Exception as problem:
            raise self._reports.last or problem from None

    @property
    def gone(self) -> bool:
        """Whether the connection has ended, or belongs to the process that forked this one."""
        return self._loop is None or self._reports.end.done()

    @property
    def payload_max(self) -> int:
        """The largest message, with headers, that the server takes."""
        return int(self._client.max_payload)

    # -- calls --------------------------------------------------------------------------------------------------

    def call(self, act: Callable[[], Coroutine[Any, Any, T]], what: str = "") -> T:
        """Return the result of a coroutine.

        Args:
            what: the subject of the call, for messages.

        Raises:
            Declined: JetStream's answer is an error.
            CausalError: there is no answer, or the user may not ask; the connection is closed.
        """
        invariant(self._loop is not None, "a connection is used where it was made, until it is closed")
        try:
            return self._loop.run_until_complete(self._bounded(act()))  # type: ignore[union-attr]
        except (Declined, CausalError):
            raise
        except Exception as problem:
            self.close()
            raise translated(problem, self.servers, what) from None
        except BaseException:
            self.close()
            raise

    async def _bounded(self, act: Awaitable[T]) -> T:
        """Return the result of `act`, unless the connection ends first or the time is over."""
        task = asyncio.ensure_future(act)
        waited: set[asyncio.Future[Any]] = {task, self._reports.end}
        await asyncio.wait(waited, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
            if self._reports.end.done():
                raise self._reports.end.result()
            raise TimeoutError(f"no answer in {self._timeout_s:g} s")
        return task.result()

    async def ask(self, subject: str, body: bytes = b"", headers: Headers | None = None) -> Any:
        """Return the answer to a message of JetStream's protocol; for `call`.

        Raises:
            Declined: the answer is an error.
        """
        reply = await self._client.request(subject, body, timeout=self._timeout_s, headers=dict(headers or {}) or None)
        answer = json.loads(reply.data)
        if "error" in answer:
            raise Declined(int(answer["error"].get("err_code", 0)), str(answer["error"].get("description", "")))
        return answer

    async def api(self, call: str, /, **fields: Any) -> Any:
        """Return the answer to a call of JetStream's API, such as "STREAM.INFO.orders"; for `call`."""
        return await self.ask(f"{self.servers.api}.{call}", json.dumps(fields).encode())

    async def send(self, subject: str, body: bytes, headers: Headers | None = None, reply: str = "") -> None:
        """Send a message without waiting for an answer; for `call`."""
        await self._client.publish(subject, body, reply=reply, headers=dict(headers) if headers else None)

    async def listen(self, take: Callable[[Any], None] | None = None) -> tuple[str, Any]:
        """Return a new inbox and its subscription, whose messages go to `take`, if it is given; for `call`."""
        inbox = self._client.new_inbox()

        async def taken(message: Any) -> None:
            take(message)  # type: ignore[misc]

        limits = {"pending_msgs_limit": 0, "pending_bytes_limit": 0}
        return inbox, await self._client.subscribe(inbox, cb=taken if take else None, **limits)

    def turn(self, enough: Callable[[], bool]) -> None:
        """Take what has arrived, without waiting, until it is enough."""
        self.call(lambda: self._turned(enough))

    async def _turned(self, enough: Callable[[], bool]) -> None:
        seen = -1
        for _ in range(PASSES_MAX // PASSES):
            if enough() or seen == self._client.stats["in_bytes"]:
                return
            seen = self._client.stats["in_bytes"]
            for _ in range(PASSES):
                await asyncio.sleep(0)

    def close(self) -> None:
        """Close the connection; one that is forgotten is closed when it is collected."""
        self._loop = None
        _OPEN.discard(self)
        self._end()

    def _leave_to_parent(self) -> None:
        """Forget the loop of the process that forked this one, without closing what both share."""
        self._loop = None
        _LEFT.append(self._end.detach())


def _closed(loop: asyncio.AbstractEventLoop, client: Any) -> None:
    if asyncio._get_running_loop() is not None:  # collected while another connection is used
        _LEFT.append((loop, client))
        return
    with suppress(Exception):
        loop.run_until_complete(asyncio.wait_for(client.close(), CLOSE_S))
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_S))
    loop.close()


_OPEN: weakref.WeakSet[Link] = weakref.WeakSet()
_LEFT: list[Any] = []
"""Loops and clients that are neither used nor freed."""


def _leave_all_to_parent() -> None:
    for link in list(_OPEN):
        link._leave_to_parent()
    _OPEN.clear()


os.register_at_fork(after_in_child=_leave_all_to_parent)
