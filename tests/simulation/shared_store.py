"""The storage that all hosts share, on virtual time: objects that are created if absent, uploads, and the sweeper.

The rules of a second creation are those that ship (`Depot.create_own`).  A request may take long, fail, or be carried
out without an answer; then it is repeated, with the pauses that ship.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from causal.errors import CausalError, CorruptData, Unavailable
from causal.records.values import decode, encode
from causal.storage.objects import Missing
from causal.storage.shared import RETRY_S_MAX, RETRY_S_MIN, Depot
from standby.storage import manifests
from standby.supervision.effects import RemoveFiles
from tests.simulation.clockwork import MS, SECOND, Clockwork
from tests.simulation.machines import STORE, Fabric
from tests.simulation.peers import digest_of_parts

if TYPE_CHECKING:
    from tests.simulation.process import Process

SWEEP_PAUSE_NS = 200 * MS
LATE_NS = 300 * MS
"""The longest time after which a request whose answer was lost is carried out."""
OBSERVER = "observer"
"""The name of a machine that always reaches the store: the checkers look from there."""
LOSS = 0.6
"""The chance that a request is carried out, or not, without an answer, while the store loses answers."""


class SharedStore:
    """The one store of a job.

    Attributes:
        objects: by name.
        unavailable_until_ns: no request is carried out before.
        losing_until_ns: many answers are lost before.
    """

    def __init__(self, clock: Clockwork, rng: random.Random, fabric: Fabric, store_ms: int) -> None:
        self.objects: dict[str, bytes] = {}
        self.unavailable_until_ns = 0
        self.losing_until_ns = 0
        self._clock = clock
        self._rng = rng
        self._fabric = fabric
        self._store_ms = store_ms
        self._sweeps: dict[str, RemoveFiles] = {}
        """Supervisor → the last order that waits."""
        self.created: Callable[[str, bytes], None] = lambda name, data: None
        """Is called when an object was created, also if the answer is lost."""

    def takes_ns(self) -> int:
        """Return the time of one request."""
        return self._rng.randint(100_000, self._store_ms * MS)

    def answers(self, machine: str) -> bool:
        """Return whether a request from that machine would be answered now."""
        now_ns = self._clock.now_ns
        passes = self._fabric.open(machine, STORE) and self._fabric.open(STORE, machine)
        return passes and now_ns >= self.unavailable_until_ns and not self._loses()

    def _loses(self) -> bool:
        return self._clock.now_ns < self.losing_until_ns and self._rng.random() < LOSS

    def reached(self, machine: str) -> Reached:
        """Return the store as that machine reaches it."""
        return Reached(self, machine)

    def request(self, machine: str, act: Callable[[], object]) -> None:
        """Carry out a request, unless it does not arrive.

        Raises:
            Unavailable: no answer arrives; the request may have been carried out, or is later.
        """
        if machine == OBSERVER:
            act()
            return
        now_ns = self._clock.now_ns
        if not self._fabric.open(machine, STORE) or now_ns < self.unavailable_until_ns:
            raise Unavailable("the shared store does not answer")
        lost = self._loses()
        if not lost or self._rng.random() < 0.4:
            act()
        elif self._rng.random() < 0.4:
            self._clock.after(self._rng.randint(MS, LATE_NS), act)
        if lost or not self._fabric.open(STORE, machine):
            raise Unavailable("the answer of the shared store is lost")

    def durable(self, file: tuple[str, int, str]) -> tuple[bytes, ...] | None:
        """Return the parts of a file that is there as it is described; None if it is not."""
        body = self.objects.get(file[0])
        parts = None if body is None else tuple(decode(body))
        return parts if parts is not None and digest_of_parts(parts) == file[2] else None

    def sweep(self, order: RemoveFiles, supervisor: str) -> None:
        """Remove what its last order allows, some time later and in two steps: list, then remove."""
        waits = supervisor in self._sweeps
        self._sweeps[supervisor] = order
        if not waits:
            self._clock.after(self._rng.randint(MS, SWEEP_PAUSE_NS), lambda: self._list(supervisor))

    def _list(self, supervisor: str) -> None:
        order = self._sweeps.pop(supervisor)
        if not self.answers(supervisor):
            return
        names = manifests.unnecessary(sorted(self.objects), order)
        self._clock.after(self.takes_ns(), lambda: [self.objects.pop(name, None) for name in names])


class Reached(Depot):
    """The store as one machine reaches it: what `Depot` promises, without its client."""

    def __init__(self, store: SharedStore, machine: str) -> None:
        self.url = "simulated://store"
        self._shared = store
        self._machine = machine

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        new: list[bool] = []

        def put() -> None:
            new.append(name not in self._shared.objects)
            self._shared.objects.setdefault(name, bytes(data))
            if new[-1]:
                self._shared.created(name, bytes(data))

        self._shared.request(self._machine, put)
        return new[0]

    def read(self, name: str) -> bytes:
        bodies: list[bytes | None] = []
        self._shared.request(self._machine, lambda: bodies.append(self._shared.objects.get(name)))
        if bodies[0] is None:
            raise Missing(f"{name} is missing; restore it from a copy")
        return bodies[0]

    def names(self, folder: str) -> list[str]:
        below: list[str] = []
        self._shared.request(self._machine, lambda: below.extend(self._shared.objects))
        return sorted(name for name in below if name.startswith(f"{folder}/"))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self._shared.request(self._machine, partial(self._shared.objects.pop, name, None))
            except Unavailable:
                continue


@dataclass(slots=True, eq=False)
class _Request:
    """Something that a process asks of the store; `done` gets its answer."""

    perform: Callable[[], Any]
    again: bool
    done: Callable[[Any], None]


class SimulatedUploads:
    """The requests of one process, one after the other (`causal.storage.uploads`)."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: deque[_Request] = deque()

    def put(self, name: str, parts: tuple[bytes, ...], done: Callable[[], None]) -> None:
        """Upload a file, which is removed from the disk then; `done` is called once it is stored."""

        def stored(answer: None) -> None:
            self._process.machine.disk.files.pop(name, None)
            done()

        self.perform(lambda: self.store(name, parts), True, stored)

    def store(self, name: str, parts: tuple[bytes, ...]) -> None:
        """Store a file.

        Raises:
            Unavailable: it is not known whether it is stored.
        """
        self.reached().create_own(name, encode(list(parts)))

    def reached(self) -> Depot:
        """Return the store as this process reaches it."""
        return self._process.world.shared.reached(self._process.machine.name)

    def perform(self, request: Callable[[], Any], again: bool, done: Callable[[Any], None]) -> None:
        """Perform a request after the earlier ones; `again`: as often as it takes."""
        self._waiting.append(_Request(request, again, done))
        if len(self._waiting) == 1:
            self._after(0, 0)

    def close(self) -> None:
        """The task ends in this process: what was asked is abandoned."""
        self._waiting.clear()

    def _after(self, pause_ns: int, tried: int) -> None:
        world, asked = self._process.world, self._waiting[0]
        world.clock.after(pause_ns + world.shared.takes_ns(), lambda: self._attempt(asked, tried))

    def _attempt(self, asked: _Request, tried: int) -> None:
        process = self._process
        if not self._waiting or self._waiting[0] is not asked:
            return
        if not process.living:
            self._waiting.clear()
            if process.world.rng.random() < 0.5:  # death came after the request, not before
                with suppress(CausalError):
                    asked.perform()
            return
        try:
            answer = asked.perform()
        except Unavailable as problem:
            if asked.again:
                self._after(int(min(RETRY_S_MIN * 2**tried, RETRY_S_MAX) * SECOND), tried + 1)
            else:
                process.fail(problem)
            return
        except CorruptData as problem:
            process.fail(problem)
            return
        self._waiting.popleft()
        asked.done(answer)
        if self._waiting:
            self._after(0, 0)
