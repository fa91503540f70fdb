"""A call with a time limit: it runs on a thread of its own, which cannot be stopped.

A call that exceeds its limit keeps running, and its result is ignored.  Their number per process is bounded: beyond it
the job stops with one line, because each of them keeps a thread and all that the thread references.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from causal.errors import OperatorFailed
from causal.records.values import encode

ABANDONED_MAX = 64
"""The number of calls of one process that may be over their limit and still running."""

LATE = "TimeoutError"
"""The kind of the failure that is recorded for a call over its limit."""

Outcome = tuple[bool, bytes]
"""Whether a call succeeded, and what is recorded of it."""


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
"""Calls over their limit; only the thread of the task changes the list."""


def within(timeout_s: float, attempt: Callable[[], Outcome], operator: str) -> Outcome:
    """Return the outcome of `attempt()`, or the failure that it took longer than `timeout_s`.

    Raises:
        OperatorFailed: too many calls of this process are over their limit and still running.
    """
    _abandoned[:] = [call for call in _abandoned if not call.ended.is_set()]
    if len(_abandoned) >= ABANDONED_MAX:
        raise OperatorFailed(
            f"operator {operator!r}: {len(_abandoned)} calls that were out of time have not come back; give fn "
            "a time-out of its own that ends it, and restart with --resume"
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
