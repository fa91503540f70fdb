"""A writer dies at every single system call of a bundle, and in the middle of SQLite's work: the next one continues.

Where `os.write` and `os.pwrite` are cut short first, the dying process leaves half of its bytes behind.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from causal.errors import Fenced, Unavailable
from operators.sinks import conformance
from operators.sinks.conformance import EPOCH_ROWS, Subject, bundle_at, expect_held, fill
from tests.unit.sinks.test_conformance import lines, lines_on_disk, sqlite

CALLS = ("open", "write", "pwrite", "replace", "ftruncate", "fdatasync", "fsync", "unlink")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def armed(countdown: int, half: bool, end: Callable[[], None] = die) -> None:
    """Let the process die, or stop, at the `countdown`-th system call from now; `half`: after half of a write."""
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


def child(step: Callable[[], None]) -> int:
    """Process id of a forked process that does `step`."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        step()
        status = 0
    except Fenced:
        status = 3
    except Exception:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


def in_a_child(step: Callable[[], None]) -> int:
    """Exit status of a forked process that does `step`; negative: the signal it died of."""
    return os.waitstatus_to_exitcode(os.waitpid(child(step), 0)[1])


@pytest.mark.parametrize("half", [False, True], ids=["before", "half-written"])
@pytest.mark.parametrize("make", [lines, lines_on_disk])
def test_json_lines_survive_death_at_every_system_call(
    make: Callable[[Path], Subject], half: bool, tmp_path: Path
) -> None:
    for countdown in range(1, 100):
        subject = make(tmp_path / f"at-{countdown}")
        (tmp_path / f"at-{countdown}").mkdir()
        store, state = subject.opened(1)
        state = fill(subject, store, state, EPOCH_ROWS + 5)
        store.close()

        def step(subject: Subject = subject, countdown: int = countdown) -> None:
            armed(countdown, half)
            store, state = subject.opened(2)
            state = fill(subject, store, state, EPOCH_ROWS + 12, 2)
            store.truncate(1)
            fill(subject, store, state, EPOCH_ROWS + 19, 2)

        status = in_a_child(step)
        store, state = subject.opened(3)
        assert state.next in (EPOCH_ROWS + 5, EPOCH_ROWS + 12, EPOCH_ROWS + 19)
        subject.expect_rows(state.next, f"death at call {countdown}")
        expect_held(subject, state, f"death at call {countdown}", kept_from=None)
        state = fill(subject, store, state, EPOCH_ROWS + 30, 3)
        subject.expect_rows(state.next, f"going on after death at call {countdown}")
        store.close()
        if status == 0:
            assert countdown > 10, "the child must have died at every call before"
            return
        assert status == -signal.SIGKILL
    raise AssertionError("the child never came to its end")


def test_a_json_lines_zombie_stops_at_every_system_call_of_a_write(tmp_path: Path) -> None:
    """A zombie that has the lock keeps its successor out until it is killed: there is no gap to write in."""
    kept_out = 0
    for countdown in range(1, 20):
        subject = lines(tmp_path / f"at-{countdown}")
        (tmp_path / f"at-{countdown}").mkdir()
        store, state = subject.opened(1)
        fill(subject, store, state, 5)
        store.close()

        def step(subject: Subject = subject, countdown: int = countdown) -> None:
            store, state = subject.opened(2)
            armed(countdown, False, stop)
            store.write(bundle_at(subject, state, 3, 2))
            os._exit(0)

        pid = child(step)
        if not os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]):
            assert kept_out == countdown - 1 == 2, "one write to the journal, one to the rows, both under the lock"
            return
        with pytest.raises(Unavailable, match="being written by another process"):
            subject.opened(3)
        kept_out += 1
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        store, state = subject.opened(3)
        state = fill(subject, store, state, 20, 3)
        subject.expect_rows(20, f"going on after a stop at call {countdown}")
        store.close()
    raise AssertionError("the child never came to its end")


def test_a_sqlite_writer_dies_between_any_two_statements(tmp_path: Path) -> None:
    subject = sqlite(tmp_path)
    store, state = subject.opened(1)
    fill(subject, store, state, 5)
    store.close()
    ended = False
    for statement in range(1, 40):

        def step(statement: int = statement) -> None:
            left = statement

            def count(statement: str) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    die()

            store, state = subject.opened(statement + 1)
            store._db.set_trace_callback(count)  # type: ignore[attr-defined]
            store.write(bundle_at(subject, state, 3, statement + 1))

        ended = in_a_child(step) == 0
        store, state = subject.opened(statement + 1)
        subject.expect_rows(state.next, f"death at statement {statement}")
        expect_held(subject, state, f"death at statement {statement}")
        store.close()
        if ended:
            break
    assert ended, "the child never came to its end"
    assert state.next == 8, "only the child that lived wrote its bundle"


@pytest.mark.parametrize("seed", range(3))
def test_a_sqlite_writer_dies_inside_a_statement(tmp_path: Path, seed: int) -> None:
    subject = sqlite(tmp_path)
    for incarnation in range(1, 12):

        def step(incarnation: int = incarnation) -> None:
            store, state = subject.opened(incarnation)
            db: sqlite3.Connection = store._db  # type: ignore[attr-defined]
            db.set_progress_handler(die, 20 + (incarnation * 37 + seed * 101) % 400)
            while True:
                bundle = bundle_at(subject, state, 7, incarnation)
                store.write(bundle)
                state = conformance.after(state, bundle)

        assert in_a_child(step) == -signal.SIGKILL
        store, state = subject.opened(incarnation)
        subject.expect_rows(state.next, f"death inside a statement of incarnation {incarnation}")
        expect_held(subject, state, f"death inside a statement of incarnation {incarnation}")
        store.close()


def full_disk(limit: int) -> None:
    """No file may grow beyond `limit` bytes: a write that would is cut short or refused, as on a full disk."""
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@pytest.mark.parametrize("make", [sqlite, lines, lines_on_disk])
def test_a_full_disk_is_told_and_nothing_is_half_done(make: Callable[[Path], Subject], tmp_path: Path) -> None:
    subject = make(tmp_path)
    store, state = subject.opened(1)
    fill(subject, store, state, 10)
    store.close()
    largest = max(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    read_end, write_end = os.pipe()

    def step() -> None:
        import resource

        store, state = subject.opened(2)
        for extra in (10, 200, 900, 3000):
            full_disk(largest + extra)
            try:
                while True:
                    bundle = bundle_at(subject, state, 7, 2)
                    store.write(bundle)
                    state = conformance.after(state, bundle)
                    store.truncate(state.next // EPOCH_ROWS)
            except Unavailable as problem:
                os.write(write_end, f"{problem}\n".encode())
            # There is room again: the same bundle may be written again, and is there once.
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            store.write(bundle)
            if conformance.after(state, bundle).next > state.next:
                state = conformance.after(state, bundle)
        subject.expect_rows(state.next, "after there was room again, every row is there once")

    assert in_a_child(step) == 0
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        messages = pipe.read().splitlines()
    assert len(messages) == 4
    assert all(str(tmp_path) in message for message in messages)
    store, state = subject.opened(3)
    subject.expect_rows(state.next, "after a full disk, rows and position agree")
    expect_held(subject, state, "after a full disk, determinants and position agree", kept_from=None)
    store.close()
