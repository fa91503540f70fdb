"""Checks of a writer that is stopped in the middle of a write, replaced, and then resumed (Linux).

The store must check the incarnation in the same atomic step in which it writes the rows. A store that checks first and
writes later lets a zombie write in between. Stopping a writer at random moments seldom reveals this mistake, so these
checks stop a writer at each step in turn.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self, TypeVar

from causal.errors import Unavailable
from causal.ports import StoreState
from operators.sinks.conformance.dying import FENCED_STATUS, forked
from operators.sinks.conformance.steps import Step, interrupted, steps_of, writing
from operators.sinks.conformance.subject import Subject, expect, expect_held, fill

T = TypeVar("T")

LOCK_S = 0.05
"""A writer that was stopped while it held a lock is resumed after that, for its successor waits for the lock."""
RETRY_S, TRIES_MAX = 0.01, 500


def fences_zombies_at_every_step_of_a_write(subject: Subject) -> None:
    """Check that a writer that is stopped anywhere in a write, and then replaced, changes nothing when it resumes."""
    store, state = subject.opened()
    fill(subject, store, state, 10)
    store.close()
    incarnation = 2
    steps = steps_of(writing(subject, incarnation))
    for number, step in enumerate([step for step in steps if step.place is not None] or steps):
        _stop_at(subject, step, incarnation + 1 + 2 * number, successor_first=bool(number % 2))


def _stop_at(subject: Subject, step: Step, incarnation: int, successor_first: bool) -> None:
    """Stop one writer at `step`, and let a successor write before or after the stopped writer resumes."""
    store, state = subject.opened(incarnation)
    before = state.next
    store.close()
    promise = f"a writer that was stopped at {step} and replaced"
    with _Zombie(lambda: _stop_in_a_write(subject, incarnation, step), promise) as zombie:
        store, state = zombie.beside(lambda: subject.opened(incarnation + 1))
        written, end = state.next == before + 2, state.next + 4
        expect(
            written or state.next == before, f"{promise} had written its bundle whole or not at all", str(state.next)
        )

        def follow() -> StoreState:
            return fill(subject, store, store.last_bundle(), end, incarnation + 1)

        if successor_first:
            state = zombie.beside(follow)
        status = zombie.ended()
    expect(
        status == FENCED_STATUS or (written and not status), f"{promise} is fenced", f"it ended with status {status}"
    )
    subject.expect_rows(state.next, f"{promise} changes nothing")
    follow()
    subject.expect_rows(end, f"{promise} does not disturb its successor")
    expect_held(subject, store.last_bundle(), f"{promise} leaves no trace", kept_from=None)
    store.close()


def _stop_in_a_write(subject: Subject, incarnation: int, step: Step) -> None:
    """Write two rows, and stop until SIGCONT at the given step, or after the write if it does not reach the step."""
    store, call = writing(subject, incarnation)()
    slept = False

    def sleep() -> None:
        nonlocal slept
        slept = True
        os.kill(os.getpid(), signal.SIGSTOP)

    def write() -> object:
        for _ in range(TRIES_MAX):  # the successor may hold the store's lock
            with suppress(Unavailable):
                return call()
            time.sleep(RETRY_S)
        return call()

    interrupted(store, step, sleep, write)
    if not slept:
        sleep()


class _Zombie:
    """A process that stops itself, and a way to act while it is stopped."""

    def __init__(self, act: Callable[[], None], promise: str) -> None:
        self._pid = forked(act)
        stopped = os.WIFSTOPPED(os.waitpid(self._pid, os.WUNTRACED)[1])
        expect(stopped, promise, "its write failed on its own")
        self._left = True

    def beside(self, act: Callable[[], T]) -> T:
        """Run `act` while the process is stopped, even if `act` needs a lock that the process holds."""
        awake = threading.Timer(LOCK_S, os.kill, (self._pid, signal.SIGCONT))
        awake.start()
        try:
            for _ in range(TRIES_MAX):
                with suppress(Unavailable):
                    return act()
                time.sleep(RETRY_S)
            return act()
        finally:
            awake.cancel()
            awake.join()

    def ended(self) -> int:
        """Resume the process, and return its exit status."""
        os.kill(self._pid, signal.SIGCONT)
        self._left = False
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._left:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


CHECKS: tuple[Callable[[Subject], None], ...] = (fences_zombies_at_every_step_of_a_write,)
"""The checks of this module; each takes a fresh subject."""
