"""A writer dies at every system call of a bundle, and in the middle of SQLite's work: the next one continues."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from operators.sinks import conformance
from operators.sinks.conformance import Subject, bundle_at, expect_held, fill
from tests.members import campaign, sample
from tests.unit.sinks.deaths import die, dies_at_every_call, fills_the_disk, in_a_child
from tests.unit.sinks.test_conformance import lines, lines_on_disk, sqlite


@pytest.mark.parametrize("half", [False, True], ids=["before", "half-written"])
@pytest.mark.parametrize("make", [lines, campaign(lines_on_disk)])
def test_json_lines_survive_death_at_every_system_call(
    make: Callable[[Path], Subject], half: bool, tmp_path: Path
) -> None:
    dies_at_every_call(make, tmp_path, half)


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
