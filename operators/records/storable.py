"""Refuses what no state can hold where that can still be undone: a checkpoint could only end the job."""

from __future__ import annotations

from typing import Any

from causal.records.values import NotCarried, encode, place_of_refused


def stored(value: Any, what: str) -> Any:
    """Return a value that is about to be kept as state, unchanged.

    Args:
        what: names it in the message.

    Raises:
        NotCarried: no checkpoint could write it.
    """
    try:
        encode([[[value]]])  # as deep as in a fragment
    except NotCarried as refused:
        place = place_of_refused(value, refused)
        raise NotCarried(f"{what}{place} cannot be kept: {refused}") from None
    return value
