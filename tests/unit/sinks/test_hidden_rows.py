"""Withdrawn rows of `SqliteSink` that are not deleted yet: no reader sees one, also after a kill at any statement."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from causal.errors import PipelineError
from causal.ports import Bundle
from operators.outputs import open_output
from operators.sinks import SqliteSink
from operators.sinks.conformance import Subject, fill, returning, withdrawal
from operators.sinks.conformance.dying import forked
from operators.sinks.sqlite import sqlite_hidden, sqlite_tables
from operators.sinks.sqlite.sqlite_store import SqliteStore
from tests.members import sample
from tests.unit.sinks.bounded import in_bounds
from tests.unit.sinks.test_conformance import sqlite
from tests.unit.sinks.test_sqlite import query

TASKS = ("out/0", "out/1")
Rows = list[tuple[str, int, Any]]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HIDDEN_MIN": 4, "PER_BUNDLE": 2, "PER_CHECKPOINT": 3}.items():
        monkeypatch.setattr(sqlite_hidden, name, value)


@pytest.mark.parametrize("check", in_bounds(withdrawal.CHECKS + returning.CHECKS), ids=lambda check: check.__name__)
def test_it_conforms_while_rows_are_hidden(check: Callable[[Subject], None], tmp_path: Path) -> None:
    check(replace(sqlite(tmp_path), poison=None))


def plain(path: Path) -> Rows:
    """Return what a plain reader sees, in the order in which it sees it."""
    return [(task, position, json.loads(record)) for task, position, record in query(path, "SELECT * FROM output")]


class Job:
    """Two tasks that write to one file: the calls of a random job, and the rows that a reader must see after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stores: dict[str, SqliteStore] = {}
        self.visible: dict[str, list[int]] = {task: [] for task in TASKS}
        self.incarnation = self._epoch = 0

    def open(self) -> None:
        """Open both stores as the next incarnation."""
        self.incarnation += 1
        for task in TASKS:
            store = self.stores[task] = SqliteStore(SqliteSink(self.path), task)
            store.open(task, "run-1", self.incarnation)

    def rows(self) -> Rows:
        """Return the rows as a plain reader must see them."""
        return [(task, at, version) for task in TASKS for at, version in enumerate(self.visible[task])]

    def step(self, kind: str, draw: random.Random, version: int) -> Callable[[], object]:
        """Change what is visible as a call of this kind does, and return the call."""
        task = draw.choice(TASKS)
        rows = self.visible[task]
        if kind == "checkpoint":
            self._epoch += 1
            return lambda: self.stores[task].truncate(self._epoch)
        if kind == "write":
            count = draw.randint(1, 7)
            first, text = len(rows), f"{version}\n".encode() * count
            rows += [version] * count
            return lambda: self.stores[task].write(
                Bundle(first, count, text, version, self._epoch, self.incarnation, ())
            )
        next_ = 0 if kind == "return to 0" else draw.choice([0, len(rows), draw.randint(0, len(rows))])
        nothing = next_ == len(rows)
        del rows[next_:]
        return lambda: self.stores[task].return_to(
            next_, self.stores[task].last_bundle().digest if nothing else version
        )

    def trace(self, executed: Callable[[str], object]) -> None:
        """Call a function before each statement from now on."""
        for store in self.stores.values():
            connection: Any = store._connection
            connection.set_trace_callback(executed)

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


@pytest.mark.parametrize("seed", sample(range(200), 5))
def test_a_reader_sees_each_call_as_one_step(seed: int, tmp_path: Path) -> None:
    job, draw, views = Job(tmp_path / "out.db"), random.Random(seed), 0
    job.open()
    seen: list[Rows] = []
    job.trace(lambda _: seen.append(plain(job.path)))
    for version in range(40):
        before = job.rows()
        job.step(draw.choice(("write", "write", "checkpoint", "return")), draw, version)()
        assert seen and all(rows in (before, job.rows()) for rows in seen)
        seen.clear()
        assert plain(job.path) == job.rows()
        assert read(job.path) == {task: len(rows) for task, rows in job.visible.items()}
        views += relation(job.path) == "view"
    job.close()
    assert views


