"""The sinks on servers keep every promise of the kit."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from benchmarks.servers.postgres import Postgres
from benchmarks.servers.redis import Redis
from operators.sinks import conformance
from operators.sinks.conformance import (
    Subject,
    bundles,
    crashes,
    outages,
    returning,
    steps,
    successions,
    upserting,
    withdrawal,
    zombies,
)
from operators.sinks.postgres.postgres_sink import PostgresSink
from operators.sinks.redis.redis_streams import RedisSink
from tests.members import except_for

NUMBERS = count()
ALL = conformance.CHECKS + withdrawal.CHECKS + returning.CHECKS
AWAY = outages.waits_for_an_unavailable_store
NOT_SHARED = (AWAY, crashes.takes_a_half_written_bundle_for_nothing)
"""Ends the server; tears what only a server can tear."""
SHARED = tuple(check for check in ALL if check not in NOT_SHARED)

STEP_BY_STEP = (
    successions.dies_at_every_step_of_a_replacement,
    crashes.dies_at_every_step_of_a_write,
    zombies.fences_zombies_at_every_step_of_a_write,
)
"""The long ones: each runs against one server in every run, and against the others in campaigns."""

PLACES, SPREAD = 12, 4
"""The steps of a replacement at which a run dies in every run; in a campaign it dies at as many as a check has."""

QUICK = tuple(check for check in bundles.CHECKS + outages.CHECKS if check not in NOT_SHARED)


def generic(server: Postgres, **options: Any) -> Subject:
    """The table that the sink makes."""
    table = f"rows_{next(NUMBERS)}"
    sink = PostgresSink(server.dsn, table=table, timeout_ms=1000, **options)

    def read(task: str) -> list[Any]:
        [(there,)] = server.query("SELECT to_regclass(%s) IS NOT NULL", table)
        rows = (
            server.query(f"SELECT position, record FROM {table} WHERE task = %s ORDER BY position", task)
            if there
            else []
        )
        assert len({position for position, _ in rows}) == len(rows)
        return [record for _, record in rows]

    def poison() -> Any:
        server.query(f"ALTER TABLE {table} ADD CHECK ((record ->> 'n')::int < 1000)")
        return {"n": 1001}

    return Subject(sink, read, poison=poison)


def by_key(server: Postgres, **options: Any) -> Subject:
    """The table that the sink makes for one row per key."""
    table = f"keys_{next(NUMBERS)}"
    sink = PostgresSink(server.dsn, table=table, timeout_ms=1000, upsert=True, **options)

    def read(task: str) -> dict[str, Any]:
        [(there,)] = server.query("SELECT to_regclass(%s) IS NOT NULL", table)
        rows = server.query(f"SELECT key, record FROM {table} WHERE strpos(key, %s) > 0", task) if there else []
        return dict(rows)

    def poison() -> Any:
        server.query(f"ALTER TABLE {table} ADD CHECK ((record ->> 'n')::int < 1000)")
        return {"n": 1001}

    return Subject(sink, read, seen=upserting.rows_seen, row=upserting.revision_of, poison=poison)


def columns(server: Postgres, place: bool) -> Subject:
    """A table of the user's, with types and a constraint; without `place` nothing in it identifies a row."""
    table = f"own_{next(NUMBERS)}"
    key = ", PRIMARY KEY(maker, number)" if place else ""
    server.query(
        f'CREATE TABLE {table}(task text, n int NOT NULL CHECK (n < 1000), "text" text, maker text, number bigint{key})'
    )
    place_columns = ("maker", "number") if place else ()
    sink = PostgresSink(
        server.dsn, table=table, columns=["task", "n", "text"], place_columns=place_columns, timeout_ms=1000
    )

    def read(task: str) -> list[Any]:
        rows = server.query(f'SELECT task, n, "text" FROM {table} WHERE task = %s ORDER BY n', task)
        return [{"task": task, "n": n, "text": text} for task, n, text in rows]

    return Subject(sink, read, poison=lambda: {"task": "out/0", "n": 1001, "text": "x"})


def entries(server: Redis, **options: Any) -> Subject:
    """Streams of the server that all tests share."""
    sink = RedisSink(server.url, stream=f"rows_{next(NUMBERS)}", timeout_ms=1000, **options)

    def read(task: str) -> list[Any]:
        with server.client() as client:
            return [json.loads(fields["record"]) for _, fields in client.xrange(sink.key_of(task))]

    return Subject(sink, read)


def fields(server: Redis, **options: Any) -> Subject:
    """A hash of the server that all tests share."""
    sink = RedisSink(server.url, stream=f"hash_{next(NUMBERS)}", timeout_ms=1000, upsert=True, **options)

    def read(task: str) -> dict[str, Any]:
        with server.client() as client:
            return {key: json.loads(row) for key, row in client.hgetall(sink.stream).items() if task in key}

    return Subject(sink, read, seen=upserting.rows_seen, row=upserting.revision_of)


def named(check: Callable[[Subject], None]) -> str:
    return check.__name__


@pytest.mark.parametrize("check", except_for(SHARED, *STEP_BY_STEP), ids=named)
def test_a_table_of_the_sink_conforms(check: Callable[[Subject], None], shared_postgres: Postgres) -> None:
    check(generic(shared_postgres))


@pytest.mark.parametrize("check", except_for(SHARED, *STEP_BY_STEP), ids=named)
def test_a_table_with_one_row_per_key_conforms(check: Callable[[Subject], None], shared_postgres: Postgres) -> None:
    check(by_key(shared_postgres))


def test_a_newer_run_dies_at_some_steps_of_its_replacement(
    shared_postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "PLACES_MAX", PLACES)
    monkeypatch.setattr(steps, "SPREAD_MAX", SPREAD)
    successions.dies_at_every_step_of_a_replacement(generic(shared_postgres))


@pytest.mark.parametrize(
    "check",
    except_for(
        QUICK + successions.CHECKS + withdrawal.CHECKS + returning.CHECKS,
        *STEP_BY_STEP,
        withdrawal.withdraws_all_or_nothing,
    ),
    ids=named,
)
def test_a_table_of_the_user_with_places_conforms(check: Callable[[Subject], None], shared_postgres: Postgres) -> None:
    check(columns(shared_postgres, place=True))


@pytest.mark.parametrize("check", QUICK, ids=named)
def test_a_table_of_the_user_conforms(check: Callable[[Subject], None], shared_postgres: Postgres) -> None:
    check(columns(shared_postgres, place=False))


def test_a_postgres_that_is_killed_is_waited_for(own_postgres: Postgres) -> None:
    subject = generic(own_postgres)
    subject.away = own_postgres.down
    AWAY(subject)


@pytest.mark.parametrize("check", except_for(SHARED, *STEP_BY_STEP[::2]), ids=named)
def test_streams_conform(check: Callable[[Subject], None], shared_redis: Redis) -> None:
    check(entries(shared_redis))


@pytest.mark.parametrize("check", except_for(SHARED, *STEP_BY_STEP[::2]), ids=named)
def test_a_hash_by_key_conforms(check: Callable[[Subject], None], shared_redis: Redis) -> None:
    check(fields(shared_redis))


def test_a_redis_that_is_killed_is_waited_for(own_redis: Redis) -> None:
    subject = entries(own_redis)
    subject.away = own_redis.down
    AWAY(subject)
