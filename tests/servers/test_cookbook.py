"""The recipes of the cookbook with PostgreSQL, with the tables and the kills that their pages show."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill, of_job
from benchmarks.harness.written import records_in
from benchmarks.servers.kafka import Topics
from benchmarks.servers.postgres import Postgres
from operators.testing import run
from tests.docs.recipes import CHECKS, Page, generated, pipeline_of, with_held_end
from tests.faults.conftest import Start
from tests.faults.job import Job, wait_for

COLUMNS = ("booking", "customer", "cents", "balance", "booked_at")


@pytest.mark.campaign
def test_a_booking_is_in_the_table_once(start: Start, tmp_path: Path, shared_postgres: Postgres) -> None:
    page, gate = Page("to_postgres"), tmp_path / "gate"
    create, query = re.findall(r'^\$ psql shop .*-c "(.+)"$', page.text, re.MULTILINE)
    shared_postgres.query(create)
    copy = with_held_end(page.program, tmp_path, gate)
    job = start(copy, *page.arguments, "--set", f"dsn={shared_postgres.dsn}")
    report = job.finish_killed(gate)
    assert [recovery["task"] for recovery in report["recoveries"]] == page.killed == page.recovered()
    rows = shared_postgres.query(f"SELECT {', '.join(COLUMNS)} FROM bookings ORDER BY booking")
    bookings = generated("to_postgres", "booking", range(6_000))
    CHECKS["to_postgres"]({"bookings": bookings}, {"out": [dict(zip(COLUMNS, row)) for row in rows]})
    [answer] = shared_postgres.query(query)
    assert "|".join(map(str, answer)) in page.text.splitlines()


@pytest.mark.parametrize("name", ["to_postgres", "to_kafka"])
def test_a_crash_changes_no_balance(name: str) -> None:
    bookings = generated(name, "booking", range(0, 600, 10))
    for crash in ({"balance/0": 9}, {"balance/1": 5}, {"out/0": 30}):
        rows = run(pipeline_of(name), {"bookings": bookings}, crash=crash)["out"]
        ordered = sorted(rows, key=lambda row: row["booking"])
        CHECKS[name]({"bookings": bookings}, {"out": ordered})


@pytest.mark.campaign
def test_a_balance_is_in_the_topic_once(start: Start, tmp_path: Path, shared_kafka: Topics) -> None:
    page, gate = Page("to_kafka"), tmp_path / "gate"
    shared_kafka.create("balances", 3)
    job = start(
        with_held_end(page.program, tmp_path, gate), *page.arguments, "--set", f"servers={shared_kafka.servers}"
    )
    report = job.finish_killed(gate)
    assert [recovery["task"] for recovery in report["recoveries"]] == page.killed == page.recovered()
    rows = [json.loads(row.value or b"") for row in shared_kafka.rows("balances")]
    CHECKS["to_kafka"]({"bookings": generated("to_kafka", "booking", range(6_000))}, {"out": rows})


def replace_reading(job: Job) -> None:
    """Kill the process that reads changes."""
    before = reading(job)
    assert kill(before)
    wait_for("another process reads", lambda: reading(job) != before)


def reading(job: Job) -> int:
    return wait_for(
        "changes are read",
        lambda: next((p for p, command in of_job(job.state).items() if "operators.runtime.ingesting" in command), None),
    )


def test_orders_are_followed_whatever_dies(start: Start, tmp_path: Path, logical_postgres: Postgres) -> None:
    """Tasks, the process that reads, the server and then everything are killed between and during changes."""
    page, server = Page("from_postgres"), logical_postgres
    assert page.includes_its_program()
    create, identity, insert, update, delete = re.findall(r'^\$ psql shop -c "(.+)"$', page.text, re.MULTILINE)
    for statement in (create, identity, insert):
        server.query(statement)
    job = start(page.program, *page.arguments, "--set", f"dsn={server.dsn}")

    def are_out(count: int) -> None:
        job.until(f"{count} rows are out", lambda view: sum(1 for _ in rows()) >= count)

    def rows() -> list[dict[str, Any]]:
        there = (tmp_path / "open.db").exists()
        return list(records_in(tmp_path / "open.db")) if there else []

    job.until_killed()
    are_out(700)
    server.query(update)
    replace_reading(job)
    job.replace("bookings/0")
    are_out(900)
    with server.down():
        job.replace("open/1")
    server.query(delete)
    job.kill_everything()
    server.query("INSERT INTO orders SELECT i, 'later', i FROM generate_series(1001, 1100) i")
    job.start("--resume")
    are_out(1_100)
    job.kill_everything()
    orders = [{"id": order, "cents": cents} for order, cents in server.query("SELECT id, cents FROM orders")]
    CHECKS["from_postgres"]({"orders": orders}, {"out": rows()})
    [(file, query, [answer])] = page.queries()
    with sqlite3.connect(tmp_path / file) as database:
        [(total,)] = database.execute(f"{query} WHERE record ->> 'customer' <> 'later'")
    assert str(total) == answer
