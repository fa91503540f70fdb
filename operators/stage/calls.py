"""`ctx.call` and `ctx.determinant`: synchronous requests to the outside world, whose responses are logged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
"""The maximum number of characters of an exception message that are recorded."""
TRACE_CHARACTERS_MAX = 4_000
"""The maximum number of characters that are recorded from the end of a traceback."""


class CallFailed(Recorded):
    """Raised when the function passed to `ctx.call` raised, in this execution or in the one that is being replayed.

    Attributes:
        kind: the name of the exception's type.
        reason: the exception's message.
        where: `file:line in function` of the user code that raised the exception, or "".
        trace: the exception's traceback, or "".
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
    """Services for the time outside events, when no response can be recorded; every call raises an error."""

    def __init__(self, when: str) -> None:
        self._when = when

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"ctx cannot be used {self._when}; use it in process or on_timer")


CLOSED = cast(Services, _Closed("outside of process, on_timer and finish"))
_IN_CALL = cast(Services, _Closed("inside a function passed to ctx.call"))


@dataclass(frozen=True, slots=True)
class Asking:
    """A request to the outside world, and the function that makes it: what services receive to be called.

    Attributes:
        key: the key of the record that is processed.
        what: the function that answers, or the kind of the determinant.
        arguments: the arguments of that function.
    """

    operator: str
    key: Any
    what: Callable[..., Any] | str
    arguments: tuple[Any, ...]
    ask: Callable[[], bytes]

    def __call__(self) -> bytes:
        """Ask the outside world, and return the encoded answer."""
        return self.ask()


class Calls:
    """The part of `ctx` that calls the outside world; `_services` belongs to the event and is CLOSED between events."""

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
        """Return the response of `fn(*args)`; a replay returns the same response without running `fn`.

        The task waits for the response. Only the outcome of the last attempt is recorded, and `fn` may read clocks.

        Logs: `call`: length and response.

        Args:
            retries: the number of retries after an exception; the first retry follows after `backoff_s`, and each later
                delay is twice as long as the one before.
            timeout_s: the time limit of each attempt; `fn` then runs on its own thread. If `fn` exceeds the limit, the
                thread keeps running, but its result is ignored. With None, the task waits until `fn` returns.

        Raises:
            CallFailed: every attempt raised or timed out, or the result cannot be carried; a replay raises the same
                error.
        """
        if others:
            name = next(iter(others))
            raise TypeError(f"ctx.call has no argument {name}; pass functools.partial(fn, {name}=…), or a lambda")
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"ctx.call has timeout_s {timeout_s!r}; use seconds above 0, or None for no limit")
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
            answer = decode(services.call(Asking(self._operator, self.key, fn, args, ask)))
        except CausalError as fault:
            self._fault = fault
            raise
        if not answer[0]:
            raise CallFailed(*answer[1:])
        return answer[1]

    def idempotency_key(self, *parts: Any) -> str:
        """Return 32 hexadecimal digits that are computed from the run, the operator, the current key and `parts`.

        The digits are the same in every replay and in every other execution.

        Logs: –.

        Args:
            parts: values that identify the request among all requests of this operator for this key.

        Raises:
            TypeError: there are no parts, so all requests for a key would have the same idempotency key.
            NotCarried: MessagePack cannot carry the key or a part.
        """
        if not parts:
            raise TypeError(
                'ctx.idempotency_key() needs parts that identify the request, for example ("charge", record["id"])'
            )
        self._services.epoch()  # raises an error outside events
        active = RUNNING.active
        run = "" if active is None else active.run
        return blake2b(encode([run, self._operator, self.key, list(parts)]), digest_size=16).hexdigest()

    def determinant(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        """Return the bytes of `ask()`, recorded under a registered kind; a replay does not call `ask`.

        Logs: `user`: length and bytes.
        """

        def asked() -> bytes:
            with RUNNING.suspended():
                return ask()

        try:
            return self._services.user(kind, Asking(self._operator, self.key, kind, (), asked))
        except CausalError as fault:
            self._fault = fault
            raise


def outcome(attempt: Callable[[], Any], what: str = "ctx.call") -> tuple[bool, bytes]:
    """Run a call; return whether it succeeded, and its encoded outcome: [True, answer] or [False, kind, reason, …].

    For an exception, the outcome also contains the location where it was raised, and its traceback.
    """
    try:
        result = attempt()
        if type(result) is CoroutineType:
            result.close()  # otherwise Python would warn that it was never awaited
            raise TypeError(f"{what} was given a coroutine function; {PLAIN}")
        answer = encode([True, result])
    except NotCarried as problem:
        return False, encode([False, "NotCarried", f"the answer of {what}: {problem}"])
    except CausalError:
        raise
    except Exception as problem:
        return False, raised(problem)
    if len(answer) <= ANSWER_BYTES_MAX:
        return True, answer
    reason = f"the answer of {what} has {len(answer):,} bytes, but the limit is {ANSWER_BYTES_MAX:,}"
    return False, encode([False, "AnswerTooLarge", f"{reason}; store it outside and return a reference"])


def raised(problem: BaseException) -> bytes:
    """Return the encoded outcome of a call that raised: the exception's type, message, location and traceback."""
    reason, trace = message(problem)[:REASON_CHARACTERS_MAX], user_traceback(problem)[-TRACE_CHARACTERS_MAX:]
    return encode([False, type(problem).__name__, reason, location(problem), trace])
