"""The decoding of the payloads of messages: JSON, text, bytes or a function; what cannot be decoded is `Unreadable`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from causal.errors import CausalError, PipelineError
from causal.records.unreadable import Unreadable
from operators.sources.files.cutting_rows import RAW_BYTES_MAX, json_of

Decode = Callable[[bytes], Any]
"""A function that returns the record of a payload; an exception means that the payload is not a record."""

PLAIN: Mapping[str, Decode] = {
    "json": lambda payload: json_of(payload.decode()),
    "text": lambda payload: payload.decode(),
    "bytes": lambda payload: payload,
}
"""Format → the function that decodes it; needs no library and no schema."""


def plain_decoder(said: str, decode: object) -> Decode:
    """Return the function that decodes payloads.

    Args:
        said: the source, for messages.
        decode: one of `PLAIN`, or a function.

    Raises:
        PipelineError: it is neither.
    """
    if callable(decode) and not isinstance(decode, str):
        return decode
    if decode not in PLAIN:
        raise PipelineError(f"{said}: decode is {decode!r}; use one of {', '.join(PLAIN)}, or a function of bytes")
    return PLAIN[str(decode)]


def decoded(decode: Decode, payload: bytes, where: str) -> Any:
    """Return the record of a payload, or an `Unreadable` at `where` if it is not one.

    Raises:
        CausalError: what decodes it, such as a registry of schemas, is unavailable.
    """
    try:
        return decode(payload)
    except CausalError:
        raise
    except Exception as problem:
        return unreadable(where, reason_of(problem), payload)


def unreadable(where: str, why: str, payload: bytes) -> Unreadable:
    """Return the element for a payload that is not a record, with its beginning, as text if it is."""
    shown = payload[:RAW_BYTES_MAX]
    try:
        return Unreadable(where, why, shown.decode())
    except UnicodeDecodeError:
        return Unreadable(where, why, shown)


def reason_of(problem: Exception) -> str:
    """Return why a payload is not a record, in one line."""
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}"[:200]
