"""Calls to a sink's stores: an unavailable store throttles its task, and calls are retried for a configured time.

A call that raises `Unavailable` is retried, at first after 10 ms and later after up to 1 s. A call that does not return
at all is detected by the thread that sends pulses (`causal.process.pulse`), which reads `waiting` and `overdue`. In
both cases, `waiting` contains the start and the reason, and the wait is limited.

A call that accepts rows in parts calls `progressed` after each part, so that only the time since then counts as an
outage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from causal.errors import RetriesExhausted, Unavailable
from causal.process.clock import monotonic_ns
from causal.task.performer import StoreUnavailable

T = TypeVar("T")

PAUSE_NS_MIN, PAUSE_NS_MAX = 10_000_000, 1_000_000_000
LONG_NS = 500_000_000
"""The duration above which a call is reported as waiting."""
NO_ANSWER = "a call has not returned"
_THREAD = threading.local()
"""The attribute `calls` is the `StoreCalls` whose call this thread is making, or None outside a call."""


def progressed() -> None:
    """Record, during a store call, that part of the call has been completed permanently."""
    calls: StoreCalls | None = getattr(_THREAD, "calls", None)
    if calls is not None:
        calls.progressed()


class StoreCalls:
    """The calls to the stores of one task.

    Args:
        patience_s: the maximum time that a store may be unavailable.
        report: called with ("waiting", {"line": message to log}) when there is something to report.

    State: `again_ns` is the time at which a failed call must be retried. `call_ns` is the time at which the current
    call began or last progressed, or 0 outside a call. Another thread may read both.
    """

    def __init__(self, task: str, patience_s: float, report: Callable[[str, dict[str, Any]], None]) -> None:
        self.again_ns = 0
        self.call_ns = 0
        self._task = task
        self._patience_ns = int(patience_s * 1e9)
        self._report = report
        self._since_ns = 0
        self._reason = ""
        self._pause_ns = PAUSE_NS_MIN

    @property
    def waiting(self) -> tuple[int, str] | None:
        """The time since which the task has been waiting for its store, and the reason; None if it is not waiting."""
        if self._since_ns:
            return self._since_ns, self._reason
        call_ns = self.call_ns
        return (call_ns, NO_ANSWER) if call_ns and monotonic_ns() - call_ns > LONG_NS else None

    def make(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` and return its result.

        Raises:
            StoreUnavailable: the attempt raised `Unavailable`, and will be retried at `again_ns`.
            RetriesExhausted: the store has been unavailable for too long.
        """
        self.call_ns = began_ns = monotonic_ns()
        _THREAD.calls = self
        try:
            answer = attempt()
        except Unavailable as problem:
            failed: Unavailable | None = problem
            began_ns = self.call_ns
        else:
            failed = None
        finally:
            self.call_ns, _THREAD.calls = 0, None
        if failed is not None:
            raise self._failed(began_ns, " ".join(str(failed).split())) from failed
        if self._since_ns:
            away_s = (monotonic_ns() - self._since_ns) / 1e9
            self._since_ns, self._reason, self._pause_ns = 0, "", PAUSE_NS_MIN
            self._report("waiting", {"line": f"{self._task}: its store is available again after {away_s:.1f} s"})
        return answer

    def progressed(self) -> None:
        """Treat any unavailability from now on as a new outage; see the module-level function `progressed`."""
        self.call_ns = now_ns = monotonic_ns()
        self._pause_ns = PAUSE_NS_MIN
        if self._since_ns:
            self._since_ns = now_ns

    def _failed(self, began_ns: int, reason: str) -> Unavailable:
        now_ns = monotonic_ns()
        first = not self._since_ns
        self._since_ns, self._reason = self._since_ns or began_ns, reason
        if now_ns - self._since_ns >= self._patience_ns:
            return RetriesExhausted(self._ended(now_ns - self._since_ns, reason))
        self.again_ns = now_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)
        if first:
            self._report("waiting", {"line": f"{self._task}: its store is unavailable, retrying: {reason}"})
        return StoreUnavailable(reason)

    def _ended(self, away_ns: int, reason: str) -> str:
        return (
            f"sink task {self._task}: its store has been unavailable for {away_ns / 1e9:.0f} s "
            f"(sink_retry_timeout_s is {self._patience_ns / 1e9:g}): {reason}; restart the job with --resume "
            "when the store is available again"
        )

    def overdue(self) -> str | None:
        """Return why the process must end if a call has not returned within the permitted time, or None."""
        call_ns = self.call_ns
        if not call_ns:
            return None
        away_ns = monotonic_ns() - (self._since_ns or call_ns)
        return self._ended(away_ns, self._reason or NO_ANSWER) if away_ns >= self._patience_ns + LONG_NS else None
