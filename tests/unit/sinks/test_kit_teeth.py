"""The conformance kit finds what is wrong with a store, each time: a sound store broken in one way after the other."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from causal.errors import CausalError
from operators.sinks import conformance
from operators.sinks.conformance import crashes, successions, value_checks, withdrawal, zombies
from operators.sinks.contract import (
    Account,
    Bundle,
    Sink,
    StoreState,
    Unavailable,
    WithdrawPoint,
    check_newest,
    fenced,
    foreign_rows,
    lines_of,
    packed,
    unpacked,
)
from tests.unit.sinks.bounded import bounded

CHANGES: dict[str, Callable[[str], str]] = {
    "single precision": lambda line: re.sub(r"\b16777217\b", "16777216", line),
    "drops zones": lambda line: line.replace("+02:00", ""),
}
"""The change that a faulty store makes to the values of lines, by fault."""


class BrokenSink(Sink):
    """Rows and account in one SQLite file per task; `fault` says what is wrong with its stores, "" for nothing."""

    def __init__(self, directory: Path, fault: str) -> None:
        self.directory = directory
        self.fault = fault
        self.existing = "refuse"

    def path_of(self, task: str) -> Path:
        return self.directory / f"{task.replace('/', '-')}.db"

    def open_store(self, task: str, job_directory: Path) -> BrokenStore:
        return BrokenStore(task, self.path_of(task), self.fault, self.existing)

    def rows(self, task: str) -> list[Any]:
        with sqlite3.connect(self.path_of(task)) as db:
            return [json.loads(row) for (row,) in db.execute("SELECT row FROM rows ORDER BY position, rowid")]


class BrokenStore:
    """One task's."""

    def __init__(self, task: str, path: Path, fault: str, existing: str | None) -> None:
        self.task, self.path, self.fault, self.existing = task, path, fault, existing

    @contextmanager
    def step(self) -> Iterator[sqlite3.Connection]:
        """Yield one transaction."""
        db = sqlite3.connect(self.path, timeout=0.1, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous=OFF")
            db.execute("BEGIN IMMEDIATE")
            db.execute("CREATE TABLE IF NOT EXISTS account(bytes BLOB)")
            db.execute("CREATE TABLE IF NOT EXISTS rows(position INTEGER, row TEXT)")
            yield db
            db.execute("COMMIT")
        except sqlite3.OperationalError as problem:
            raise Unavailable(str(problem)) from None
        finally:
            db.close()

    def load(self, db: sqlite3.Connection) -> Account | None:
        row = db.execute("SELECT bytes FROM account").fetchone()
        return None if row is None else unpacked(self.task, row[0])

    def save(self, db: sqlite3.Connection, account: Account) -> None:
        db.execute("DELETE FROM account")
        db.execute("INSERT INTO account VALUES(?)", (packed(account),))

    def mine(self, db: sqlite3.Connection, fence: bool = True) -> Account:
        account = self.load(db)
        assert account is not None
        if fence:
            account.fence(self.run, self.incarnation)
        return account

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        self.run, self.incarnation = run, incarnation
        with self.step() as db:
            account = self.load(db) or Account(task, run, incarnation)
            if self.fault == "fences older runs" and account.run > run:
                raise fenced(task, incarnation)
            if self.fault != "any run replaces":
                check_newest(self.path, run, account.run)
            if account.run != run:
                account = self.replaced(db, account)
            if account.incarnation > incarnation:
                raise fenced(task, incarnation)
            account.incarnation = incarnation
            self.save(db, account)
        return account.store_state()

    def replaced(self, db: sqlite3.Connection, account: Account) -> Account:
        """Return an account of the new run, and no rows."""
        if self.existing == "refuse":
            raise foreign_rows(self.path, "BrokenSink")
        if self.fault != "empties and leaves the account":
            self.save(db, Account(self.task, self.run, self.incarnation))
        db.execute("DELETE FROM rows")
        if self.fault == "empties and leaves the account":
            db.execute("COMMIT")
            db.execute("BEGIN IMMEDIATE")
        return Account(self.task, self.run, self.incarnation)

    def last_bundle(self) -> StoreState:
        with self.step() as db:
            return self.mine(db).store_state()

    def insert(self, db: sqlite3.Connection, bundle: Bundle) -> None:
        positions, lines = lines_of(bundle)
        if self.fault in CHANGES:
            lines = [CHANGES[self.fault](line) for line in lines]
        rows = list(zip(positions, lines, strict=True))
        db.executemany("INSERT INTO rows VALUES(?, ?)", rows[:-1] if self.fault == "a row lost" else rows)

    def write(self, bundle: Bundle) -> None:
        if self.fault == "looks, then writes":
            with self.step() as db:
                self.mine(db)
        with self.step() as db:
            account = self.mine(db, self.fault not in ("looks, then writes", "no fence"))
            fresh = account.take(bundle)
            if fresh is None:
                if self.fault == "takes duplicates":
                    self.insert(db, bundle)
                return
            if self.fault != "account first":
                self.insert(db, bundle)
            if self.fault != "rows first":
                self.save(db, account)
        if self.fault in ("account first", "rows first"):
            with self.step() as db:
                if self.fault == "account first":
                    self.insert(db, bundle)
                else:
                    self.save(db, account)

    def truncate(self, epoch: int) -> None:
        with self.step() as db:
            account = self.mine(db)
            if account.truncate(epoch):
                self.save(db, account)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        with self.step() as db:
            account = self.mine(db)
            account.withdraw(mark)
            if self.fault != "withdraws nothing":
                db.execute("DELETE FROM rows WHERE position >= ?", (mark.next,))
            self.save(db, account)
        return account.store_state()

    def close(self) -> None:
        """Nothing is open."""


FOUND_BY: dict[str, Callable[[conformance.Subject], None]] = {
    "a row lost": conformance.bundles.holds_what_was_written,
    "no fence": conformance.bundles.fences_zombies,
    "looks, then writes": zombies.fences_zombies_at_every_step_of_a_write,
    "account first": crashes.dies_at_every_step_of_a_write,
    "rows first": crashes.dies_at_every_step_of_a_write,
    "takes duplicates": conformance.bundles.takes_a_lost_acknowledgement,
    "withdraws nothing": withdrawal.takes_rows_back,
    "single precision": value_checks.keeps_every_value_or_refuses_it,
    "drops zones": value_checks.keeps_every_value_or_refuses_it,
    "any run replaces": successions.lets_no_older_run_come_back,
    "fences older runs": successions.lets_no_older_run_come_back,
    "empties and leaves the account": successions.dies_at_every_step_of_a_replacement,
}


def test_a_change_of_values_is_one_that_these_lines_would_show() -> None:
    changed = {
        fault: change('{"value": 0.1} 16777217 "2020-01-01T05:00:00+02:00"') for fault, change in CHANGES.items()
    }
    assert len(set(changed.values())) == len(CHANGES)


def subject(directory: Path, fault: str) -> conformance.Subject:
    sink = BrokenSink(directory, fault)
    return conformance.Subject(sink, sink.rows)


@pytest.mark.parametrize("fault", FOUND_BY)
def test_the_kit_finds_a_store_that_breaks_a_promise(fault: str, tmp_path: Path) -> None:
    with pytest.raises((conformance.NotConforming, CausalError)):
        bounded(FOUND_BY[fault])(subject(tmp_path, fault))


@pytest.mark.campaign
@pytest.mark.parametrize("check", dict.fromkeys(FOUND_BY.values()), ids=lambda check: check.__name__)
def test_the_same_checks_pass_a_sound_store(check: Callable[[conformance.Subject], None], tmp_path: Path) -> None:
    check(subject(tmp_path, ""))
