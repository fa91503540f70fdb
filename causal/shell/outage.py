"""Calls of a sink's stores: one that is away throttles its task, is seen to, and is waited for as long as told.

A call that says `Unavailable` is made again, after 10 ms at first, after 1 s at last.  One that does not return at all
is watched by a thread, which beats in the meantime in the name of the task: a process that waits for the outside is not
one that hangs.  Either way `waiting` says since when and why, and there is an end to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from causal.errors import OutOfPatience, Unavailable
from causal.shell.clock import monotonic_ns

T = TypeVar("T")

PAUSE_NS_MIN, PAUSE_NS_MAX = 10_000_000, 1_000_000_000
LONG_NS = 500_000_000
"""A call that takes longer is watched: well below what counts as hung."""
LOOK_S = 0.2
NO_ANSWER = "a call has not come back"


class StoreAway(Unavailable):
    """The call is to be made again at `StoreCalls.again_ns`; what was to follow waits."""


class StoreCalls:
    """Every call of the stores of one task goes through here.

    Args:
        patience_s: how long a store may be away.
        report: called with ("waiting", {"line": what to log, or nothing}) when there is something to tell, also by the
            watching thread while the task's own waits for a store; and with ("stuck", {"message": …}), after which
            that process must end, because a call does not come back at all.

    State: `again_ns` is when the call that failed is to be made again.
    """

    def __init__(self, task: str, patience_s: float, report: Callable[[str, dict[str, Any]], None]) -> None:
        self.again_ns = 0
        self._task = task
        self._patience_ns = int(patience_s * 1e9)
        self._report = report
        self._since_ns = 0
        self._reason = ""
        self._pause_ns = PAUSE_NS_MIN
        self._call_ns = 0
        """When the call that is under way began; 0 when none is."""
        self._mine = threading.Lock()
        """Held by the watcher while it speaks for the task; the task's own thread takes it when a call is over."""
        self._closed = threading.Event()

    def watch(self) -> None:
        """Begin to look after calls that do not come back."""
        threading.Thread(target=self._watch, name="store-calls", daemon=True).start()

    @property
    def waiting(self) -> tuple[int, str] | None:
        """Since when its store is waited for, and why; None when it is not."""
        if self._since_ns:
            return self._since_ns, self._reason
        call_ns = self._call_ns
        return (call_ns, NO_ANSWER) if call_ns and monotonic_ns() - call_ns > LONG_NS else None

    def make(self, attempt: Callable[[], T]) -> T:
        """What `attempt` gives.

        Raises:
            StoreAway: it is `Unavailable`.
            OutOfPatience: it has been for too long.
        """
        self._call_ns = monotonic_ns()
        try:
            answer = attempt()
        except Unavailable as problem:
            failed: Unavailable | None = problem
        else:
            failed = None
        finally:
            with self._mine:
                began_ns, self._call_ns = self._call_ns, 0
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

    def _watch(self) -> None:
        """On a thread of its own."""
        while not self._closed.wait(LOOK_S):
            call_ns = self._call_ns
            if not call_ns or monotonic_ns() - call_ns < LONG_NS:
                continue
            with self._mine:
                if self._call_ns != call_ns or self._closed.is_set():
                    continue
                away_ns = monotonic_ns() - (self._since_ns or call_ns)
                if away_ns >= self._patience_ns + LONG_NS:
                    self._report("stuck", {"message": self._ended(away_ns, self._reason or NO_ANSWER)})
                    return
                self._report("waiting", {})

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed.set()
