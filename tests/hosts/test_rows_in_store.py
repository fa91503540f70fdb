"""A host is lost that writes rows, dead letters and requests to the shared store: nothing is kept on one host."""

from __future__ import annotations

from tests.faults.job import wait_for
from tests.faults.test_savepoints import sets
from tests.hosts.counted import MakeSite
from tests.servers.test_stored_rows import COUNT, PIPELINE, check


def test_the_hosts_of_a_sink_and_of_requests_are_killed_and_all_rows_are_exact(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    (here.directory / "world").mkdir()
    values = {"out": f"{here.store}/out", "world": here.directory / "world", "gate": here.directory / "gate"}
    values |= {"count": COUNT, "rate": 40, "sink": "lines"}
    config = here.directory / "job.toml"
    config.write_text("host_timeout_ms = 15000\n")
    here.run(PIPELINE, *sets(**values), "--on-error", "dead-letter", "--config", str(config))
    for name in here.names:
        here.join(name)
    here.await_running(50)
    for task in ("out/0", "asked/0"):
        lost = here.host_of(task)
        assert lost is not None
        here.kill_host(lost)
        wait_for("its tasks run elsewhere", lambda: here.host_of(task) not in (None, lost))  # noqa: B023
        here.join(lost)
        wait_for("it joins again", lambda: here.host(lost).get("state") == "joined")  # noqa: B023
        here.await_running()
    (here.directory / "gate").touch()
    assert here.await_end() == 0, here.log("supervisor")
    [run] = [path.name for path in (here.shared / "stored").iterdir()]
    check(here.store, here.directory, run)
