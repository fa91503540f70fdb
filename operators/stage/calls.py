"""`ctx.call` and `ctx.determinant`: synchronous requests to the outside world, whose responses are logged."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from time import sleep
from types import CoroutineType
from typing import Any, Never, NoReturn, cast

from causal.determinants import ANSWER_BYTES_MAX
from causal.errors import CausalError
from causal.ports import Services
from causal.records.values import NotCarried, decode, encode
from operators.capture.active import RUNNING
from operators.functions import PLAIN
from operators.stage.bounded_call import within
from operators.tracebacks import Recorded, location, message, user_traceback

REASON_CHARACTERS_MAX = 100_000
"""The length up to which the message of an exception is recorded."""
TRACE_CHARACTERS_MAX = 4_000
"""The length of the end of a traceback that is recorded."""


class CallFailed(Recorded):
    """Raised when the function of `ctx.call` raised, in this execution or in the one that is replayed.

    Attributes:
        kind: name of the type of the exception.
        reason: its message.
        where: `file:line in function` of the user's code that raised it, or "".
        trace: its traceback, or "".
    """

    def __init__(self, kind: str, reason: str, where: str = "", trace: str = "") -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason
        self.where = where
        self.trace = trace

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class _Closed:
    """The services outside of events, where no response can be recorded: every call raises."""

    def __init__(self, when: str) -> None:
        self._when = when

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"ctx cannot be asked {self._when}; do it in process or on_timer")


CLOSED = cast(Services, _Closed("outside of process, on_timer and finish"))
_IN_CALL = cast(Services, _Closed("inside a function given to ctx.call"))


class Calls:
    """The part of `ctx` that calls the outside world; `_services` are those of the event, CLOSED between events."""

    __slots__ = ("key", "_operator", "_services", "_fault")

    def __init__(self, operator: str) -> None:
        self.key: Any = None
        self._operator = operator
        self._services: Services = CLOSED
        self._fault: CausalError | None = None

    def call(
        self,
        fn: Callable[..., Any],
        *args: Any,
        retries: int = 0,
        backoff_s: float = 0.1,
        timeout_s: float | None = None,
        **others: Never,
    ) -> Any:
        """Return the response of `fn(*args)`; a replay returns the same without running it.

        The task waits for it.  Only the last outcome is recorded, and `fn` may read clocks.

        Logs: `call`: length and response.

        Args:
            retries: number of retries after an exception, the first after `backoff_s`, then after twice that …
            timeout_s: time limit of each attempt; `fn` then runs on a thread of its own, which keeps running over its
                limit, and its result is ignored.  Without it the task waits as long as it takes.

        Raises:
            CallFailed: `fn` raised each time, timed out, or its result cannot be carried; the same in a replay.
        """
        if others:
            name = next(iter(others))
            raise TypeError(f"ctx.call has no argument {name}; give functools.partial(fn, {name}=…), or a lambda")
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"ctx.call with timeout_s {timeout_s!r}: give seconds above 0, or None for no limit")
        services = self._services

        def attempt() -> tuple[bool, bytes]:
            called = partial(outcome, partial(fn, *args))
            return called() if timeout_s is None else within(timeout_s, called, self._operator)

        def ask() -> bytes:
            self._services = _IN_CALL
            try:
                with RUNNING.suspended():
                    well, answer = attempt()
                    for tried in range(retries):
                        if well:
                            break
                        sleep(backoff_s * 2**tried)
                        well, answer = attempt()
                    return answer
            finally:
                self._services = services

        try:
            answer = decode(services.call(ask))
        except CausalError as fault:
            self._fault = fault
            raise
        if not answer[0]:
            raise CallFailed(*answer[1:])
        return answer[1]

    def idempotency_key(self, *parts: Any) -> str:
        """Return 32 hexadecimal digits computed from the run, the operator, the current key and `parts`: the same in
        every replay and every other execution.

        Logs: –.

        Args:
            parts: identify the request among all that this operator makes for this key.

        Raises:
            TypeError: there are no parts, so that all requests of a key would be one.
            NotCarried: MessagePack cannot carry the key or a part.
        """
        if not parts:
            raise TypeError('ctx.idempotency_key() needs parts that name the request: ("charge", record["id"])')
        self._services.epoch()  # refuses where there is no event
        active = RUNNING.active
        run = "" if active is None else active.run
        return blake2b(encode([run, self._operator, self.key, list(parts)]), digest_size=16).hexdigest()

    def determinant(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        """Return the bytes of `ask()`, recorded under a kind that the pipeline registered; not run in a replay.

        Logs: `user`: length and bytes.
        """

        def asked() -> bytes:
            with RUNNING.suspended():
                return ask()

        try:
            return self._services.user(kind, asked)
        except CausalError as fault:
            self._fault = fault
            raise


def outcome(attempt: Callable[[], Any], what: str = "ctx.call") -> tuple[bool, bytes]:
    """Run a call; returns whether it succeeded, and what is recorded: [True, answer] or [False, kind, reason].

    Of an exception of the call also where it was raised, and its traceback.
    """
    try:
        result = attempt()
        if type(result) is CoroutineType:
            result.close()  # so that Python does not warn of it
            raise TypeError(f"{what} is given a coroutine function; {PLAIN}")
        answer = encode([True, result])
    except NotCarried as problem:
        return False, encode([False, "NotCarried", f"the answer of {what}: {problem}"])
    except CausalError:
        raise
    except Exception as problem:
        return False, raised(problem)
    if len(answer) <= ANSWER_BYTES_MAX:
        return True, answer
    reason = f"the answer of {what} has {len(answer):,} bytes, {ANSWER_BYTES_MAX:,} are possible"
    return False, encode([False, "AnswerTooLarge", f"{reason}; store it outside and return a reference"])


def raised(problem: BaseException) -> bytes:
    """Return what is recorded of an exception of a call: its type and message, where it was raised, its traceback."""
    reason, trace = message(problem)[:REASON_CHARACTERS_MAX], user_traceback(problem)[-TRACE_CHARACTERS_MAX:]
    return encode([False, type(problem).__name__, reason, location(problem), trace])
