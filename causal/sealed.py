"""Sealed JSON: an object that contains the digest of the rest of it, so that damage is detected.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

DIGEST = "digest"


def seal(content: Mapping[str, Any]) -> str:
    """Returns the object as text, with its digest."""
    return json.dumps({**content, DIGEST: digest_of(content)}, indent=1, sort_keys=True)


def unseal(text: str) -> dict[str, Any]:
    """Returns the object that `seal` wrote; one without a digest, written by hand, is taken as it is.

    Raises:
        ValueError: it is no object, or not the one that was sealed.
        RecursionError: it is nested too deeply.
    """
    content = json.loads(text)
    if type(content) is not dict:
        raise ValueError("it holds no settings")
    if DIGEST in content and content.pop(DIGEST) != digest_of(content):
        raise ValueError("its digest does not match")
    return content


def digest_of(content: Mapping[str, Any]) -> str:
    """Returns the digest of the content, independent of its layout."""
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
