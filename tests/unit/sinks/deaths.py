"""Writers that die, or stop, at any system call, and writers on a full disk: what their successors find."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from causal.errors import Unavailable
from operators.sinks.conformance import EPOCH_ROWS, Subject, after, bundle_at, expect_agreement, fill
from operators.sinks.conformance.dying import forked

CALLS = ("open", "write", "pwrite", "replace", "link", "ftruncate", "fdatasync", "fsync", "unlink")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def armed(countdown: int, half: bool, end: Callable[[], None] = die) -> None:
    """Kill or stop the process at the `countdown`-th system call from now; `half`: after half of a write."""
    left = countdown

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def call(*args: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                if half and name in ("write", "pwrite"):
                    real(args[0], args[1][: len(args[1]) // 2], *args[2:])
                end()
            return real(*args, **named)

        setattr(os, name, call)

    for name in CALLS:
        wrap(name)


def in_a_child(step: Callable[[], None]) -> int:
    """Exit status of a forked process that does `step`; negative: the signal it died of."""
    return os.waitstatus_to_exitcode(os.waitpid(forked(step), 0)[1])


def dies_at_every_call(
    make: Callable[[Path], Subject],
    root: Path,
    half: bool,
    stride: int = 1,
    look: Callable[[Path, int, int], None] = lambda place, least, most: None,
) -> None:
    """A writer dies at each `stride`th system call of an open, bundles, a truncation and a close.

    Args:
        look: is asked each time at a place where between `least` and `most` rows must be seen.
    """
    for countdown in range(1, 200, stride):
        place = root / f"at-{countdown}"
        place.mkdir()
        subject = make(place)
        store, state = subject.opened(1)
        fill(subject, store, state, EPOCH_ROWS + 5)
        store.close()

        def step(subject: Subject = subject, countdown: int = countdown) -> None:
            armed(countdown, half)
            store, state = subject.opened(2)
            state = fill(subject, store, state, EPOCH_ROWS + 12, 2)
            store.truncate(1)
            fill(subject, store, state, EPOCH_ROWS + 19, 2)
            store.close()

        status = in_a_child(step)
        look(place, 0, EPOCH_ROWS + 19)
        store, state = subject.opened(3)
        assert state.next in (EPOCH_ROWS + 5, EPOCH_ROWS + 12, EPOCH_ROWS + 19)
        expect_agreement(subject, state, f"death at call {countdown}", kept_from=None)
        look(place, 0, state.next)
        state = fill(subject, store, state, EPOCH_ROWS + 30, 3)
        subject.expect_rows(state.next, f"continuing after death at call {countdown}")
        store.close()
        look(place, state.next, state.next)
        if status == 0:
            assert countdown > 10, "the child must have died at every call before"
            return
        assert status == -signal.SIGKILL
    raise AssertionError("the child never came to its end")


def full_disk(limit: int) -> None:
    """No file may grow beyond `limit` bytes: a write that would is cut short or refused, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def fills_the_disk(subject: Subject, root: Path, limits: Sequence[int], count: int) -> int:
    """Return a writer of bundles of `count` rows finds the disk full at each limit, and room again; returns the rows
    taken.
    """
    store, state = subject.opened(1)
    fill(subject, store, state, 10)
    store.close()
    read_end, write_end = os.pipe()

    def step() -> None:
        store, state = subject.opened(2)
        for limit in limits:
            full_disk(limit)
            try:
                while True:
                    bundle = bundle_at(subject, state, count, 2)
                    store.write(bundle)
                    state = after(state, bundle)
                    store.truncate(state.next // EPOCH_ROWS)
            except Unavailable as problem:
                os.write(write_end, f"{problem}\n".encode())
            # There is room again: the same bundle may be written again, and is there once.
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            store.write(bundle)
            if after(state, bundle).next > state.next:
                state = after(state, bundle)
            subject.expect_rows(state.next, "after there was room again, every row is there once")
        store.close()

    assert in_a_child(step) == 0
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        messages = pipe.read().splitlines()
    assert len(messages) == len(limits) and all(str(root) in message for message in messages)
    store, state = subject.opened(3)
    expect_agreement(subject, state, "after a full disk", kept_from=None)
    store.close()
    return state.next
