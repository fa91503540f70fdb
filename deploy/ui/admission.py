"""The rule that determines which requests the dashboard answers. Pure.

A page of another site can make a browser send requests to 127.0.0.1, under that site's name (DNS rebinding) or under
ours, and any user of the machine can connect to a port.  Therefore a request needs a name that is ours, the token that
`causal ui` has printed and, if it changes anything, the origin of our own page.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
TOKEN = "x-causal-token"
"""A header and not a cookie, because a browser never sends it automatically."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers of every answer: nothing is loaded from elsewhere, nothing inline runs, nothing is kept."""


def refusal(headers: Mapping[str, str], token: str, changes: bool, secret: bool = True) -> str | None:
    """Return the reason why a request is refused; None if the request is to be answered.

    Args:
        headers: the headers of the request, with names in lower case.
        token: the token that `causal ui` has printed.
        changes: whether the request is to change the job.
        secret: whether the answer is about the job, rather than one of the page's own files.
    """
    host = headers.get("host", "")
    if _name(host) not in LOOPBACK:
        return "the address of the page is not an address of this machine; open the one that `causal ui` has printed"
    if changes and headers.get("origin") != f"http://{host}":
        return "the request does not come from the page of this dashboard"
    presented = headers.get(TOKEN, "").encode(errors="replace")
    if (secret or changes) and not compare_digest(presented, token.encode()):
        return "the token is missing or belongs to another dashboard; open the address that `causal ui` has printed"
    return None


def _name(host: str) -> str:
    """Return the name in a `Host` header, without its port; empty for none."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host
    return name if port.isdecimal() else ""
