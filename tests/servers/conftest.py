"""Servers for the tests of this folder: one of each kind for all that leave it alone, others to be killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.conftest import start as start
from tests.servers.postgres import Postgres, cluster, postgres
from tests.servers.process import NoServer
from tests.servers.redis import Redis, redis_server


@pytest.fixture(scope="session")
def made_cluster() -> Iterator[Path]:
    """An empty PostgreSQL cluster, which takes seconds to make."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra postgres)")
    with ExitStack() as stack:
        try:
            yield stack.enter_context(cluster())
        except NoServer as problem:
            pytest.skip(str(problem))


@pytest.fixture(scope="session")
def shared_postgres(made_cluster: Path) -> Iterator[Postgres]:
    """Nobody kills it."""
    with postgres(made_cluster) as server:
        yield server


@pytest.fixture
def own_postgres(made_cluster: Path) -> Iterator[Postgres]:
    """One that may be killed, stopped and restarted."""
    with postgres(made_cluster) as server:
        yield server


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Redis]:
    """Nobody kills it."""
    pytest.importorskip("redis", reason="redis is not installed (extra redis)")
    with ExitStack() as stack:
        try:
            yield stack.enter_context(redis_server())
        except NoServer as problem:
            pytest.skip(str(problem))


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    """One that may be killed, stopped and restarted."""
    pytest.importorskip("redis", reason="redis is not installed (extra redis)")
    with ExitStack() as stack:
        try:
            yield stack.enter_context(redis_server())
        except NoServer as problem:
            pytest.skip(str(problem))
