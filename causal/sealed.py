"""Sealed JSON and bytes, which contain a digest of their other content so that damage is detected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

try:
    from _blake2 import blake2b  # `hashlib` has the same function, but also loads OpenSSL
except ImportError:  # another interpreter than CPython
    from hashlib import blake2b

DIGEST = "digest"
DIGEST_BYTES = 8
"""The length of the digest that precedes sealed bytes."""


def seal(content: Mapping[str, Any]) -> str:
    """Return the object as text, including its digest."""
    return json.dumps({**content, DIGEST: digest_of(content)}, indent=1, sort_keys=True)


def unseal(text: str) -> dict[str, Any]:
    """Return the object that `seal` wrote; an object without a digest, for example one written by hand, is accepted.

    Raises:
        ValueError: the text is not a JSON object, or its digest does not match.
        RecursionError: the text is nested too deeply.
    """
    content = json.loads(text)
    if type(content) is not dict:
        raise ValueError("it does not contain settings")
    if DIGEST in content and content.pop(DIGEST) != digest_of(content):
        raise ValueError("its digest does not match")
    return content


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the digest of the content, independent of its formatting."""
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def seal_bytes(place: bytes, body: bytes) -> bytes:
    """Return `body` after a digest of its bytes and of the place to which it belongs."""
    return _digest(place, body) + body


def unseal_bytes(place: bytes, sealed: bytes) -> bytes:
    """Return the body that `seal_bytes` sealed for `place`.

    Raises:
        ValueError: the bytes are damaged or belong to another place.
    """

    body = sealed[DIGEST_BYTES:]
    if sealed[:DIGEST_BYTES] != _digest(place, body):
        raise ValueError("its digest does not match")
    return body


def _digest(place: bytes, body: bytes) -> bytes:
    return blake2b(place + b" " + body, digest_size=DIGEST_BYTES).digest()
