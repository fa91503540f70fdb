"""HTTP connections that wait for the final answer of a request: informational answers (1xx) are read and skipped.

Python's own client skips only 100, and treats 102 (Processing) or 103 (Early Hints) as the answer.
"""

from __future__ import annotations

import http.client

INTERIM_MAX = 100
"""The most interim answers to one request."""


class FinalAnswer(http.client.HTTPResponse):
    """An answer after any number of interim ones; 101 is final, as it ends HTTP on the connection."""

    _interim = 0

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        if 100 <= status < 200 and status != http.client.SWITCHING_PROTOCOLS:
            self._interim += 1
            if self._interim > INTERIM_MAX:
                raise http.client.HTTPException(f"more than {INTERIM_MAX} interim answers to one request")
            status = http.client.CONTINUE  # which the client skips with its headers
        return version, status, reason


class PlainConnection(http.client.HTTPConnection):
    """A connection without TLS."""

    response_class = FinalAnswer


class SecureConnection(http.client.HTTPSConnection):
    """A connection with TLS."""

    response_class = FinalAnswer


def content_of(answer: http.client.HTTPResponse, bytes_max: int) -> bytes:
    """Return the beginning of the content of an answer.

    Raises:
        HTTPException: it ends before it is complete.
    """
    content = answer.read(bytes_max)
    if answer.length and len(content) < bytes_max:
        raise http.client.IncompleteRead(content, answer.length)
    return content
