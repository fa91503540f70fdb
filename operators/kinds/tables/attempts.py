"""Calls to a user's function that may raise; an exception is returned as a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that a function raised instead of returning a value."""

    problem: Exception


def attempted(fn: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or `Raised` if the function raises."""
    try:
        return fn(*arguments)
    except Exception as problem:
        return Raised(problem)


def value_or_none(fn: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call; None if it raises, because its failure has been or will be reported elsewhere."""
    result = attempted(fn, *arguments)
    return None if type(result) is Raised else result
