"""Whole jobs whose sink is a server: tasks and servers are killed, stopped, filled and changed while they run.

Rows prove by themselves that each is there once and follows from those before it (`tests.servers.chains`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.kafka import Broker
from benchmarks.servers.postgres import Postgres
from benchmarks.servers.process import NoServer
from benchmarks.servers.redis import Redis, binary, redis_server
from tests.faults.conftest import Start
from tests.servers.chains import FIELDS, assert_consistent, assert_exactly_once
from tests.servers.jobs import COUNT, Chained

COLUMNS = "source int, i int, key int, n int, dice bigint, hash text"


def in_postgres(server: Postgres) -> list[dict[str, Any]]:
    rows = server.query("SELECT position, record FROM output WHERE task = 'out/0' ORDER BY position")
    assert [position for position, _ in rows] == list(range(len(rows)))
    return [record for _, record in rows]


def in_table(server: Postgres, table: str) -> list[dict[str, Any]]:
    return [dict(zip(FIELDS, row, strict=True)) for row in server.query(f"SELECT {', '.join(FIELDS)} FROM {table}")]


def in_redis(server: Redis) -> list[dict[str, Any]]:
    with server.client() as client:
        entries = client.xrange("chained:out/0")
    assert [entry for entry, _ in entries] == [f"{position}-1" for position in range(len(entries))]
    return [json.loads(fields["record"]) for _, fields in entries]


def in_kafka(server: Broker, committed: bool = True) -> list[dict[str, Any]]:
    by_position: dict[int, bytes | None] = {}
    rows = server.topics.rows("chained", committed)
    for row in rows:
        assert by_position.setdefault(int(row.headers["position"]), row.value) == row.value
    assert len(by_position) == len(rows) or not committed
    assert sorted(by_position) == list(range(len(by_position)))
    return [json.loads(value or b"") for _, value in sorted(by_position.items())]


def kill_the_sink(chained: Chained) -> None:
    chained.job.replace("out/0")


def test_postgres_and_its_clients_are_killed(start: Start, tmp_path: Path, own_postgres: Postgres) -> None:
    chained = Chained(start, tmp_path, dsn=own_postgres.dsn)
    chained.job.until_warm(records=50)
    kill_the_sink(chained)
    chained.until_more()
    own_postgres.kill_a_backend()
    chained.until_more()
    with own_postgres.down():
        chained.until_waiting("cannot be reached")
        kill_the_sink(chained)
    chained.until_more()
    assert_consistent(in_postgres(own_postgres))
    chained.finish()
    assert_exactly_once(in_postgres(own_postgres), COUNT)


@pytest.mark.campaign
def test_postgres_is_not_there_yet_and_stands_still_later(start: Start, tmp_path: Path, own_postgres: Postgres) -> None:
    with own_postgres.down():
        chained = Chained(start, tmp_path, dsn=own_postgres.dsn)
        chained.until_waiting("cannot be reached")
    chained.until_more()
    with own_postgres.away():
        chained.until_waiting("does not answer")
        kill_the_sink(chained)
    chained.until_more()
    report = chained.finish()
    assert_exactly_once(in_postgres(own_postgres), COUNT)
    assert {recovery["task"] for recovery in report["recoveries"]} == {"out/0"}


@pytest.mark.campaign
def test_a_table_of_the_user_changes_and_refuses_rows(start: Start, tmp_path: Path, own_postgres: Postgres) -> None:
    own_postgres.query(f"CREATE TABLE shop({COLUMNS}, PRIMARY KEY(key, n), CONSTRAINT odd CHECK (i % 500 <> 7))")
    options: dict[str, Any] = {"dsn": own_postgres.dsn, "table": "shop", "columns": ",".join(FIELDS)}
    chained = Chained(start, tmp_path, "--on-error", "dead-letter", **options)
    chained.job.until_warm(records=50)
    own_postgres.query("ALTER TABLE shop RENAME n TO number")
    chained.until_waiting("a column is missing: restore it")
    own_postgres.query("ALTER TABLE shop RENAME number TO n")
    chained.until_more()
    kill_the_sink(chained)
    own_postgres.query("ALTER TABLE shop ADD comment text DEFAULT 'none'")
    chained.until_more()
    chained.finish()
    out = {(source, i) for source in (1, 2) for i in range(7, COUNT, 500)}
    rows = in_table(own_postgres, "shop")
    assert sorted((row["source"], row["i"]) for row in rows) == sorted(
        {(source, i) for source in (1, 2) for i in range(COUNT)} - out
    )
    noted = own_postgres.query("SELECT reason FROM causal_refused WHERE sink = 'public.shop'")
    assert len(noted) == len(out) and all('check constraint "odd"' in reason for (reason,) in noted)


@pytest.mark.campaign
def test_a_row_that_breaks_a_constraint_ends_the_job_in_one_line(
    start: Start, tmp_path: Path, shared_postgres: Postgres
) -> None:
    shared_postgres.query(f"CREATE TABLE strict({COLUMNS}, CONSTRAINT small CHECK (i < 300))")
    chained = Chained(start, tmp_path, dsn=shared_postgres.dsn, table="strict", columns=",".join(FIELDS), rate="400")
    status, said = chained.job.finish()
    assert status == 1
    last = said.splitlines()[-1]
    assert "out/0" in last and "its store refused the row" in last and 'violates check constraint "small"' in last
    rows = in_table(shared_postgres, "strict")
    assert_consistent(rows)
    assert rows and max(row["i"] for row in rows) < 300


def test_redis_and_its_client_are_killed(start: Start, tmp_path: Path, own_redis: Redis) -> None:
    with own_redis.down():
        chained = Chained(start, tmp_path, url=own_redis.url)
        chained.until_waiting("cannot be reached")
    chained.job.until_warm(records=50)
    with own_redis.down():
        chained.until_waiting("cannot be reached")
        kill_the_sink(chained)
    chained.until_more()
    with own_redis.away():
        chained.until_waiting("does not answer")
    chained.until_more()
    with own_redis.client() as client:
        client.config_set("maxmemory", "1kb")
        chained.until_waiting("raise maxmemory")
        kill_the_sink(chained)
        client.config_set("maxmemory", "0")
    chained.until_more()
    chained.finish()
    assert_exactly_once(in_redis(own_redis), COUNT)


def test_kafka_is_restarted_and_its_client_is_killed(start: Start, tmp_path: Path, own_kafka: Broker) -> None:
    own_kafka.topics.create("chained", 3)
    chained = Chained(start, tmp_path, servers=own_kafka.servers)
    chained.job.until_warm(records=50)
    kill_the_sink(chained)
    chained.until_more()
    with own_kafka.down():
        chained.until_waiting("cannot be reached")
        kill_the_sink(chained)
    chained.until_more()
    with own_kafka.away():
        chained.until_waiting("Kafka at")
    chained.until_more()
    chained.finish()
    for committed in (True, False):
        assert_exactly_once(in_kafka(own_kafka, committed), COUNT)


@pytest.mark.campaign
def test_a_redis_that_forgot_rows_ends_the_job_which_can_be_resumed(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("redis", reason="redis is not installed (extra redis)")
    try:
        binary()
    except NoServer as problem:
        pytest.skip(str(problem))
    with redis_server(appendonly="no") as server, server.client() as client:
        options = {"url": server.url, "durability": "server"}
        chained = Chained(start, tmp_path, config={"checkpoint_interval_s": 600.0}, **options)
        chained.job.until_written(50)
        client.save()
        chained.until_more(100)
        before = len(in_redis(server))
        with server.down():
            pass
        status, said = chained.job.finish()
        assert status == 1
        left = in_redis(server)
        assert len(left) < before
        assert f"were acknowledged, but it has rows only up to {len(left)}" in said and "--resume" in said
        chained.job.start("--resume")
        chained.finish()
        rows = in_redis(server)
        assert rows[: len(left)] == left
        assert_exactly_once(rows, COUNT)
