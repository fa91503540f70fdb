"""HTTP connections that wait for the final answer to a request and skip informational answers (1xx).

Python's own client skips only status 100, and treats 102 (Processing) or 103 (Early Hints) as the final answer.
"""

from __future__ import annotations

import http.client

INTERIM_MAX = 100
"""The most interim answers to one request."""


class FinalAnswer(http.client.HTTPResponse):
    """An answer after any number of informational answers; 101 is final, because it ends HTTP on the connection."""

    _interim = 0

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        if 100 <= status < 200 and status != http.client.SWITCHING_PROTOCOLS:
            self._interim += 1
            if self._interim > INTERIM_MAX:
                raise http.client.HTTPException(f"a request received more than {INTERIM_MAX} interim answers")
            status = http.client.CONTINUE  # the base class skips an answer with this status together with its headers
        return version, status, reason


class PlainConnection(http.client.HTTPConnection):
    """A connection without TLS."""

    response_class = FinalAnswer


class SecureConnection(http.client.HTTPSConnection):
    """A connection with TLS."""

    response_class = FinalAnswer


def content_of(answer: http.client.HTTPResponse, bytes_max: int) -> bytes:
    """Return at most the first `bytes_max` bytes of an answer's content.

    Raises:
        HTTPException: the connection ended before the content was complete.
    """
    content = answer.read(bytes_max)
    if answer.length and len(content) < bytes_max:
        raise http.client.IncompleteRead(content, answer.length)
    return content
