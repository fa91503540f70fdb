"""The recipes of the cookbook with PostgreSQL, with the tables and the kills that their pages show."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill, of_job
from benchmarks.harness.written import records_in
from benchmarks.servers.kafka import Broker, Topics
from benchmarks.servers.postgres import Postgres
from benchmarks.servers.redis import Redis
from benchmarks.servers.s3 import BUCKET, S3
from operators.testing import run
from tests.docs.recipes import CHECKS, Page, generated, pipeline_of, with_held_end
from tests.docs.test_cookbook import assert_answers
from tests.faults.conftest import Start
from tests.faults.job import Job, wait_for
from tests.servers.test_kafka_jobs import stop
from tests.unit.sources.message_servers import event_server, socket_server

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


def test_the_stock_is_in_the_topic_whatever_dies(start: Start, tmp_path: Path, own_kafka: Broker) -> None:
    """Tasks, the broker and then everything die between movements; the last message of a key is its row."""
    page, topics = Page("from_kafka"), own_kafka.topics
    assert page.includes_its_program()
    movements = [{"product": f"p{n % 6}", "pieces": n % 7 - 3} for n in range(1, 1_001)]
    topics.create("movements", 2)
    topics.create("stock", 1, **{"cleanup.policy": "compact"})

    def put(begin: int, end: int) -> None:
        for product in range(6):  # a product is in one partition, so that its stock is decided
            mine = [json.dumps(each).encode() for each in movements[begin:end] if each["product"] == f"p{product}"]
            topics.put("movements", *mine, partition=product % 2)

    def are_out(end: int) -> None:
        job.until(f"{end} movements are in the table", lambda view: exact(end) or None)

    def exact(end: int) -> bool:
        rows = [
            ((row.key or b"").decode(), json.loads(row.value) if row.value else None) for row in topics.rows("stock")
        ]
        try:
            CHECKS["from_kafka"]({"movements": movements[:end]}, {"out": rows})
        except AssertionError:
            return False
        return True

    put(0, 600)
    job = start(page.program, *page.arguments, "--set", f"servers={own_kafka.servers}")
    job.until_killed()
    are_out(600)
    put(600, 700)
    job.replace("movements/0", "in-stock/0")
    are_out(700)
    stop(own_kafka)
    job.strike("out/0")
    own_kafka.start()
    put(700, 900)
    are_out(900)
    job.kill_everything()
    put(900, 1_000)
    job.start("--resume")
    are_out(1_000)
    job.kill_everything()


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


def test_movements_of_a_stream_are_followed_whatever_dies(start: Start, tmp_path: Path, own_redis: Redis) -> None:
    """Tasks, the server and then everything are killed between entries."""
    page = Page("from_redis")
    assert page.includes_its_program()
    movements = [{"product": f"p{n % 6}", "pieces": n % 7 - 2} for n in range(1, 801)]

    def add(begin: int, end: int) -> None:
        with own_redis.client() as client:
            for movement in movements[begin:end]:
                client.xadd("movements", movement)

    add(0, 600)
    job = start(page.program, *page.arguments, "--set", f"url={own_redis.url}")
    job.until_killed()
    rows = until_out(job, tmp_path / "stock.db", 600)
    assert_answers(page, tmp_path)
    job.replace("movements/0")
    with own_redis.down():
        job.replace("stock/1")
    add(600, 700)
    until_out(job, tmp_path / "stock.db", 700)
    job.kill_everything()
    add(700, 800)
    job.start("--resume")
    rows = until_out(job, tmp_path / "stock.db", 800)
    job.kill_everything()
    CHECKS["from_redis"]({"movements": movements}, {"out": rows})


def until_out(job: Job, file: Path, count: int) -> list[dict[str, Any]]:
    """Wait until there are `count` rows, and return them."""
    job.until(f"{count} rows are out", lambda view: file.exists() and sum(1 for _ in records_in(file)) >= count)
    return list(records_in(file))


def trade(number: int) -> dict[str, Any]:
    return {"number": number, "symbol": f"S{number % 5}", "price": number * 37 % 101}


def edit(number: int) -> dict[str, Any]:
    return {"edit": number, "page": f"page {number * 7 % 11}", "text": "two\nlines"}


MESSAGES: dict[str, tuple[str, Callable[[int], dict[str, Any]], str]] = {
    "from_websocket": ("trades", trade, "prices.db"),
    "from_events": ("edits", edit, "edits.db"),
}
"""Program → its input, its messages, and its output."""


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_come_once_whatever_dies(name: str, start: Start, tmp_path: Path) -> None:
    """Tasks, connections, the process that receives and then everything are killed between messages."""
    pytest.importorskip("websockets", reason="websockets is not installed (extra websocket)")
    page, (inputs, message, file) = Page(name), MESSAGES[name]
    assert page.includes_its_program()
    with ExitStack() as stack:
        if name == "from_websocket":
            url, feed = stack.enter_context(socket_server())
        else:
            server = stack.enter_context(event_server())
            url, feed = server.url, server.feed
        feed.put(*map(message, range(200)))
        arguments = [f"url={url}" if each.startswith("url=") else each for each in page.arguments]
        job = start(page.program, *arguments)
        job.until_killed()
        until_out(job, tmp_path / file, 200)
        feed.drop()
        feed.put(*map(message, range(200, 300)))
        replace_reading(job)
        job.replace(f"{inputs}/0")
        until_out(job, tmp_path / file, 300)
        view = job.view()
        assert view is not None
        gaps = [task["figures"]["input_gaps"] for task in view["tasks"] if task["source"]]
        job.kill_everything()
        feed.put(*map(message, range(300, 400)))
        job.start("--resume")
        rows = until_out(job, tmp_path / file, 400)
        job.kill_everything()
    CHECKS[name]({inputs: [message(number) for number in range(400)]}, {"out": rows})
    assert gaps == [0]


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


def is_past(count: int, view: dict[str, Any]) -> bool:
    """Return whether so many checkpoints are complete."""
    return bool(view["checkpoint"]["count"] >= count)


def test_objects_are_counted_whatever_dies(start: Start, tmp_path: Path, own_s3: S3) -> None:
    """Tasks, then everything, are killed while objects appear, and the store is unavailable for a while."""
    page, orders = Page("from_objects"), list[dict[str, Any]]()
    assert page.includes_its_program()

    def put(name: str, count: int) -> None:
        first = len(orders)
        orders.extend({"order": n, "customer": f"c{n % 7}", "cents": n % 90} for n in range(first, first + count))
        own_s3.put(f"orders/{name}.jsonl", "".join(f"{json.dumps(order)}\n" for order in orders[first:]).encode())

    def are_out() -> None:
        job.until(f"{len(orders)} rows are out", lambda view: len(rows()) >= len(orders))

    def rows() -> list[dict[str, Any]]:
        there = (tmp_path / "totals.db").exists()
        return list(records_in(tmp_path / "totals.db")) if there else []

    put("monday", 3_000)
    job = start(page.program, *page.arguments, "--set", f"orders=s3://{BUCKET}/orders/*.jsonl")
    job.until_killed()
    put("thursday", 2_000)
    put("friday", 5)
    job.replace("orders/0", "orders/1")
    are_out()
    with own_s3.away():
        job.replace("orders/1", "total/0")
    put("tuesday", 2_000)
    are_out()
    before = job.until("it has checkpoints", lambda view: view["checkpoint"]["count"])
    for more, name in enumerate(("noon", "evening"), 1):  # without input, no checkpoint would begin
        put(name, 5)
        job.until("one more is complete", partial(is_past, before + more))
    are_out()
    job.kill_everything()
    own_s3.delete("orders/monday.jsonl")  # they cover it
    put("wednesday", 3_000)
    job.start("--resume")
    job.replace("orders/0")
    are_out()
    job.kill_everything()
    CHECKS["from_objects"]({"orders": orders}, {"out": rows()})
