"""Two jobs on one table or one stream: the newer one owns it, whatever the older one does later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.servers.postgres import Postgres
from benchmarks.servers.redis import Redis
from tests.faults.job import Job
from tests.faults.owned import owner, the_newer_job_owns_the_sink


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Jobs to be closed at the end."""
    started: list[Job] = []
    yield started
    for job in started:
        job.close()


@pytest.mark.campaign
def test_the_newer_of_two_jobs_owns_the_table(tmp_path: Path, shared_postgres: Postgres, jobs: list[Job]) -> None:
    def rows() -> list[tuple[str, int]]:
        records = shared_postgres.query("SELECT record ->> 'who', (record ->> 'i')::int FROM owned ORDER BY 2")
        return [(who, i) for who, i in records]

    server = ("postgres", shared_postgres.dsn)
    jobs += [owner(tmp_path, who, *server, table="owned") for who in ("older", "newer")]
    older, newer = jobs
    the_newer_job_owns_the_sink(older, newer, rows)


@pytest.mark.campaign
def test_the_newer_of_two_jobs_owns_the_streams(tmp_path: Path, shared_redis: Redis, jobs: list[Job]) -> None:
    def rows() -> list[tuple[str, int]]:
        with shared_redis.client() as client:
            entries = [fields for task in range(2) for _, fields in client.xrange(f"owned:out/{task}")]
        records = [json.loads(fields["record"]) for fields in entries]
        return sorted(((record["who"], record["i"]) for record in records), key=lambda row: int(row[1]))

    jobs += [owner(tmp_path, who, "redis", shared_redis.url, table="owned") for who in ("older", "newer")]
    older, newer = jobs
    the_newer_job_owns_the_sink(older, newer, rows)
