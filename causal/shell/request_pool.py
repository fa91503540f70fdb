"""The pool of threads that sends a task's requests, with timeouts and retries; only the last outcome is an event.

The task never waits. Requests are queued, at most `concurrency` calls of an operator run at the same time, and a
response wakes the task's loop in the same way as the disk does. A call cannot be stopped: if it times out, it is
abandoned, its result is ignored, and the next call takes its place. While `concurrency` or more calls are abandoned,
`abandoned` reports this. If there are more than `ABANDONED_PER_PLACE` times as many, the task fails, because the number
of threads is limited.
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
from causal.events import ResponseReceived
from causal.ports import Request
from causal.process.clock import monotonic_ns

BACKOFF_DOUBLINGS_MAX = 10
ABANDONED_PER_PLACE = 4
"""The maximum number of abandoned calls that have not returned, per permitted call; with more, the task fails."""


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """The rules for sending the requests of one operator.

    `perform(body)` returns (whether the call succeeded, response bytes) and does not raise. `late(seconds)` returns the
    response to use if the call took too long.
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
    """One attempt to perform one request."""

    request: Request
    tries: int
    due_ns: int = 0
    """The time at which the call may start or, once started, at which it times out; 0 means immediately or never."""
    began_ns: int = 0


class _Operator:
    """The calls of one operator: those that are waiting, running or abandoned."""

    def __init__(self, policy: RequestPolicy, deliver: Callable[[_Attempt, bool, bytes], None]) -> None:
        self.policy = policy
        self.waiting: deque[_Attempt] = deque()
        self.resting: list[_Attempt] = []
        """The attempts that will be repeated once their `due_ns` has been reached."""
        self.running: dict[int, _Attempt] = {}
        self.abandoned: dict[int, _Attempt] = {}
        self._deliver = deliver
        self._calls: queue.SimpleQueue[_Attempt | None] = queue.SimpleQueue()
        self._threads = 0

    def start(self, now_ns: int) -> None:
        """Start the calls that may run now."""
        for attempt in [each for each in self.resting if each.due_ns <= now_ns]:
            self.resting.remove(attempt)
            self.waiting.append(attempt)
        while self.waiting and len(self.running) < self.policy.concurrency:
            attempt = self.waiting.popleft()
            attempt.began_ns = now_ns
            timeout_s = self.policy.timeout_s
            attempt.due_ns = 0 if timeout_s is None else now_ns + int(timeout_s * 1e9)
            self.running[id(attempt)] = attempt
            if self._threads < len(self.running) + len(self.abandoned):
                self._threads += 1
                threading.Thread(target=self._work, name="asking", daemon=True).start()
            self._calls.put(attempt)

    def ended(self, attempt: _Attempt) -> bool:
        """Record that a call has returned; return false if it had been abandoned."""
        self.abandoned.pop(id(attempt), None)
        return self.running.pop(id(attempt), None) is not None

    def out_of_time(self, now_ns: int) -> list[_Attempt]:
        """Abandon the calls that have taken too long, and return them."""
        late = [attempt for attempt in self.running.values() if attempt.due_ns and attempt.due_ns <= now_ns]
        for attempt in late:
            self.abandoned[id(attempt)] = self.running.pop(id(attempt))
        if len(self.abandoned) > ABANDONED_PER_PLACE * self.policy.concurrency:
            raise OperatorFailed(
                f"operator {self.policy.operator!r}: {len(self.abandoned)} calls timed out after "
                f"{self.policy.timeout_s:g} s and have not returned; set a timeout in the client that the calls use"
            )
        return late

    def again(self, attempt: _Attempt, now_ns: int) -> bool:
        """Schedule another attempt; return false if the last permitted attempt has been made."""
        if attempt.tries > self.policy.retries:
            return False
        pause_s = self.policy.backoff_s * 2 ** min(attempt.tries - 1, BACKOFF_DOUBLINGS_MAX)
        self.resting.append(_Attempt(attempt.request, attempt.tries + 1, now_ns + int(pause_s * 1e9)))
        return True

    def next_ns(self) -> int | None:
        """Return the next time at which a call times out or an attempt is due, or None if there is none."""
        due = [attempt.due_ns for attempt in self.running.values() if attempt.due_ns]
        return min([*due, *(attempt.due_ns for attempt in self.resting)], default=None)

    def _work(self) -> None:
        while True:
            attempt = self._calls.get()
            if attempt is None:
                return
            self._deliver(attempt, *self.policy.perform(attempt.request.body))

    def close(self) -> None:
        """End the threads that wait for calls; threads inside a call end with the process."""
        for _ in range(self._threads):
            self._calls.put(None)


