"""The names of this machine in requests, and the header with the token.  Pure."""

from __future__ import annotations

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
TOKEN = "x-causal-token"
"""A header rather than a cookie, because a browser never sends it automatically."""


def named_host(host: str) -> str:
    """Return the name in a `Host` header, without the port; empty if there is none."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host
    return name if port.isdecimal() else ""
