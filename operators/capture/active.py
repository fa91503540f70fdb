"""The running operator and its services, for code that has no `ctx` and for the random numbers of `ctx`.

Each chain has one `Active`; `RUNNING` refers to the `Active` of the chain whose event this process is executing. The
chain calls `begin` and `end` around each event and sets `operator` before it calls each stage, so this module does no
work per record.
"""

from __future__ import annotations

import _random
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from random import Random
from threading import get_ident

from causal.errors import CausalError, OperatorFailed, invariant
from causal.ports import Services

NO_OPERATOR = ""
"""The value of `Active.operator` while no operator runs; clock readings and random draws are then not captured."""


class HiddenNondeterminism(OperatorFailed):
    """Raised for a forbidden clock or random call in an operator; the message names both and a remedy."""


class Streams:
    """The random streams of one operator, derived from the epoch's seed, the operator name and the task name (D10)."""

    __slots__ = ("epoch", "random", "bits")

    def __init__(self, seed: bytes, epoch: int, operator: str, task: str) -> None:
        self.epoch = epoch
        self.random: Random = _stream(seed, b"random", operator, task)
        self.bits: Random = _stream(seed, b"uuid", operator, task)
        """The generator for UUIDs and plain bytes; user code cannot seed it and so cannot make it repeat its output."""


class Stream(Random):
    """A generator whose state the capture manages, so its draws are never replaced (see `operators.capture.chance`)."""

    random = _random.Random.random
    getrandbits = _random.Random.getrandbits
    gauss_next = None


def _stream(seed: bytes, purpose: bytes, operator: str, task: str) -> Random:
    named = b"%b %b %b" % (seed, purpose, f"{operator} {task}".encode())
    return Stream(int.from_bytes(blake2b(named, digest_size=32).digest(), "big"))


class Active:
    """The event that one chain is executing, and the running operator.

    Attributes:
        task: the name of the task, for example "count/1".
        run: the identity of the job's run.
        operator: the operator whose code is running; NO_OPERATOR while no stage is running.
        keying: whether the running code is a `key_by` function, which must not use any service because it runs at both
            ends of an edge.
        services: the services of the event; None between events.
        thread: the identifier of the task's thread.
        fault: the error that a service raised inside an operator; the event fails with it even if the operator catches
            it.
    """

    __slots__ = ("task", "run", "operator", "keying", "services", "thread", "fault", "_streams")

    def __init__(self, task: str, run: str = "") -> None:
        self.task = task
        self.run = run
        self.operator = NO_OPERATOR
        self.keying = False
        self.services: Services | None = None
        self.thread = 0
        self.fault: CausalError | None = None
        self._streams: dict[str, Streams] = {}

    def begin(self, services: Services) -> None:
        """Begin an event; the caller then sets `operator` before it calls each stage."""
        self.services, self.thread, RUNNING.active = services, get_ident(), self
        RUNNING.events += 1

    def end(self) -> None:
        """End the event, even after an error; it is safe to call this method more than once.

        Raises:
            CausalError: a service raised this error, and user code caught it.
        """
        self.services, self.operator, self.keying, RUNNING.active = None, NO_OPERATOR, False, None
        if self.fault is not None:
            raise self.fault

    def now_ns(self) -> int:
        """Return the time of the causal clock, for use by the running operator."""
        try:
            return self._asked().now_ns()
        except CausalError as fault:
            self.fault = fault
            raise

    def streams(self, operator: str) -> Streams:
        """Return the random streams of `operator` in this epoch; draws from these streams are not logged."""
        services = self._asked()
        try:
            epoch = services.epoch()
            drawn = self._streams.get(operator)
            if drawn is None or drawn.epoch != epoch:
                with RUNNING.suspended():
                    seed = services.seed()
                drawn = self._streams[operator] = Streams(seed, epoch, operator, self.task)
        except CausalError as fault:
            self.fault = fault
            raise
        return drawn

    def _asked(self) -> Services:
        services = self.services
        invariant(services is not None, "services are asked during an event", operator=self.operator)
        return services  # type: ignore[return-value]


class Running:
    """The state of capture in this process.

    Attributes:
        active: the chain whose event this process is executing; None between events.
        refuses: whether hidden nondeterminism stops the job instead of being captured.
        events: the number of events that have begun in this process.
    """

    __slots__ = ("active", "events", "refuses")

    def __init__(self) -> None:
        self.active: Active | None = None
        self.events = 0
        self.refuses = False

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Restore the process's own clock and random generators for a block that is not the operator's own code."""
        active = self.active
        if active is None or active.operator == NO_OPERATOR or active.thread != get_ident():
            yield
            return
        operator, active.operator = active.operator, NO_OPERATOR
        try:
            yield
        finally:
            active.operator = operator


RUNNING = Running()


def operating() -> bool:
    """Return whether an operator is running on this thread."""
    active = RUNNING.active
    return active is not None and active.operator != NO_OPERATOR and active.thread == get_ident()


def inside(spelling: str, remedy: str) -> Active | None:
    """Return the chain whose operator is running on this thread, or None if the call does not come from an operator.

    Raises:
        HiddenNondeterminism: the operator is not allowed to make this call.
    """
    active = RUNNING.active
    if active is None or active.operator == NO_OPERATOR or active.thread != get_ident():
        return None
    if active.keying:
        remedy = "a key must depend only on its record; put the value into the record before key_by"
    elif not RUNNING.refuses:
        return active
    active.fault = HiddenNondeterminism(f"operator {active.operator!r} calls {spelling}: {remedy}")
    raise active.fault
