"""A table by key on a server is what its revisions amount to, whatever dies, is withdrawn, or is rolled back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.servers.postgres import Postgres
from benchmarks.servers.redis import Redis
from causal.errors import PipelineError
from operators.sinks import PostgresSink, RedisSink
from tests.faults.conftest import Start
from tests.faults.test_tables import (
    Table,
    a_table_is_exact_through_kills,
    a_table_returns_to_a_savepoint,
    revisions_are_withdrawn,
)
from tests.members import campaign

MEMBERS = [
    pytest.param(a_table_is_exact_through_kills, id="kills"),
    campaign(revisions_are_withdrawn, id="withdrawn"),
    campaign(a_table_returns_to_a_savepoint, id="savepoint"),
]


@pytest.mark.parametrize("case", MEMBERS)
def test_a_table_in_postgres(
    case: Callable[..., None], start: Start, tmp_path: Path, shared_postgres: Postgres
) -> None:
    shared_postgres.query("DROP TABLE IF EXISTS tabled, causal_task, causal_held, causal_refused, causal_undo")

    def read(_: Path) -> Table:
        return dict(shared_postgres.query("SELECT key, record FROM tabled"))

    case(start, tmp_path, "--set", "to=postgres", "--set", f"server={shared_postgres.dsn}", read=read)


@pytest.mark.parametrize("case", MEMBERS)
def test_a_table_in_redis(case: Callable[..., None], start: Start, tmp_path: Path, shared_redis: Redis) -> None:
    with shared_redis.client() as client:
        client.flushall()

    def read(_: Path) -> Table:
        with shared_redis.client() as client:
            return {key: json.loads(row) for key, row in client.hgetall("tabled").items()}

    case(start, tmp_path, "--set", "to=redis", "--set", f"server={shared_redis.url}", read=read)


def test_another_form_or_another_table_is_refused_by_postgres(tmp_path: Path, shared_postgres: Postgres) -> None:
    def opened(task: str, upsert: bool) -> None:
        sink = PostgresSink(shared_postgres.dsn, table="formed", upsert=upsert)
        store = sink.open_store(task, tmp_path)
        try:
            store.open(task, "run-1", 1)
        finally:
            store.close()

    opened("out/0", True)
    opened("out/1", True)
    with pytest.raises(PipelineError, match="already has the table of sink 'out'; use another table for sink 'more'"):
        opened("more/0", True)
    with pytest.raises(PipelineError, match="has no column task; it has key, record"):
        opened("out/0", False)
    with pytest.raises(PipelineError, match="upsert=True writes key and record; leave columns out"):
        PostgresSink(shared_postgres.dsn, table="formed", columns=["a"], upsert=True)


def test_another_form_or_another_table_is_refused_by_redis(tmp_path: Path, shared_redis: Redis) -> None:
    def opened(task: str, upsert: bool, stream: str = "formed") -> None:
        store = RedisSink(shared_redis.url, stream=stream, upsert=upsert).open_store(task, tmp_path)
        try:
            store.open(task, "run-1", 1)
        finally:
            store.close()

    opened("out/0", True)
    opened("out/1", True)
    with pytest.raises(PipelineError, match="already has the table of sink 'out'; use another stream"):
        opened("more/0", True)
    with pytest.raises(PipelineError, match="has a hash by key .*; use another stream"):
        opened("out/0", False)
    with shared_redis.client() as client:
        client.hset("of-a-user", "a", "b")
    with pytest.raises(PipelineError, match="of-a-user exists but was not created by a sink"):
        opened("out/0", True, "of-a-user")
    with pytest.raises(PipelineError, match="leave rows_max out"):
        RedisSink(shared_redis.url, rows_max=5, upsert=True)
