"""The operator that runs and the services available to it, for code without a `ctx` and for the chance of `ctx`.

One `Active` per chain; `RUNNING` is the one whose event this process is executing. The chain calls `begin` and `end`
around each event and sets `operator` before it calls each stage: nothing here is done per record.
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
"""The value of `Active.operator` while no operator runs: clock and chance are then the runtime's own business."""


class HiddenNondeterminism(OperatorFailed):
    """An operator used the clock or chance where that is not allowed; the message names both, and the remedy."""


class Streams:
    """The chance of one operator, derived from the epoch's seed, its own name and its task's (D10)."""

    __slots__ = ("epoch", "random", "bits")

    def __init__(self, seed: bytes, epoch: int, operator: str, task: str) -> None:
        self.epoch = epoch
        self.random: Random = _stream(seed, b"random", operator, task)
        self.bits: Random = _stream(seed, b"uuid", operator, task)
        """The generator for UUIDs and plain bytes: user code never seeds it, so its output differs whatever user code
        seeds."""


class Stream(Random):
    """A generator with a known state: its draws are never replaced (see `operators.capture.chance`)."""

    random = _random.Random.random
    getrandbits = _random.Random.getrandbits
    gauss_next = None


def _stream(seed: bytes, purpose: bytes, operator: str, task: str) -> Random:
    named = b"%b %b %b" % (seed, purpose, f"{operator} {task}".encode())
    return Stream(int.from_bytes(blake2b(named, digest_size=32).digest(), "big"))


class Active:
    """The event that one chain is executing, and the operator that runs.

    Attributes:
        task: for example "count/1".
        run: identity of the job's run.
        operator: whose code runs now; NO_OPERATOR between the stages.
        keying: whether that code is a `key_by` function: it runs on both sides of an edge, so it may ask for nothing.
        services: of the event; None between events.
        thread: the task's.
        fault: what a service raised inside an operator; the operator must not catch it.
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
        """Begin an event; callers set `operator` before they call each stage."""
        self.services, self.thread, RUNNING.active = services, get_ident(), self
        RUNNING.events += 1

    def end(self) -> None:
        """End the event, also after an error; may be called again.

        Raises:
            CausalError: the fault that user code caught.
        """
        self.services, self.operator, self.keying, RUNNING.active = None, NO_OPERATOR, False, None
        if self.fault is not None:
            raise self.fault

    def now_ns(self) -> int:
        """Return the causal clock, for the operator that runs."""
        try:
            return self._asked().now_ns()
        except CausalError as fault:
            self.fault = fault
            raise

    def streams(self, operator: str) -> Streams:
        """Return the chance of `operator` in this epoch; drawing from it logs nothing."""
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
    """The chain whose event this process is executing; None between events.

    Attributes:
        refuses: whether hidden nondeterminism stops the job, instead of being captured.
        events: how many have begun in this process.
    """

    __slots__ = ("active", "events", "refuses")

    def __init__(self) -> None:
        self.active: Active | None = None
        self.events = 0
        self.refuses = False

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Run the block with the process's clock and chance: it is not the operator's own code."""
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
    """Return whether an operator runs on this thread."""
    active = RUNNING.active
    return active is not None and active.operator != NO_OPERATOR and active.thread == get_ident()


def inside(spelling: str, remedy: str) -> Active | None:
    """Return the chain whose operator runs on this thread; None when the call is the process's own business.

    Raises:
        HiddenNondeterminism: the operator must not make this call.
    """
    active = RUNNING.active
    if active is None or active.operator == NO_OPERATOR or active.thread != get_ident():
        return None
    if active.keying:
        remedy = "a key depends on its record alone; put the value into the record before key_by"
    elif not RUNNING.refuses:
        return active
    active.fault = HiddenNondeterminism(f"operator {active.operator!r} calls {spelling}: {remedy}")
    raise active.fault
