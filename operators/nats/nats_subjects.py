"""Names of streams and subjects of NATS: which are valid, and which subjects a pattern matches (pure).

A subject is tokens with dots between them. In a pattern, `*` is one token, and `>` at the end is one or more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from causal.errors import PipelineError

CHARS_MAX = 255
_STREAM = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+")
_TOKEN = re.compile(r"[^\s.*>\x00-\x1f\x7f]+")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")


def check_stream(said: str, stream: object) -> None:
    """Raise `PipelineError` unless NATS accepts `stream` as the name of a stream."""
    if not isinstance(stream, str) or not _STREAM.fullmatch(stream) or len(stream) > CHARS_MAX:
        raise PipelineError(
            f"{said}: stream is {stream!r}; use up to {CHARS_MAX} characters without spaces, '.', '*', '>' and slashes"
        )


def is_subject(subject: object) -> bool:
    """Return whether a message can be published to this subject."""
    return isinstance(subject, str) and len(subject) <= CHARS_MAX and all(map(_TOKEN.fullmatch, subject.split(".")))


def is_pattern(pattern: object) -> bool:
    """Return whether this is a subject, perhaps with wildcards."""
    if not isinstance(pattern, str) or len(pattern) > CHARS_MAX:
        return False
    *first, last = pattern.split(".")
    return all(each == "*" or _TOKEN.fullmatch(each) for each in first) and (last in ("*", ">") or is_subject(last))


def overlap(one: str, other: str) -> bool:
    """Return whether some subject matches both patterns."""
    ours, theirs = one.split("."), other.split(".")
    for mine, yours in zip(ours, theirs, strict=False):
        if ">" in (mine, yours):
            return True
        if "*" not in (mine, yours) and mine != yours:
            return False
    return len(ours) == len(theirs)


def overlaps(pattern: str, others: Iterable[str]) -> bool:
    """Return whether some subject matches the pattern and one of the others."""
    return any(overlap(pattern, other) for other in others)


def token_of(task: str) -> str:
    """Return the token of a subject for a task; different tasks have different ones, apart from "-" and "/"."""
    return "".join(
        char if char in _PLAIN else "-" if char == "/" else "".join(f"_{byte:02x}" for byte in char.encode())
        for char in task
    )
