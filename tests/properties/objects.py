"""A shared store in memory whose users take turns, die, sleep and lose answers, as a seeded chance decides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from random import Random
from typing import TypeVar

from causal.errors import Unavailable
from causal.storage.objects import Missing, Objects

T = TypeVar("T")
END_S = 60.0
"""Longer than any step takes; what it bounds is a hang."""


class Died(BaseException):
    """The end of a process in the middle of a call."""


class Memory(Objects):
    """The objects that all users share.

    Args:
        chance: decides which requests fail, and how.
        failing: the share of requests that fail.

    State: `late` are creations whose request is still under way after its sender has given it up.
    """

    url = "memory:///store"

    def __init__(self, chance: Random | None = None, failing: float = 0.0) -> None:
        self.stored: dict[str, bytes] = {}
        self.late: list[tuple[str, bytes]] = []
        self._chance = chance or Random(0)
        self._failing = failing

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        """Do what `causal.storage.objects.Objects.create` does."""
        if self._fails():
            what = self._chance.random()
            if what < 0.4:
                self.stored.setdefault(name, bytes(data))  # the answer is lost
            elif what < 0.7:
                self.late.append((name, bytes(data)))
            raise Unavailable("no answer")
        if name in self.stored:
            return False
        self.stored[name] = bytes(data)
        return True

    def read(self, name: str) -> bytes:
        """Do what `causal.storage.objects.Objects.read` does."""
        if self._fails():
            raise Unavailable("no answer")
        if name not in self.stored:
            raise Missing(name)
        return self.stored[name]

    def names(self, folder: str) -> list[str]:
        """Do what `causal.storage.objects.Objects.names` does."""
        if self._fails():
            raise Unavailable("no answer")
        return sorted(name for name in self.stored if name.startswith(f"{folder}/"))

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        """Do what `causal.storage.objects.Objects.sizes` does."""
        return {name: len(self.stored[name]) for name in self.names(folder) if name > f"{folder}/{after}"}

    def remove(self, names: Iterable[str]) -> None:
        """Do what `causal.storage.objects.Objects.remove` does."""
        for name in names:
            if not self._fails():
                self.stored.pop(name, None)

    @property
    def reliable(self) -> bool:
        """Whether every request is answered."""
        return not self._failing

    def become_reliable(self) -> None:
        """Answer every request from now on."""
        self._failing = 0.0

    def arrive(self) -> None:
        """Deliver one of the abandoned requests."""
        if self.late:
            name, data = self.late.pop(self._chance.randrange(len(self.late)))
            self.stored.setdefault(name, data)

    def _fails(self) -> bool:
        return self._failing > 0 and self._chance.random() < self._failing


class Seat(Objects):
    """The store as one process sees it: each request waits for its turn, before it and before its answer is read."""

    url = Memory.url

    def __init__(self, memory: Memory, wait: Callable[[], None]) -> None:
        self._memory = memory
        self._wait = wait

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        """Do what `causal.storage.objects.Objects.create` does."""
        return self._turn(lambda: self._memory.create(name, data))

    def read(self, name: str) -> bytes:
        """Do what `causal.storage.objects.Objects.read` does."""
        return self._turn(lambda: self._memory.read(name))

    def names(self, folder: str) -> list[str]:
        """Do what `causal.storage.objects.Objects.names` does."""
        return self._turn(lambda: self._memory.names(folder))

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        """Do what `causal.storage.objects.Objects.sizes` does."""
        return self._turn(lambda: self._memory.sizes(folder, after))

    def remove(self, names: Iterable[str]) -> None:
        """Do what `causal.storage.objects.Objects.remove` does, one at a time."""
        for name in names:
            self._turn(lambda name=name: self._memory.remove([name]))  # type: ignore[misc]

    def _turn(self, act: Callable[[], T]) -> T:
        self._wait()
        try:
            return act()
        finally:
            self._wait()


class Turns:
    """Runs processes as threads, one at a time: which one, for how many requests, and who dies, is decided by chance.

    Args:
        memory: in which requests may arrive late, between two turns.
    """

    def __init__(self, memory: Memory, chance: Random, burst_max: int = 40, dying: float = 0.0) -> None:
        self._memory = memory
        self._chance = chance
        self._burst_max = burst_max
        self._dying = dying
        self._threads: list[threading.Thread] = []
        self._ready: list[threading.Semaphore] = []
        self._main = threading.Semaphore(0)
        self._ended: set[int] = set()
        self._left = 0
        self._dead = False
        self.problems: list[BaseException] = []

    def add(self, process: Callable[[Seat], None]) -> None:
        """Add a process."""
        number = len(self._threads)
        ready = threading.Semaphore(0)
        self._ready.append(ready)

        def wait() -> None:
            if self._dead:
                raise Died
            self._left -= 1
            if self._left <= 0:
                self._main.release()
                assert ready.acquire(timeout=END_S)
                if self._dead:
                    raise Died

        def run() -> None:
            assert ready.acquire(timeout=END_S)
            try:
                process(Seat(self._memory, wait))
            except Died:
                pass
            except BaseException as problem:
                self.problems.append(problem)
            finally:
                self._ended.add(number)
                self._main.release()

        self._threads.append(threading.Thread(target=run, daemon=True))

    def run(self) -> None:
        """Run all of them to their ends."""
        for thread in self._threads:
            thread.start()
        while len(self._ended) < len(self._threads):
            number = self._chance.choice([each for each in range(len(self._threads)) if each not in self._ended])
            self._left = int(self._chance.paretovariate(0.7)) if self._chance.random() < 0.8 else self._burst_max
            self._dead = self._chance.random() < self._dying
            self._ready[number].release()
            assert self._main.acquire(timeout=END_S)
            if self._chance.random() < 0.1:
                self._memory.arrive()
        while self._memory.late:
            self._memory.arrive()
        if self.problems:
            raise self.problems[0]


class Failing(Objects):
    """The store as one process sees it, in which one request fails: the process dies in it, or gets no answer.

    Args:
        at: the number of the request, from 1.
        done: whether the request arrives.
    """

    url = Memory.url

    def __init__(self, memory: Memory, at: int, done: bool, problem: type[BaseException]) -> None:
        self.left = at
        self._memory = memory
        self._done = done
        self._problem = problem

    def create(self, name: str, data: bytes | memoryview, durable: bool = True) -> bool:
        """Do what `causal.storage.objects.Objects.create` does."""
        return self._request(lambda: self._memory.create(name, data))

    def read(self, name: str) -> bytes:
        """Do what `causal.storage.objects.Objects.read` does."""
        return self._request(lambda: self._memory.read(name))

    def sizes(self, folder: str, after: str = "") -> dict[str, int]:
        """Do what `causal.storage.objects.Objects.sizes` does."""
        return self._request(lambda: self._memory.sizes(folder, after))

    def remove(self, names: Iterable[str]) -> None:
        """Do what `causal.storage.objects.Objects.remove` does: one at a time, and what fails only costs space."""
        for name in names:
            try:
                self._request(lambda name=name: self._memory.remove([name]))  # type: ignore[misc]
            except Unavailable:
                continue

    def _request(self, act: Callable[[], T]) -> T:
        self.left -= 1
        if self.left:
            return act()
        if self._done:
            act()
        raise self._problem("in the middle of a request")
