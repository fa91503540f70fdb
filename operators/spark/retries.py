"""Retries of requests to a shared store that is unavailable: ingestion waits, and its process logs the wait."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from causal.errors import Unavailable
from causal.storage.shared import insist

T = TypeVar("T")


def always() -> bool:
    """Return True, because a process that is still running always wants the result."""
    return True


def insisted(attempt: Callable[[], T], wanted: Callable[[], bool] = always) -> T:
    """Return the result of `attempt`, which is repeated while the store is unavailable.

    Raises:
        Unavailable: the result is no longer wanted.
    """
    results: list[T] = []
    insist(lambda: results.append(attempt()), _Line().say, wanted)
    if not results:
        raise Unavailable("the process that requested the retry ended before the store was available again")
    return results[0]


class _Line:
    """A logger of the first failure in a series of failures, and of the end of the series."""

    def __init__(self) -> None:
        self._failing = False

    def say(self, problem: str) -> None:
        if problem and not self._failing:
            print(f"ingestion waits: {problem}", file=sys.stderr, flush=True)
        elif not problem:
            print("ingestion resumes because the store answers again", file=sys.stderr, flush=True)
        self._failing = bool(problem)
