"""A writer dies at every system call of a bundle, and in the middle of SQLite's work: the next one continues."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from causal.errors import Unavailable
from operators.sinks import conformance
from operators.sinks.conformance import Subject, bundle_at, expect_held, fill
from operators.sinks.conformance.dying import forked
from tests.members import campaign, sample
from tests.unit.sinks.deaths import armed, die, dies_at_every_call, fills_the_disk, in_a_child, stop
from tests.unit.sinks.test_conformance import lines, lines_on_disk, sqlite


@pytest.mark.parametrize("half", [False, True], ids=["before", "half-written"])
@pytest.mark.parametrize("make", [lines, campaign(lines_on_disk)])
def test_json_lines_survive_death_at_every_system_call(
    make: Callable[[Path], Subject], half: bool, tmp_path: Path
) -> None:
    dies_at_every_call(make, tmp_path, half)


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

        pid = forked(step)
        if not os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]):
            assert kept_out == countdown - 1 == 2, "one write to the journal, one to the rows, both under the lock"
            return
        with pytest.raises(Unavailable, match="locked by another process"):
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
            store._connection.set_trace_callback(count)  # type: ignore[attr-defined]
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


@pytest.mark.parametrize("seed", sample(range(3), 1))
def test_a_sqlite_writer_dies_inside_a_statement(tmp_path: Path, seed: int) -> None:
    subject = sqlite(tmp_path)
    for incarnation in range(1, 12):

        def step(incarnation: int = incarnation) -> None:
            store, state = subject.opened(incarnation)
            db: sqlite3.Connection = store._connection  # type: ignore[attr-defined]
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


@pytest.mark.parametrize("make", [sqlite, lines, campaign(lines_on_disk)])
def test_a_full_disk_is_told_and_nothing_is_half_done(make: Callable[[Path], Subject], tmp_path: Path) -> None:
    subject = make(tmp_path)
    store, state = subject.opened(1)
    fill(subject, store, state, 10)
    store.close()
    largest = max(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    fills_the_disk(subject, tmp_path, [largest + extra for extra in (10, 200, 900, 3000)], 7)
