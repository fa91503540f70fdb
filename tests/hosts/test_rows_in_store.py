"""A host is lost that writes rows, dead letters and requests to the shared store: nothing is kept on one host."""

from __future__ import annotations

from collections import defaultdict

import pytest

from benchmarks.harness.runs import sets
from benchmarks.hosts.site import Site
from tests.faults.job import wait_for
from tests.hosts.counted import MakeSite
from tests.members import members
from tests.servers.test_stored_rows import COUNT, EVERY, PIPELINE, all_rows, check


def began(site: MakeSite, sink: str, *options: str) -> Site:
    """Start a job that keeps its rows in the shared store, on three hosts."""
    here = site(["a", "b", "c"])
    (here.directory / "world").mkdir()
    values = {"out": f"{here.store}/out", "world": here.directory / "world", "gate": here.directory / "gate"}
    values |= {"count": COUNT, "rate": 16, "sink": sink}
    config = here.directory / "job.toml"
    config.write_text("host_timeout_ms = 15000\n")
    here.run(PIPELINE, *sets(**values), "--on-error", "dead-letter", "--config", str(config), *options)
    for name in here.names:
        here.join(name)
    here.await_running(50)
    return here


def lose_host_of(here: Site, task: str) -> None:
    """Kill the host of a task, and begin it again once the task runs elsewhere."""
    lost = here.host_of(task)
    assert lost is not None
    here.kill_host(lost)
    wait_for("its tasks run elsewhere", lambda: here.host_of(task) not in (None, lost))
    here.join(lost)
    wait_for("it joins again", lambda: here.host(lost).get("state") == "joined")
    here.await_running()


def test_the_hosts_of_a_sink_and_of_requests_are_killed_and_all_rows_are_exact(site: MakeSite) -> None:
    here = began(site, "lines")
    for task in ("out/0", "asked/0"):
        lose_host_of(here, task)
    (here.directory / "gate").touch()
    assert here.await_end() == 0, here.log("supervisor")
    [run] = [path.name for path in (here.shared / "stored").iterdir()]
    check(here.store, here.directory, run)


@pytest.mark.parametrize("sink", members(["lines", "parquet"]))
def test_the_hosts_of_rows_that_wait_for_their_checkpoint_are_killed(site: MakeSite, sink: str) -> None:
    here = began(site, sink, "--guarantee", "epoch", "--checkpoint-interval", "1.5")

    def figures(task: str) -> dict[str, int]:
        return next((each["figures"] for each in (here.view() or {})["tasks"] if each["task"] == task), {})

    for task in ("out/0", "out/1"):
        complete = (here.view() or {})["checkpoint"]["complete"]
        wait_for("a checkpoint", lambda: (here.view() or {})["checkpoint"]["complete"] > complete)  # noqa: B023
        wait_for("rows wait for the next", lambda: figures(task).get("staged_rows", 0) > 0)  # noqa: B023
        lose_host_of(here, task)
    (here.directory / "gate").touch()
    assert here.await_end() == 0, here.log("supervisor")
    rows = all_rows(f"{here.store}/out")
    assert sorted((row["p"], row["i"]) for row in rows) == [(p, i) for p in range(2) for i in range(COUNT) if i % EVERY]
    counted = defaultdict(list)
    for row in rows:
        counted[row["i"] % 10].append(row["n"])
    assert all(sorted(numbers) == list(range(1, len(numbers) + 1)) for numbers in counted.values())
    [run] = list((here.shared / "stored").iterdir())
    assert len(list((run / "staged").glob("out-*/journal/*/*"))) > 0, "rows waited in the shared store"
    assert not [path for path in (run / "staged").glob("*/rows/*") if path.is_file()], "none waits any more"
    assert not [path for name in here.names for path in here.state(name).glob("staged")], "and none next to the job"
