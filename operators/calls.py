"""`ctx.call` and `ctx.determinant`: one answer of the outside world at a time, recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

from causal.errors import CausalError
from causal.ports import Services
from causal.values import NotCarried, decode, encode


class CallFailed(Exception):
    """The function given to `ctx.call` raised, in this execution or in the one that is replayed.

    Attributes:
        kind: name of the exception's type.
        reason: its message.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind = kind
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


class _Closed:
    """Stands for the services when there is no event to record an answer in."""

    def __init__(self, when: str) -> None:
        self._when = when

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"ctx cannot be asked {self._when}; do it in process or on_timer")


CLOSED = cast(Services, _Closed("outside of process, on_timer and finish"))
_IN_CALL = cast(Services, _Closed("inside a function given to ctx.call"))


class Calls:
    """The part of `ctx` that asks the outside world; `_services` are those of the event, CLOSED between events."""

    __slots__ = ("_services", "_fault")

    def __init__(self) -> None:
        self._services: Services = CLOSED
        self._fault: CausalError | None = None

    def call(self, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn(*args)`, run at most once per live execution; a replay gets the same answer without running it.

        Raises:
            CallFailed: `fn` raised, or its answer cannot be carried; the same in a replay.
        """
        services = self._services

        def ask() -> bytes:
            self._services = _IN_CALL
            try:
                return encode([True, fn(*args)])
            except NotCarried as problem:
                return encode([False, "NotCarried", f"the answer of ctx.call: {problem}"])
            except CausalError:
                raise
            except Exception as problem:
                return encode([False, type(problem).__name__, str(problem)])
            finally:
                self._services = services

        try:
            answer = decode(services.call(ask))
        except CausalError as fault:
            self._fault = fault
            raise
        if not answer[0]:
            raise CallFailed(answer[1], answer[2])
        return answer[1]

    def determinant(self, kind: str, ask: Callable[[], bytes]) -> bytes:
        """The bytes of `ask()`, recorded under a kind that the pipeline registered; a replay does not run it."""
        try:
            return self._services.user(kind, ask)
        except CausalError as fault:
            self._fault = fault
            raise