@pytest.mark.parametrize("seed", sample(range(150, 200), 1))
def test_a_call_that_is_killed_at_any_statement_has_had_no_effect(seed: int, tmp_path: Path) -> None:
    job, draw, views = Job(tmp_path / "out.db"), random.Random(seed), 0
    for version, kind in enumerate((*["write"] * 4, "return", "return to 0", *["write", "checkpoint"] * 3)):
        before = job.rows()
        call = job.step(kind, draw, version)
        statement = 1
        while died_at(statement, job, call):
            assert plain(job.path) == before if job.path.exists() else not before
            statement += 1
        assert statement > 4 and plain(job.path) == job.rows()
        views += relation(job.path) == "view"
    assert views


def died_at(statement: int, job: Job, call: Callable[[], object]) -> bool:
    """Return whether a process that makes the call executes so many statements; it is killed at the last of these."""
    left = statement

    def executed(_: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    def traced_call() -> None:
        job.open()
        job.trace(executed)
        call()

    job.incarnation += 1
    status = os.waitstatus_to_exitcode(os.waitpid(forked(traced_call), 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def relation(path: Path) -> str:
    """Return what `output` is: a table or a view."""
    ((kind,),) = query(path, "SELECT type FROM sqlite_master WHERE name = 'output'")
    return str(kind)


def read(path: Path) -> dict[str, int]:
    """Return how many rows of each task `open_output` gives, which are as many as it announces."""
    output = open_output(path)
    output.look()
    counts = {task: sum(len(rows) for _, rows in output.rows(task, 0, 1000)) for task in TASKS}
    assert counts == output.ends(True)
    return counts


def filled(path: Path, rows: int = 20) -> Any:
    subject = sqlite(path)
    store, state = subject.opened()
    fill(subject, store, state, rows)
    return store


@pytest.mark.parametrize(
    "addition",
    [
        "CREATE UNIQUE INDEX once ON output(record)",
        "CREATE TRIGGER rule BEFORE INSERT ON output BEGIN SELECT 1; END",
        "ALTER TABLE output ADD COLUMN seen INTEGER",
    ],
)
def test_rows_of_a_table_with_additions_are_deleted_immediately(addition: str, tmp_path: Path) -> None:
    store = filled(tmp_path)
    query(tmp_path / "out.db", addition)
    store.return_to(3, 7)
    assert relation(tmp_path / "out.db") == "table"
    assert query(tmp_path / "out.db", "SELECT count(*) FROM output") == [(3,)]
    store.close()


def test_views_and_indexes_of_users_see_what_is_visible(tmp_path: Path) -> None:
    path, store = tmp_path / "out.db", filled(tmp_path)
    query(path, "CREATE INDEX by_record ON output(record)")
    query(path, "CREATE VIEW mine AS SELECT count(*) FROM output")
    store.return_to(3, 7)
    assert relation(path) == "view" and query(path, "SELECT * FROM mine") == [(3,)]
    for epoch in range(100, 110):
        store.truncate(epoch)
    assert relation(path) == "table" and query(path, "SELECT * FROM mine") == [(3,)]
    assert query(path, "SELECT tbl_name FROM sqlite_master WHERE name = 'by_record'") == [("output",)]
    assert query(path, "PRAGMA user_version") == [(sqlite_tables._VERSION,)], "earlier versions can write to it again"
    store.close()


def test_a_new_run_replaces_rows_of_which_some_are_hidden(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.return_to(3, 7)
    store.close()
    subject = replace(sqlite(tmp_path, existing="replace"), poison=None)
    store, state = subject.opened(run="run-2")
    assert relation(tmp_path / "out.db") == "table" and plain(tmp_path / "out.db") == []
    fill(subject, store, state, 5)
    subject.expect_rows(5, "rows of the new run follow")
    store.close()


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    filled(tmp_path).close()
    query(tmp_path / "out.db", f"PRAGMA user_version = {sqlite_hidden.VERSION + 1}")
    with pytest.raises(PipelineError, match="later version"):
        sqlite(tmp_path).opened(2)
