"""Early refusal of values that no state can store, while the change can still be undone."""

from __future__ import annotations

from typing import Any

from causal.records.values import NotCarried, encode, place_of_refused


def stored(value: Any, what: str) -> Any:
    """Return a value that is about to be stored as state, unchanged.

    Args:
        what: the name of the value, for the error message.

    Raises:
        NotCarried: no checkpoint could write the value.
    """
    try:
        encode([[[value]]])  # nest the value as deeply as in a fragment
    except NotCarried as refused:
        place = place_of_refused(value, refused)
        raise NotCarried(f"{what}{place} cannot be stored: {refused}") from None
    return value
