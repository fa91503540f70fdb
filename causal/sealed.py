"""Sealed JSON and bytes: they contain the digest of the rest of them, so that damage is detected.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

DIGEST = "digest"
DIGEST_BYTES = 8
"""The length of the digest before sealed bytes."""


def seal(content: Mapping[str, Any]) -> str:
    """Return the object as text, with its digest."""
    return json.dumps({**content, DIGEST: digest_of(content)}, indent=1, sort_keys=True)


def unseal(text: str) -> dict[str, Any]:
    """Return the object that `seal` wrote; one without a digest, written by hand, is accepted.

    Raises:
        ValueError: it is not an object, or not the sealed one.
        RecursionError: it is nested too deeply.
    """
    content = json.loads(text)
    if type(content) is not dict:
        raise ValueError("it holds no settings")
    if DIGEST in content and content.pop(DIGEST) != digest_of(content):
        raise ValueError("its digest does not match")
    return content


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the digest of the content, independent of its layout."""
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def seal_bytes(place: bytes, body: bytes) -> bytes:
    """Return the bytes after a digest of them and of the place that they belong to."""
    return _digest(place, body) + body


def unseal_bytes(place: bytes, sealed: bytes) -> bytes:
    """Return what `seal_bytes` sealed for that place.

    Raises:
        ValueError: it is damaged, or belongs to another place.
    """
    body = sealed[DIGEST_BYTES:]
    if sealed[:DIGEST_BYTES] != _digest(place, body):
        raise ValueError("its digest does not match")
    return body


def _digest(place: bytes, body: bytes) -> bytes:
    return blake2b(place + b" " + body, digest_size=DIGEST_BYTES).digest()
