"""JSON that says whether it is whole: an object with the digest of all the rest in it.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

DIGEST = "digest"


def seal(told: Mapping[str, Any]) -> str:
    """The object as text, with its digest."""
    return json.dumps({**told, DIGEST: digest_of(told)}, indent=1, sort_keys=True)


def unseal(text: str) -> dict[str, Any]:
    """What `seal` was given; one without a digest, written by hand, is taken as it is.

    Raises:
        ValueError: it is no object, or not the one that was sealed.
        RecursionError: it is nested beyond measure.
    """
    told = json.loads(text)
    if type(told) is not dict:
        raise ValueError("it holds no settings")
    if DIGEST in told and told.pop(DIGEST) != digest_of(told):
        raise ValueError("its digest does not match")
    return told


def digest_of(told: Mapping[str, Any]) -> str:
    """Of the content, however it is laid out."""
    return blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()
