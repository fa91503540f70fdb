"""The job of these tests, `benchmarks/jobs/counts.py`: into SQLite on host `a`, from sources that the test lets end."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping

from benchmarks.harness.runs import sets
from benchmarks.hosts.counted import PARTITIONS, PIPELINE, rows_of, wrong
from benchmarks.hosts.site import Site
from examples.hosts.job import ClusterJob
from tests.faults.job import wait_for

MakeSite = Callable[..., Site]
"""Makes a site: its hosts, and what else is in its network."""


COUNT, RATE = 500, 100
"""The elements of each partition, and all of them per second as long as the test holds the sources."""

OUTLASTING = 3_000
"""Elements of each partition: enough for a minute of rows."""

SILENCE_MS = 3000
"""The time-out of hosts where one is cut off."""


def check_rows(site: Site | ClusterJob, count: int = COUNT) -> None:
    """Every record of both partitions was counted once, in the order of its key, and has one row."""
    rows = rows_of(site)
    assert wrong(rows, count) == {"lost": 0, "doubled": 0, "contradicted": 0}
    assert len(rows) == PARTITIONS * count


def arguments_of(site: Site | ClusterJob, elements: int = COUNT, /, **config: object) -> list[str]:
    """Return the options of a job whose sources are held until the file `gate` exists."""
    settings = sets(count=elements, rate=RATE, out=site.directory / "out.db", gate=site.directory / "gate")
    file = site.directory / "job.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in config.items()))
    return [*settings, "--config", str(file)]


def began(site: Site, host_timeout_ms: int = 15_000, count: int = COUNT, **config: object) -> None:
    """Start a job whose sources are held; without a cut no host is silent for this long, however busy the machine
    is.
    """
    site.run(PIPELINE, *arguments_of(site, count, host_timeout_ms=host_timeout_ms, **config))
    for name in site.names:
        site.join(name)
    site.await_running(100)


def ended(site: Site, count: int = COUNT) -> None:
    """End the sources, and check the job and every row."""
    (site.directory / "gate").touch()
    assert site.await_end() == 0, site.log("supervisor")
    check_rows(site, count)


def other_host(site: Site) -> tuple[str, list[str]]:
    """Return a host with tasks that is not the sink's, and these tasks."""
    name = next(name for name in site.names if name != "a" and site.host(name)["tasks"])
    return name, site.host(name)["tasks"]


def replace_another_host(site: Site, before: Mapping[str, int]) -> tuple[str, dict[str, int]]:
    """Kill a host with tasks, and wait until each of them is one incarnation further; returns it and what is then."""
    lost, moved = other_host(site)
    site.kill_host(lost)
    after = {task: incarnation + (task in moved) for task, incarnation in before.items()}
    wait_for("the host is replaced", lambda: incarnations(site) == after)
    return lost, after


def until_more_rows(site: Site, count: int) -> None:
    rows = rows_out(site)
    wait_for(f"{count} rows come out meanwhile", lambda: rows_out(site) > rows + count)


def incarnations(site: Site) -> dict[str, int]:
    return {task["task"]: task["incarnation"] for task in (site.view() or {}).get("tasks", ())}


def rows_out(site: Site) -> int:
    db = sqlite3.connect(site.directory / "out.db", timeout=10)
    (rows,) = db.execute("SELECT count(*) FROM output").fetchone()
    db.close()
    return int(rows)
