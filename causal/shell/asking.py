"""The pool that asks the outside world for a task: threads, time-outs, retries; only the last outcome becomes an event.

The task never waits: what is asked is queued, at most `concurrency` calls of an operator run at the same time, and an
answer wakes the task's loop as the disk does.  A call cannot be stopped: one that is out of time is abandoned, its
thread goes on unheard, and its place goes to the next call.  While `concurrency` or more are abandoned, `abandoned`
says so; with `ABANDONED_PER_PLACE` times as many the task fails, because threads are not without end.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from causal.errors import OperatorFailed
from causal.events import Answered
from causal.ports import Request
from causal.shell.clock import monotonic_ns

BACKOFF_DOUBLINGS_MAX = 10
ABANDONED_PER_PLACE = 4
"""Calls that are out of time and have not returned, per call that may run: with more the task fails."""


@dataclass(frozen=True, slots=True)
class Asker:
    """How requests of one operator are put.

    `perform(body)` gives (whether it went well, the answer's bytes) and does not raise; `late(seconds)` is the answer
    where it took too long.
    """

    perform: Callable[[bytes], tuple[bool, bytes]]
    late: Callable[[float], bytes]
    concurrency: int
    timeout_s: float | None = None
    retries: int = 0
    backoff_s: float = 0.1
    operator: str = ""


@dataclass(slots=True)
class _Attempt:
    """One call of one request."""

    request: Request
    tries: int
    due_ns: int = 0
    """When it may start, or from its start on when it is out of time; 0 for at once, or never."""
    began_ns: int = 0


class _Operator:
    """The calls of one operator: those that wait, those that run, those that nobody waits for any more."""

    def __init__(self, asker: Asker, told: Callable[[_Attempt, bool, bytes], None]) -> None:
        self.asker = asker
        self.waiting: deque[_Attempt] = deque()
        self.resting: list[_Attempt] = []
        """To be tried again, from `due_ns` on."""
        self.running: dict[int, _Attempt] = {}
        self.abandoned: dict[int, _Attempt] = {}
        self._told = told
        self._calls: queue.SimpleQueue[_Attempt | None] = queue.SimpleQueue()
        self._threads = 0

    def start(self, now_ns: int) -> None:
        """Run what may run now."""
        for attempt in [each for each in self.resting if each.due_ns <= now_ns]:
            self.resting.remove(attempt)
            self.waiting.append(attempt)
        while self.waiting and len(self.running) < self.asker.concurrency:
            attempt = self.waiting.popleft()
            attempt.began_ns = now_ns
            timeout_s = self.asker.timeout_s
            attempt.due_ns = 0 if timeout_s is None else now_ns + int(timeout_s * 1e9)
            self.running[id(attempt)] = attempt
            if self._threads < len(self.running) + len(self.abandoned):
                self._threads += 1
                threading.Thread(target=self._work, name="asking", daemon=True).start()
            self._calls.put(attempt)

    def ended(self, attempt: _Attempt) -> bool:
        """A call has come back; false if nobody waits for it any more."""
        self.abandoned.pop(id(attempt), None)
        return self.running.pop(id(attempt), None) is not None

    def out_of_time(self, now_ns: int) -> list[_Attempt]:
        """Give up the calls that have taken too long."""
        late = [attempt for attempt in self.running.values() if attempt.due_ns and attempt.due_ns <= now_ns]
        for attempt in late:
            self.abandoned[id(attempt)] = self.running.pop(id(attempt))
        if len(self.abandoned) > ABANDONED_PER_PLACE * self.asker.concurrency:
            raise OperatorFailed(
                f"operator {self.asker.operator!r}: {len(self.abandoned)} calls were out of time after "
                f"{self.asker.timeout_s:g} s and have not returned; give the client that it calls a time-out of its own"
            )
        return late

    def again(self, attempt: _Attempt, now_ns: int) -> bool:
        """Try once more, later; false when that was the last try."""
        if attempt.tries > self.asker.retries:
            return False
        pause_s = self.asker.backoff_s * 2 ** min(attempt.tries - 1, BACKOFF_DOUBLINGS_MAX)
        self.resting.append(_Attempt(attempt.request, attempt.tries + 1, now_ns + int(pause_s * 1e9)))
        return True

    def next_ns(self) -> int | None:
        """When time alone changes something."""
        due = [attempt.due_ns for attempt in self.running.values() if attempt.due_ns]
        return min([*due, *(attempt.due_ns for attempt in self.resting)], default=None)

    def _work(self) -> None:
        while True:
            attempt = self._calls.get()
            if attempt is None:
                return
            self._told(attempt, *self.asker.perform(attempt.request.body))

    def close(self) -> None:
        """End the threads that wait for calls; those in a call end with the process."""
        for _ in range(self._threads):
            self._calls.put(None)


class Asking:
    """Everything that one task asks.

    Args:
        askers: by ordinal of the operator in the chain; without any there is no descriptor and no thread.

    State: `wake` becomes readable when `answers` has something to say, and is -1 where nobody asks; `next_ns` is when
    it has by time alone.
    """

    def __init__(self, askers: Mapping[int, Asker]) -> None:
        self._ended: queue.SimpleQueue[tuple[int, _Attempt, bool, bytes]] = queue.SimpleQueue()
        self._operators = {ordinal: _Operator(asker, partial(self._tell, ordinal)) for ordinal, asker in askers.items()}
        self.wake = self._waker = -1
        self._lock = threading.Lock()
        """Around the descriptor: it may be closed while calls that nobody waits for come back."""
        if askers:
            self.wake, self._waker = os.pipe()
            os.set_blocking(self.wake, False)
            os.set_blocking(self._waker, False)

    def ask(self, requests: Sequence[Request]) -> None:
        """Put these requests, in their order."""
        for request in requests:
            self._operators[request.operator].waiting.append(_Attempt(request, 1))
        self._start()

    def answers(self) -> list[Answered]:
        """The last outcomes since the last call.

        Raises:
            OperatorFailed: too many calls are out of time and have not returned.
        """
        told: list[Answered] = []
        now_ns = monotonic_ns()
        if self.wake >= 0:
            try:
                os.read(self.wake, 4096)
            except BlockingIOError:
                pass  # time alone may have brought something
        while not self._ended.empty():
            ordinal, attempt, well, body = self._ended.get()
            operator = self._operators[ordinal]
            if operator.ended(attempt) and (well or not operator.again(attempt, now_ns)):
                told.append(Answered(ordinal, attempt.request.number, body))
        for ordinal, operator in self._operators.items():
            for attempt in operator.out_of_time(now_ns):
                if not operator.again(attempt, now_ns):
                    body = operator.asker.late(operator.asker.timeout_s or 0.0)
                    told.append(Answered(ordinal, attempt.request.number, body))
        self._start()
        return told

    def next_ns(self) -> int | None:
        """When to call `answers` though nothing has come."""
        return min((at for each in self._operators.values() if (at := each.next_ns()) is not None), default=None)

    @property
    def abandoned(self) -> str:
        """Which operator has as many calls out of time as it may have running, in words; empty for none."""
        for each in self._operators.values():
            if len(each.abandoned) >= each.asker.concurrency:
                timeout_s, name = each.asker.timeout_s, each.asker.operator
                return (
                    f"operator {name!r}: {each.asker.concurrency} calls or more have not returned {timeout_s:g} s after"
                    " they began; others run in new threads"
                )
        return ""

    def counters(self) -> dict[str, float]:
        """How many calls run, are abandoned, and how long the oldest of them has run; nothing where nobody asks."""
        if not self._operators:
            return {}
        now_ns = monotonic_ns()
        running = [attempt for each in self._operators.values() for attempt in each.running.values()]
        abandoned = [attempt for each in self._operators.values() for attempt in each.abandoned.values()]
        oldest_ns = max((now_ns - attempt.began_ns for attempt in running + abandoned), default=0)
        return {"calls": len(running), "calls_abandoned": len(abandoned), "calls_oldest_s": round(oldest_ns / 1e9, 1)}

    def close(self) -> None:
        for operator in self._operators.values():
            operator.close()
        with self._lock:
            if self._waker >= 0:
                os.close(self.wake)
                os.close(self._waker)
                self._waker = -1

    def _start(self) -> None:
        now_ns = monotonic_ns()
        for operator in self._operators.values():
            operator.start(now_ns)

    def _tell(self, ordinal: int, attempt: _Attempt, well: bool, body: bytes) -> None:
        """On a thread of the pool."""
        self._ended.put((ordinal, attempt, well, body))
        with self._lock:
            if self._waker >= 0:
                try:
                    os.write(self._waker, b"!")
                except BlockingIOError:
                    return  # the pipe is full: the task will wake up
