"""Calls of a sink's stores: one that is away throttles its task, is seen to, and is waited for as long as told.

A call that says `Unavailable` is made again, after 10 ms at first, after 1 s at last.  One that does not return at all
is noticed by the thread that sends pulses (`causal.shell.pulse`), which asks `waiting` and `overdue`.  Either way
`waiting` says since when and why, and there is an end to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from causal.errors import OutOfPatience, Unavailable
from causal.shell.clock import monotonic_ns

T = TypeVar("T")

PAUSE_NS_MIN, PAUSE_NS_MAX = 10_000_000, 1_000_000_000
LONG_NS = 500_000_000
"""A call that takes longer is told of."""
NO_ANSWER = "a call has not come back"


class StoreAway(Unavailable):
    """The call is to be made again at `StoreCalls.again_ns`; what was to follow waits."""


class StoreCalls:
    """Every call of the stores of one task goes through here.

    Args:
        patience_s: how long a store may be away.
        report: called with ("waiting", {"line": what to log}) when there is something to tell.

    State: `again_ns` is when the call that failed is to be made again; `call_ns` when the call that is under way
    began, 0 when none is.  Another thread may read them.
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
        """Since when its store is waited for, and why; None when it is not."""
        if self._since_ns:
            return self._since_ns, self._reason
        call_ns = self.call_ns
        return (call_ns, NO_ANSWER) if call_ns and monotonic_ns() - call_ns > LONG_NS else None

    def make(self, attempt: Callable[[], T]) -> T:
        """What `attempt` gives.

        Raises:
            StoreAway: it is `Unavailable`.
            OutOfPatience: it has been for too long.
        """
        self.call_ns = began_ns = monotonic_ns()
        try:
            answer = attempt()
        except Unavailable as problem:
            failed: Unavailable | None = problem
        else:
            failed = None
        finally:
            self.call_ns = 0
        if failed is not None:
            raise self._failed(began_ns, " ".join(str(failed).split())) from failed
        if self._since_ns:
            away_s = (monotonic_ns() - self._since_ns) / 1e9
            self._since_ns, self._reason, self._pause_ns = 0, "", PAUSE_NS_MIN
            self._report("waiting", {"line": f"{self._task}: its store is back after {away_s:.1f} s"})
        return answer

    def _failed(self, began_ns: int, reason: str) -> Unavailable:
        now_ns = monotonic_ns()
        first = not self._since_ns
        self._since_ns, self._reason = self._since_ns or began_ns, reason
        if now_ns - self._since_ns >= self._patience_ns:
            return OutOfPatience(self._ended(now_ns - self._since_ns, reason))
        self.again_ns = now_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, PAUSE_NS_MAX)
        if first:
            self._report("waiting", {"line": f"{self._task}: its store is away, trying again: {reason}"})
        return StoreAway(reason)

    def _ended(self, away_ns: int, reason: str) -> str:
        return (
            f"sink task {self._task}: its store has been away for {away_ns / 1e9:.0f} s (sink_patience_s is "
            f"{self._patience_ns / 1e9:g}): {reason}; when it is back, go on with --resume"
        )

    def overdue(self) -> str | None:
        """Why the process must end, because a call has not come back for longer than it may be waited for."""
        call_ns = self.call_ns
        if not call_ns:
            return None
        away_ns = monotonic_ns() - (self._since_ns or call_ns)
        return self._ended(away_ns, self._reason or NO_ANSWER) if away_ns >= self._patience_ns + LONG_NS else None
