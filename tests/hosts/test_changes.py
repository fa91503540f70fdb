"""Changes of a running job of several hosts: exact rows whatever dies, and hosts that take part as before (0063)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.servers.redis import Redis
from tests.faults.job import wait_for
from tests.hosts.changing import Changing, server
from tests.hosts.counted import MakeSite


@pytest.fixture
def redis() -> Iterator[Redis]:
    with server() as started:
        yield started


def test_a_job_is_rescaled_upgraded_and_rolled_back_on_two_hosts(site: MakeSite, redis: Redis) -> None:
    here = site(["a", "b"])
    changing = Changing(here, redis)
    for tasks in (4, 2):
        assert f"count has {tasks} task" in changing.changed("rescale", f"count={tasks}")
        changing.until_more()
        assert changing.counting() == {f"count/{index}" for index in range(tasks)}
    changing.upgraded(2)
    changing.until_more()
    assert changing.versions() == [1, 2]
    assert "rows written since then are withdrawn" in changing.changed("rollback")
    changing.until_more()
    assert changing.versions() == [1]
    here.await_running()
    here.kill_host("b")
    wait_for("it is lost", lambda: here.host("b").get("state") == "lost")
    here.join("b", "--slots", "24")
    changing.until_more()
    changing.finish()
