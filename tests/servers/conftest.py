"""Servers for the tests of this folder: one of each kind for all that leave it alone, others to be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers.kafka import Broker, Topics, broker, topics
from benchmarks.servers.nats import Nats, nats_server
from benchmarks.servers.postgres import Postgres, cluster, postgres
from benchmarks.servers.process import NoServer
from benchmarks.servers.redis import Redis, redis_server
from benchmarks.servers.s3 import BUCKET, S3, s3_server
from tests.faults.conftest import start as start

EXTRAS = {"psycopg": "postgres", "redis": "redis", "obstore": "hosts", "confluent_kafka": "kafka", "nats": "nats"}
"""Client → the extra that brings it."""


@contextmanager
def _or_skip(client: str, server: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    """Yield the server; a test is skipped whose server or client is not installed here."""
    pytest.importorskip(client, reason=f"{client} is not installed (extra {EXTRAS[client]})")
    with ExitStack() as stack:
        try:
            started = stack.enter_context(server())
        except NoServer as problem:
            pytest.skip(str(problem))
        yield started


@pytest.fixture(scope="session")
def made_cluster() -> Iterator[Path]:
    """An empty PostgreSQL cluster, which takes seconds to make."""
    with _or_skip("psycopg", cluster) as directory:
        yield directory


@pytest.fixture(scope="session")
def shared_postgres(made_cluster: Path) -> Iterator[Postgres]:
    """A server that no test kills."""
    with postgres(made_cluster) as server:
        yield server


@pytest.fixture
def own_postgres(made_cluster: Path) -> Iterator[Postgres]:
    """A server that may be killed, stopped and restarted."""
    with postgres(made_cluster) as server:
        yield server


@pytest.fixture
def logical_postgres(made_cluster: Path) -> Iterator[Postgres]:
    """A server whose write-ahead log says what rows were; it may be killed."""
    with postgres(made_cluster, wal_level="logical", log_min_messages="fatal") as server:
        yield server


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Redis]:
    """A server that no test kills."""
    with _or_skip("redis", redis_server) as server:
        yield server


@pytest.fixture(scope="session")
def shared_servers(request: pytest.FixtureRequest) -> dict[str, Postgres | Redis]:
    """The servers of both kinds that can be started here."""
    running = {}
    for kind in ("postgres", "redis"):
        with suppress(pytest.skip.Exception):
            running[kind] = request.getfixturevalue(f"shared_{kind}")
    return running


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    """A server that may be killed, stopped and restarted."""
    with _or_skip("redis", redis_server) as server:
        yield server


@pytest.fixture(scope="session")
def shared_kafka() -> Iterator[Topics]:
    """A cluster that no test ends: noida-db, or the one that KAFKA_BOOTSTRAP names."""
    with _or_skip("confluent_kafka", topics) as cluster:
        yield cluster


@pytest.fixture
def own_kafka() -> Iterator[Broker]:
    """A broker that may be killed, stopped and restarted."""
    with _or_skip("confluent_kafka", broker) as server:
        yield server


@pytest.fixture(scope="session")
def shared_tansu() -> Iterator[Topics]:
    """A broker of another kind, which shows aborted rows and forgets all when it ends."""
    with _or_skip("confluent_kafka", partial(topics, "tansu")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def shared_nats() -> Iterator[Nats]:
    """A server that no test kills."""
    with _or_skip("nats", nats_server) as server:
        yield server


@pytest.fixture
def own_nats() -> Iterator[Nats]:
    """A server that may be killed, stopped and restarted."""
    with _or_skip("nats", nats_server) as server:
        yield server


@pytest.fixture(scope="session")
def shared_s3() -> Iterator[S3]:
    """A server that no test kills."""
    with _or_skip("obstore", s3_server) as server:
        yield server


@pytest.fixture
def s3_here(shared_s3: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """The same server, which clients of this process find."""
    for name, value in shared_s3.environment.items():
        monkeypatch.setenv(name, value)
    return shared_s3


@pytest.fixture
def own_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A server that may be stopped or killed, which then forgets its objects; clients of this process find it."""
    with _or_skip("obstore", s3_server) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, s3_here: S3, tmp_path: Path) -> str:
    """The URL of an empty shared store."""
    if request.param == "file":
        return f"file://{tmp_path / 'store'}"
    return f"s3://{BUCKET}/{tmp_path.name}"
