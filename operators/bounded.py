"""A call that is waited for only so long: it runs on a thread of its own, which nobody can stop.

What is out of time goes on in its thread, unheard.  So many of these may be left behind in a process; after that the
job stops with one line, because each of them keeps a thread and whatever it holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from causal.errors import OperatorFailed
from causal.values import encode

ABANDONED_MAX = 64
"""Calls that are out of time and have not come back, of one process."""

LATE = "TimeoutError"
"""The kind of the failure that is recorded for a call that is out of time."""

Outcome = tuple[bool, bytes]
"""Whether a call went well, and what is recorded of it."""


class _Call:
    """One call on its thread."""

    def __init__(self, attempt: Callable[[], Outcome]) -> None:
        self._attempt = attempt
        self.outcome: Outcome | None = None
        self.problem: BaseException | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            self.outcome = self._attempt()
        except BaseException as problem:  # raised again where the call is waited for
            self.problem = problem
        self.ended.set()


_abandoned: list[_Call] = []
"""Written by the task's thread alone."""


def within(timeout_s: float, attempt: Callable[[], Outcome], operator: str) -> Outcome:
    """The outcome of `attempt()`, or that it did not come within `timeout_s`.

    Raises:
        OperatorFailed: too many calls of this process have been left behind.
    """
    _abandoned[:] = [call for call in _abandoned if not call.ended.is_set()]
    if len(_abandoned) >= ABANDONED_MAX:
        raise OperatorFailed(
            f"operator {operator!r}: {len(_abandoned)} calls that were out of time have not come back; give fn "
            "a time-out of its own that ends it, and go on with --resume"
        )
    call = _Call(attempt)
    threading.Thread(target=call.run, name="bounded-call", daemon=True).start()
    if not call.ended.wait(timeout_s):
        _abandoned.append(call)
        return False, encode([False, LATE, f"no answer within {timeout_s:g} s"])
    if call.problem is not None:
        raise call.problem
    if call.outcome is None:
        raise OperatorFailed(f"operator {operator!r}: a call ended without an outcome")
    return call.outcome
