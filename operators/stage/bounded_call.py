"""Calls with a time limit; each call runs on its own thread, which cannot be stopped.

A call that exceeds its limit keeps running, and its result is ignored. Each such call keeps a thread and everything
that the thread references, so the number of these calls per process is limited. If the limit is exceeded, the job stops
with a one-line error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from causal.errors import OperatorFailed
from causal.records.values import encode

ABANDONED_MAX = 64
"""The maximum number of calls in one process that have exceeded their time limit and are still running."""

LATE = "TimeoutError"
"""The kind of failure that is recorded for a call that exceeds its time limit."""

Outcome = tuple[bool, bytes]
"""A pair of whether a call succeeded and the bytes that are recorded for it."""


class _Call:
    """A call that runs on its own thread."""

    def __init__(self, attempt: Callable[[], Outcome]) -> None:
        self._attempt = attempt
        self.outcome: Outcome | None = None
        self.problem: BaseException | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            self.outcome = self._attempt()
        except BaseException as problem:  # `within` raises it again on the task's thread
            self.problem = problem
        self.ended.set()


_abandoned: list[_Call] = []
"""Calls that have exceeded their time limit; only the task's thread changes the list."""


def within(timeout_s: float, attempt: Callable[[], Outcome], operator: str) -> Outcome:
    """Return the outcome of `attempt()`, or a timeout failure if the call takes longer than `timeout_s`.

    Raises:
        OperatorFailed: too many calls in this process have exceeded their time limit and are still running.
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
