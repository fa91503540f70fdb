"""Spark's driver and source tasks are on several hosts: one is lost, and each row of the files is there once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets

pytest.importorskip("pyspark", reason="PySpark is not installed: no driver to test with")
pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")

from benchmarks.hosts.site import Site
from standby.host.processes import marked
from tests.faults.job import wait_for
from tests.hosts.counted import MakeSite, ended

PIPELINE = Path(__file__).parent / "pipelines" / "ingested.py"
DRIVER = "companion-numbers-driver"
FILES, LINES = 20, 100
COUNT = FILES // 2 * LINES
"""The elements of each of the two partitions."""

UP_S = 600.0


def written_input(directory: Path) -> str:
    """Return files of lines `<partition> <element>`; returns the name of the last one."""
    directory.mkdir()
    for file in range(FILES):
        lines = (f"{file % 2} {file // 2 * LINES + line}\n" for line in range(LINES))
        (directory / f"{file:03}.txt").write_text("".join(lines))
    return f"{FILES - 1:03}.txt"


def driver_host(site: Site) -> str | None:
    """Return the host on which Spark's driver runs."""
    return next((name for name in site.names if any(each.slot == DRIVER for each in marked(site.state(name)))), None)


def began(site: Site) -> None:
    values = {
        "input": site.directory / "input",
        "last": written_input(site.directory / "input"),
        "gate": site.directory / "gate",
        "out": site.directory / "out.db",
    }
    config = site.directory / "job.toml"
    config.write_text(f"host_timeout_ms = {json.dumps(15_000)}\n")
    site.run(PIPELINE, *sets(**values), "--config", str(config))
    for name in site.names:
        site.join(name, *(["--label", "spark=yes"] if name != "a" else []))


def written(site: Site) -> int:
    """Return the rows that the sink has written, as the supervisor sees it."""
    tasks = (site.view() or {"tasks": []})["tasks"]
    return sum(int(task["figures"].get("records_out", 0)) for task in tasks if task["sink"])


@pytest.mark.timeout(1500)
@pytest.mark.campaign
def test_the_driver_and_its_source_tasks_follow_when_their_host_is_lost(site: MakeSite) -> None:
    here = site(["a", "b", "c"])
    began(here)
    wait_for("all hosts", lambda: sum(here.host(name).get("state") == "joined" for name in here.names) == 3)
    wait_for("rows of several batches", lambda: written(here) > 3 * LINES, UP_S)
    lost = driver_host(here)
    assert lost in ("b", "c")
    here.kill_host(lost)
    before = written(here)
    wait_for("a driver on another host", lambda: driver_host(here) not in (None, lost), UP_S)
    wait_for("rows that it has read", lambda: written(here) > before + LINES, UP_S)
    ended(here, COUNT)
