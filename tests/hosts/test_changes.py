"""Changes of a running job of several hosts: exact rows whatever dies, and hosts that take part as before (0063)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

from benchmarks.servers.redis import Redis
from tests.faults.job import wait_for
from tests.hosts.changing import CANDIDATE, CHANGES, VICTIMS, Changing, Struck, server
from tests.hosts.counted import MakeSite
from tests.members import sample


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


@pytest.mark.parametrize(("change", "victim", "seed"), sample(list(product(CHANGES, VICTIMS, range(4))), 1))
def test_a_death_during_a_change(site: MakeSite, redis: Redis, change: str, victim: str, seed: int) -> None:
    """The job is one version or the other, as the command reports, its rows are exact, and it can change again."""
    here = site(["a", "b", "c"], *([CANDIDATE] if victim == "leader" else []))
    changing = Changing(here, redis)
    if change == "rollback":
        changing.upgraded(2)
        changing.until_more()
    if victim == "leader":
        here.stand(CANDIDATE, "ledger")
        wait_for("the candidate waits", lambda: (here.view() or {}).get("candidates"))
    struck = Struck(changing, change, Random(f"{change} {victim} {seed}"))
    struck.until_a_step()
    struck.strike(victim)
    reported = struck.changed()
    changing.until_settled()
    changing.until_more(150)
    is_next = changing.is_changed(change)
    assert reported in (None, is_next), (here.directory / "command.txt").read_text()
    if victim != "leader":
        changing.changed("rescale", "count=3")
        changing.until_more()
        assert changing.counting() == {f"count/{index}" for index in range(3)}
    changing.finish()
