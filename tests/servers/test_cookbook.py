"""The recipe of the cookbook that writes to PostgreSQL, with the table and the kill that its page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.servers.kafka import Topics
from benchmarks.servers.postgres import Postgres
from operators.testing import run
from tests.docs.recipes import CHECKS, Page, generated, pipeline_of, with_held_end
from tests.faults.conftest import Start

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
