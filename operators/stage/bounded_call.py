"""Calls with a time limit; each runs on its own thread, which cannot be stopped.

A call that exceeds its limit keeps running, and its result is ignored.  The number of such calls per process is
bounded: beyond the bound the job stops with a one-line error, because each call keeps a thread and everything that the
thread references.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from causal.errors import OperatorFailed
from causal.records.values import encode

ABANDONED_MAX = 64
"""The maximum number of calls in one process that may have exceeded their limit and still be running."""

LATE = "TimeoutError"
"""The kind of failure that is recorded for a call that exceeds its limit."""

Outcome = tuple[bool, bytes]
"""Whether a call succeeded, and the bytes that are recorded for it."""


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
        except BaseException as problem:  # `within` raises it again on the thread of the task
            self.problem = problem
        self.ended.set()


_abandoned: list[_Call] = []
"""Calls that have exceeded their limit; only the thread of the task changes the list."""


def within(timeout_s: float, attempt: Callable[[], Outcome], operator: str) -> Outcome:
    """Return the outcome of `attempt()`, or a time-out failure if it takes longer than `timeout_s`.

    Raises:
        OperatorFailed: too many calls in this process have exceeded their limit and are still running.
    """
    _abandoned[:] = [call for call in _abandoned if not call.ended.is_set()]
    if len(_abandoned) >= ABANDONED_MAX:
        raise OperatorFailed(
            f"operator {operator!r}: {len(_abandoned)} calls that timed out have not returned; set a timeout "
            "inside fn, and restart with --resume"
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
