"""A failed upgrade of a job whose rows are on a server is taken back with one command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.servers.postgres import Postgres
from benchmarks.servers.redis import Redis
from tests.faults.conftest import Start
from tests.faults.test_upgrades import Rows, a_failed_upgrade_is_taken_back


@pytest.mark.campaign
def test_a_failed_upgrade_leaves_the_table(start: Start, tmp_path: Path, shared_postgres: Postgres) -> None:
    def read(_: Path) -> Rows:
        return [record for (record,) in shared_postgres.query("SELECT record FROM upgraded")]

    options = ("--set", "sink=postgres", "--set", f"server={shared_postgres.dsn}")
    a_failed_upgrade_is_taken_back(start, tmp_path, *options, read=read)


@pytest.mark.campaign
def test_a_failed_upgrade_leaves_the_stream(start: Start, tmp_path: Path, shared_redis: Redis) -> None:
    def read(_: Path) -> Rows:
        with shared_redis.client() as client:
            return [json.loads(fields["record"]) for _, fields in client.xrange("upgraded:out/0")]

    options = ("--set", "sink=redis", "--set", f"server={shared_redis.url}")
    a_failed_upgrade_is_taken_back(start, tmp_path, *options, read=read)
