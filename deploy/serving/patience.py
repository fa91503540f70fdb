"""The protocol of both servers, which disconnects clients that send or read too slowly.

The number of connections is limited, so clients that never finish a request would otherwise exclude all others.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""The time for a whole request, from the connection or from the request's first byte."""
ANSWER_S = 90.0
"""The time for the answer, most of which a request for the state of a key may need."""


class Impatient(H11Protocol):  # type: ignore[misc]
    """A connection with a time limit for each half of an exchange."""

    _limit: asyncio.TimerHandle | None = None
    _asking = False

    def connection_made(self, transport: Any) -> None:
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._await(True)

    def data_received(self, data: bytes) -> None:
        """Process part of a request.  Only the end of the request changes the time limit."""
        super().data_received(data)
        asking = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if not (asking and self._asking):
            self._await(asking)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        super().connection_lost(exc)
        if self._limit is not None:
            self._limit.cancel()

    def _await(self, asking: bool) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._asking = asking
        self._limit = self.loop.call_later(REQUEST_S if asking else ANSWER_S, self.transport.abort)
