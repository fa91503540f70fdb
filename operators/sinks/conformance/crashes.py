"""Checks of a store's promises when writers die: at any step, at random moments, or in the middle of a bundle.

These checks fork processes and kill or stop them, so they need Linux.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from unittest import SkipTest

from causal.errors import Unavailable
from causal.ports import SinkStore, StoreState
from operators.sinks.conformance.dying import FENCED_STATUS, begun, killed_writers
from operators.sinks.conformance.steps import Step, killed_at, steps_of, writing
from operators.sinks.conformance.subject import (
    EPOCH_ROWS,
    Subject,
    after,
    bundle_at,
    expect,
    expect_agreement,
    fill,
)


def dies_at_every_step_of_a_write(subject: Subject) -> None:
    """Check that a writer killed before, during or after a write leaves its bundle either complete or absent."""
    store, state = subject.opened()
    before = fill(subject, store, state, 10).next
    store.close()
    outcomes = []
    for number, step in enumerate([*steps_of(writing(subject, 2)), Step(0)]):
        incarnation = 3 + 2 * number
        store, state = subject.opened(incarnation - 1)
        before = state.next
        store.close()
        killed_at(step, writing(subject, incarnation))
        store, state = subject.opened(incarnation)
        promise = f"after a kill at {step} of a write"
        expect(state.next in (before, before + 2), f"{promise}, a bundle is there whole or not at all", str(state.next))
        expect_agreement(subject, state, promise, kept_from=None)
        outcomes.append(state.next - before)
        fill(subject, store, state, before + 2, incarnation)
        subject.expect_rows(before + 2, f"{promise}, the next process continues")
        store.close()
    expect(outcomes[0] == 0, "a writer that dies before its write has written nothing", str(outcomes))
    expect(outcomes[-1] == 2, "a writer that dies after its write has written all", str(outcomes))


def takes_a_half_written_bundle_for_nothing(subject: Subject) -> None:
    """Check that a dead writer's partial bundle is completed or withdrawn, and that readers never see part of it."""
    if not subject.tears:
        raise SkipTest("use Subject(tears=[…]) to have half-written bundles checked, unless a transaction covers them")
    for number, tear in enumerate(subject.tears):
        incarnation = 1 + 2 * number
        store, state = subject.opened(incarnation)
        state = fill(subject, store, state, number * EPOCH_ROWS + 7, incarnation)
        bundle = bundle_at(subject, state, 5, incarnation)
        store.write(bundle)
        store.close()
        tear("out/0")
        promise = f"after tear {number}"
        store, reopened = subject.opened(incarnation + 1)
        ends = (state.next, state.next + bundle.count)
        expect(reopened.next in ends, f"{promise}, the last bundle is there whole or not at all", str(reopened.next))
        expect_agreement(subject, reopened, promise)
        state = fill(subject, store, reopened, reopened.next + 20, incarnation + 1)
        subject.expect_rows(state.next, f"{promise}, the next process continues")
        store.close()


def survives_kills(subject: Subject, kills: int = 20, seed: int = 1) -> None:
    """Check that nothing is lost, duplicated or left incomplete when writers are repeatedly killed at random moments.

    As in a job, a newer incarnation takes over after each kill. From then on, requests that the killed writer had
    already sent to a server have no effect.
    """
    for number in killed_writers(lambda number: _writer(subject, 2 * number - 1), kills, seed):
        store, state = subject.opened(2 * number)
        expect_agreement(subject, state, "after a kill", kept_from=None)
        store.close()
    last = 2 * kills + 1
    store, state = subject.opened(last)
    state = fill(subject, store, state, state.next + 25, last)
    subject.expect_rows(state.next, "after many kills, every row is there once")
    store.close()


def stops_zombies_that_wake_up(subject: Subject, stops: int = 8, seed: int = 1) -> None:
    """Check that a writer that is stopped at a random moment and replaced is fenced when it resumes."""
    chance = Random(seed)
    for incarnation in range(1, 2 * stops, 2):
        # The pause makes it possible that the stopped writer holds no lock.
        pid = _writer(subject, incarnation, pause_s=0.003)
        time.sleep(chance.uniform(0.0, 0.01))
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        store, state = _opened_beside(subject, incarnation + 1, pid)
        state = fill(subject, store, state, state.next + 10, incarnation + 1)
        os.kill(pid, signal.SIGCONT)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        expect(status == FENCED_STATUS, "a zombie that wakes up is fenced", f"it ended with status {status}")
        subject.expect_rows(state.next, "a zombie that wakes up changes nothing")
        fill(subject, store, state, state.next + 10, incarnation + 1)
        subject.expect_rows(state.next + 10, "a zombie does not disturb its successor")
        store.close()


def _opened_beside(subject: Subject, incarnation: int, stopped: int) -> tuple[SinkStore, StoreState]:
    """Open the store although a stopped process may hold its lock; resume that process briefly to release it."""
    pause_s = 0.001
    while True:
        with suppress(Unavailable):
            return subject.opened(incarnation)
        os.kill(stopped, signal.SIGCONT)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.02)
        os.kill(stopped, signal.SIGSTOP)
        os.waitpid(stopped, os.WUNTRACED)


def _writer(subject: Subject, incarnation: int, pause_s: float = 0.0) -> int:
    """Start a process that writes bundles and truncates until it is killed or fenced, and return its id."""

    def write(begin: Callable[[], object]) -> None:
        store, state = subject.opened(incarnation)
        begin()
        while True:
            bundle = bundle_at(subject, state, 1 + state.next % 5, incarnation)
            store.write(bundle)
            state = after(state, bundle)
            store.truncate(state.next // EPOCH_ROWS - 1)
            time.sleep(pause_s)

    return begun(write)


CHECKS: tuple[Callable[[Subject], None], ...] = (
    dies_at_every_step_of_a_write,
    takes_a_half_written_bundle_for_nothing,
    survives_kills,
    stops_zombies_that_wake_up,
)
"""The checks of this module; each takes a fresh subject."""