class RequestPool:
    """All requests of one task.

    Args:
        policies: the policies by operator ordinal in the chain; without policies, no descriptor or thread is created.

    State: `wake` becomes readable when `answers` has something to return because a call has returned; it is -1 if no
    operator sends requests. `next_ns` returns the time at which `answers` must be called even if no call has returned.
    """

    def __init__(self, policies: Mapping[int, RequestPolicy]) -> None:
        self._ended: queue.SimpleQueue[tuple[int, _Attempt, bool, bytes]] = queue.SimpleQueue()
        self._operators = {
            ordinal: _Operator(policy, partial(self._deliver, ordinal)) for ordinal, policy in policies.items()
        }
        self.wake = self._waker = -1
        self._lock = threading.Lock()
        """The lock for the descriptor, which may be closed while abandoned calls return."""
        if policies:
            self.wake, self._waker = os.pipe()
            os.set_blocking(self.wake, False)
            os.set_blocking(self._waker, False)

    def ask(self, requests: Sequence[Request]) -> None:
        """Queue these requests in order."""
        for request in requests:
            self._operators[request.operator].waiting.append(_Attempt(request, 1))
        self._start()

    def answers(self) -> list[ResponseReceived]:
        """Return the final outcomes since the last call of this method.

        Raises:
            OperatorFailed: too many calls have timed out and not returned.
        """
        responses: list[ResponseReceived] = []
        now_ns = monotonic_ns()
        if self.wake >= 0:
            try:
                os.read(self.wake, 4096)
            except BlockingIOError:
                pass  # an attempt may be due although no call has returned
        while not self._ended.empty():
            ordinal, attempt, well, body = self._ended.get()
            operator = self._operators[ordinal]
            if operator.ended(attempt) and (well or not operator.again(attempt, now_ns)):
                responses.append(ResponseReceived(ordinal, attempt.request.number, body))
        for ordinal, operator in self._operators.items():
            for attempt in operator.out_of_time(now_ns):
                if not operator.again(attempt, now_ns):
                    body = operator.policy.late(operator.policy.timeout_s or 0.0)
                    responses.append(ResponseReceived(ordinal, attempt.request.number, body))
        self._start()
        return responses

    def next_ns(self) -> int | None:
        """Return the time at which to call `answers` even if no call has returned, or None."""
        return min((at for each in self._operators.values() if (at := each.next_ns()) is not None), default=None)

    @property
    def abandoned(self) -> str:
        """A message naming an operator with at least `concurrency` abandoned calls; empty if there is none."""
        for each in self._operators.values():
            if len(each.abandoned) >= each.policy.concurrency:
                timeout_s, name = each.policy.timeout_s, each.policy.operator
                return (
                    f"operator {name!r}: {each.policy.concurrency} or more of its calls have not returned within "
                    f"{timeout_s:g} s; further calls run in new threads"
                )
        return ""

    def counters(self) -> dict[str, float]:
        """Return the numbers of running and abandoned calls and the age of the oldest; empty without requests."""
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

    def _deliver(self, ordinal: int, attempt: _Attempt, well: bool, body: bytes) -> None:
        """Queue an outcome and wake the task; this method is called on a pool thread."""
        self._ended.put((ordinal, attempt, well, body))
        with self._lock:
            if self._waker >= 0:
                try:
                    os.write(self._waker, b"!")
                except BlockingIOError:
                    return  # the pipe is full, so the task will wake up anyway
