"""The rule that decides which requests the dashboard answers. Pure.

A page of another site can make a browser send requests to 127.0.0.1, under that site's name (DNS rebinding) or under
the dashboard's, and any user of the machine can connect to a port.  A request must therefore use one of the dashboard's
own names and contain the token that `causal ui` printed.  A request that changes anything must also have the origin of
the dashboard's own page.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from deploy.serving.host_names import LOOPBACK, named_host
from deploy.serving.host_names import TOKEN as TOKEN

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
"""The headers of every answer; they forbid loading from other sites, inline code, and caching."""


def refusal(headers: Mapping[str, str], token: str, changes: bool, secret: bool = True) -> str | None:
    """Return why a request is refused; None if it should be answered.

    Args:
        headers: the headers of the request, with names in lower case.
        token: the token that `causal ui` printed.
        changes: whether the request is meant to change the job.
        secret: whether the answer is about the job rather than being one of the page's own files.
    """
    host = headers.get("host", "")
    if named_host(host) not in LOOPBACK:
        return "the address of the page is not an address of this machine; open the one that `causal ui` has printed"
    if changes and headers.get("origin") != f"http://{host}":
        return "the request does not come from the page of this dashboard"
    presented = headers.get(TOKEN, "").encode(errors="replace")
    if (secret or changes) and not compare_digest(presented, token.encode()):
        return "the token is missing or belongs to another dashboard; open the address that `causal ui` has printed"
    return None
