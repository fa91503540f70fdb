"""Calls of a user's function that may raise: what it raised is a result like any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that a function raised instead of returning a value."""

    problem: Exception


def attempted(fn: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, `Raised` where there is none."""
    try:
        return fn(*arguments)
    except Exception as problem:
        return Raised(problem)


def value_or_none(fn: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call; None where it raises: that was, or will be, a dead letter."""
    result = attempted(fn, *arguments)
    return None if type(result) is Raised else result
