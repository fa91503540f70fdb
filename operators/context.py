"""`ctx`: how an operator asks for its state, the time, chance and the outside world (D10).

Each answer is recorded when it is live and given again in a replay.  One object per operator and
task, used for every record in turn: it is valid only during the call that it was given to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from typing import Any, NoReturn, cast
from uuid import UUID

from causal.errors import CausalError, invariant
from causal.ports import Services
from causal.values import NotCarried, decode, encode
from operators.timers import Timers

_LATEST_S = 9_000_000_000.0  # the year 2255: nanoseconds stay within 63 bits


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


class Context:
    """What `process(record, ctx)` is given.

    Attributes:
        key: the current key; None without key_by.
        state: dict of the current key, checkpointed; change it in place.
        task: for example "count/1".
    """

    __slots__ = (
        "key", "state", "task",
        "_operator", "_states", "_timers", "_services", "_drawn_epoch", "_random", "_uuids", "_fault", "_logs",
    )  # fmt: skip

    def __init__(self, operator: str, task: str, states: dict[Any, dict[Any, Any]], timers: Timers) -> None:
        self.key: Any = None
        self.state: dict[Any, Any] = {}
        self.task = task
        self._operator = operator
        self._states = states
        self._timers = timers
        self._services: Services = CLOSED
        self._drawn_epoch: int | None = None
        self._random = self._uuids = Random(0)
        self._fault: CausalError | None = None
        muted = logging.Logger("muted")
        muted.disabled = True
        self._logs = (logging.getLogger(f"operators.{operator}"), muted)

    # Bound by the chain around each event.

    def begin(self, services: Services) -> None:
        """An event begins: answers come from `services`."""
        self._services = services

    def end(self) -> None:
        """The event is over.

        Raises:
            CausalError: what a service raised and user code caught: it was never theirs.
        """
        self._services = CLOSED
        if self._fault is not None:
            raise self._fault

    # For users.

    def now(self) -> float:
        """Wall-clock time in seconds; the same in a replay."""
        return self.now_ns() / 1e9

    def now_ns(self) -> int:
        """Wall-clock time in ns; the same in a replay."""
        try:
            return self._services.now_ns()
        except CausalError as fault:
            self._fault = fault
            raise

    @property
    def replaying(self) -> bool:
        """Whether this execution repeats one that was lost; for effects on the side only, never for results."""
        return self._services.replaying()

    @property
    def log(self) -> logging.Logger:
        """A logger that is silent in a replay, so that each message is seen once."""
        live, muted = self._logs
        return muted if self._services is not CLOSED and self._services.replaying() else live

    @property
    def random(self) -> Random:
        """This operator's own stream of chance, new in each epoch; draws cost nothing in the log."""
        self._draw()
        return self._random

    def uuid(self) -> UUID:
        """A version-4 UUID; the same in a replay.  `str()` it to put it into a record."""
        self._draw()
        return UUID(int=self._uuids.getrandbits(128), version=4)

    def _draw(self) -> None:
        try:
            epoch = self._services.epoch()
            if epoch != self._drawn_epoch:
                seed = self._services.seed()
                self._random, self._uuids = self._stream(seed, b"random"), self._stream(seed, b"uuid")
                self._drawn_epoch = epoch
        except CausalError as fault:
            self._fault = fault
            raise

    def _stream(self, seed: bytes, purpose: bytes) -> Random:
        """A stream of this operator's own: derived from the epoch's seed, its name and its task's."""
        told = b"%b %b %b" % (seed, purpose, f"{self._operator} {self.task}".encode())
        return Random(int.from_bytes(blake2b(told, digest_size=32).digest(), "big"))

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

    def set_timer(self, at_s: float, name: str = "") -> None:
        """Have `on_timer(name, ctx)` called for the current key at `at_s` (seconds, as `now()` counts) or soon after.

        Setting it again moves it.  A time that has passed fires after the current event.

        Raises:
            TypeError: the operator has no `on_timer`, or the arguments have other types.
            ValueError: `at_s` is no time.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a timer is a str, not {type(name).__name__}")
        if not -_LATEST_S < at_s < _LATEST_S:
            raise ValueError(f"a timer at {at_s!r} s: give seconds since 1970, as ctx.now() does")
        self._timers.set(self.key, name, round(at_s * 1e9))

    def clear_timer(self, name: str = "") -> None:
        """Forget the current key's timer `name`; nothing happens when there is none."""
        self._timers.clear(self.key, name)

    def states(self, keys: Sequence[Any]) -> list[dict[Any, Any]]:
        """The states of `keys`, for `process_batch(records, keys, ctx)`; only keys that it was given."""
        invariant(self._services is not CLOSED, "states are asked for during an event", operator=self._operator)
        states = self._states
        return [states[key] for key in keys]
