"""Checks of addresses, URLs and headers from users, which refuse invalid values where they are passed in."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from causal.errors import PipelineError

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_TEXT = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_OWN_HEADERS = frozenset(("content-length", "transfer-encoding", "host", "connection", "idempotency-key"))
"""The headers that every request sets itself; a different value would break the request."""


def is_loopback(address: str) -> bool:
    """Return whether an IPv4 or IPv6 address can be reached only by processes on this machine."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address == "localhost"
    return (getattr(known, "ipv4_mapped", None) or known).is_loopback


def check_url(who: str, url: object) -> SplitResult:
    """Return the parts of a URL to which an HTTP request can be sent.

    Args:
        who: the beginning of the error message.

    Raises:
        PipelineError: no request can be sent to the URL.
    """
    if not isinstance(url, str):
        raise PipelineError(f"{who} {url!r}, which is not text; use http://… or https://…")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
    except ValueError as problem:
        raise PipelineError(f"{who} {url!r}, which is not a URL ({problem}); use http://… or https://…") from None
    if parts.scheme not in ("http", "https") or not host:
        raise PipelineError(f"{who} {url!r}, which is not a URL; use one that begins with http:// or https://")
    if "@" in parts.netloc:
        raise PipelineError(
            f"{who} a URL with a user name for {host}, but user names are not sent; use a header or a token instead"
        )
    if port == 0 or not _can_be_host(host):
        raise PipelineError(f"{who} {url!r}, whose host or port is invalid; correct it")
    odd = any(character <= "\x20" or character == "\x7f" for character in url)
    if odd or not f"{parts.path}{parts.query}".isascii():
        raise PipelineError(
            f"{who} {url!r}, which has characters that a URL cannot contain; encode them (urllib.parse.quote: "
            "a space is %20)"
        )
    return parts


def _can_be_host(host: str) -> bool:
    if ":" in host:
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return True
    try:
        encoded = host.encode("idna").decode()
    except UnicodeError:
        return False
    return re.fullmatch(r"[A-Za-z0-9._-]+", encoded) is not None


def check_headers(who: str, headers: Mapping[str, str]) -> None:
    """Raise `PipelineError` for headers that cannot be sent in a request."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise PipelineError(f"{who} has a header {name!r}, which is not a valid header name; correct it")
        if name.lower() in _OWN_HEADERS:
            raise PipelineError(f"{who} has a header {name!r}, which every request already sets; leave it out")
        if not isinstance(value, str) or not _HEADER_TEXT.fullmatch(value):
            raise PipelineError(f"{who}: the value of its header {name!r} cannot be sent; use one line of Latin-1 text")
