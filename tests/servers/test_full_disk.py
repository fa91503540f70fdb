"""PostgreSQL on a disk that is really full: the job waits and says so, or ends in one line; room lets it resume."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.servers.postgres import Postgres
from tests.faults.conftest import Start
from tests.servers.chains import assert_consistent, assert_exactly_once
from tests.servers.jobs import COUNT, Chained
from tests.servers.test_jobs import in_postgres, kill_the_sink
from tests.soak.disk import SmallDisk, permitted

DISK_BYTES = 160 << 20
FULL = "no space is left on the server: free space"


@pytest.fixture
def disk(own_postgres: Postgres, tmp_path: Path) -> Iterator[SmallDisk]:
    """The disk that has all of the server's data, with its log of writes."""
    if not permitted(tmp_path):
        pytest.skip("mounting a small disk is not permitted here (root can)")
    data = own_postgres.directory / "data"
    own_postgres.kill()
    before = data.rename(data.with_name("before"))
    small = SmallDisk(data, DISK_BYTES)
    shutil.copytree(before, data, dirs_exist_ok=True)
    owner = before.stat()
    for path in [data, *data.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid)
    data.chmod(0o700)
    own_postgres.start()
    yield small
    own_postgres.kill()
    small.close()


@pytest.mark.campaign
def test_a_full_disk_is_waited_for_whatever_dies_meanwhile(
    start: Start, tmp_path: Path, own_postgres: Postgres, disk: SmallDisk
) -> None:
    chained = Chained(start, tmp_path, dsn=own_postgres.dsn)
    chained.job.until_warm(records=50)
    disk.fill()
    chained.until_waiting(FULL)
    written = in_postgres(own_postgres)
    assert_consistent(written)
    kill_the_sink(chained)
    own_postgres.kill()
    chained.until_waiting("cannot be reached")
    disk.make_room()
    own_postgres.start()
    chained.until_more()
    rows = in_postgres(own_postgres)
    assert rows[: len(written)] == written
    chained.finish()
    assert_exactly_once(in_postgres(own_postgres), COUNT)


@pytest.mark.campaign
def test_a_disk_that_stays_full_ends_the_job_in_one_line_and_room_lets_it_resume(
    start: Start, tmp_path: Path, own_postgres: Postgres, disk: SmallDisk
) -> None:
    chained = Chained(start, tmp_path, config={"sink_retry_timeout_s": 2.0}, dsn=own_postgres.dsn)
    chained.job.until_warm(records=50)
    disk.fill()
    status, said = chained.job.finish()
    assert status == 1 and len(said.splitlines()) == 1, said
    assert "out/0" in said and "No space left on device" in said and FULL in said and "--resume" in said
    disk.make_room()
    chained.job.start("--resume")
    chained.finish()
    assert_exactly_once(in_postgres(own_postgres), COUNT)
