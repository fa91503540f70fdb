"""The job of these tests: counts per key into SQLite on host `a`, from sources that the test lets end; its rows prove
that each record was counted once."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from examples.hosts.job import ClusterJob
from tests.hosts.site import Site

PIPELINE = Path(__file__).parent / "pipelines" / "counts.py"
MakeSite = Callable[..., Site]
"""Makes a site: its hosts, and what else is in its network."""


PARTITIONS = 2
COUNT, RATE = 5000, 1000
"""The elements of each partition, and all of them per second as long as the test holds the sources."""

SILENCE_MS = 3000
"""The time-out of hosts where one is cut off."""


def rows_of(site: Site | ClusterJob) -> list[dict[str, Any]]:
    """The rows of the job, in the order of their positions."""
    with closing(sqlite3.connect(site.directory / "out.db", timeout=10)) as db:
        return [json.loads(row) for (row,) in db.execute("SELECT record FROM output ORDER BY position")]


def wrong(rows: Iterable[dict[str, Any]], count: int) -> dict[str, int]:
    """Counts the faults of the rows of a whole job: records without a row, with several, and counts out of turn."""
    turns: dict[int, int] = {}
    seen: Counter[tuple[int, int]] = Counter()
    contradicted = 0
    for row in rows:
        contradicted += row["n"] != turns.get(row["key"], 0) + 1
        turns[row["key"]] = row["n"]
        seen[row["partition"], row["v"]] += 1
    expected = {(partition, v) for partition in range(PARTITIONS) for v in range(count)}
    doubled = sum(seen.values()) - len(seen)
    return {"lost": len(expected - seen.keys()), "doubled": doubled, "contradicted": contradicted}


def check_rows(site: Site | ClusterJob, count: int = COUNT) -> None:
    """Every record of both partitions was counted once, in the order of its key, and has one row."""
    rows = rows_of(site)
    assert wrong(rows, count) == {"lost": 0, "doubled": 0, "contradicted": 0}
    assert len(rows) == PARTITIONS * count


def arguments_of(site: Site | ClusterJob, elements: int = COUNT, /, **config: object) -> list[str]:
    """The options of a job whose sources are held until the file `gate` exists."""
    values = {"count": elements, "rate": RATE, "out": site.directory / "out.db", "gate": site.directory / "gate"}
    file = site.directory / "job.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in config.items()))
    return [*(part for name, value in values.items() for part in ("--set", f"{name}={value}")), "--config", str(file)]


def began(site: Site, host_timeout_ms: int = 15_000, count: int = COUNT, **config: object) -> None:
    """Starts a job whose sources are held; without a cut no host is silent for so long, however busy the machine is."""
    site.run(PIPELINE, *arguments_of(site, count, host_timeout_ms=host_timeout_ms, **config))
    for name in site.names:
        site.join(name)
    site.await_running(500)


def ended(site: Site, count: int = COUNT) -> None:
    """Lets the sources end, and checks the job and every row."""
    (site.directory / "gate").touch()
    assert site.await_end() == 0, site.log("supervisor")
    check_rows(site, count)


def other_host(site: Site) -> tuple[str, list[str]]:
    """A host with tasks that is not the sink's, and these tasks."""
    name = next(name for name in site.names if name != "a" and site.host(name)["tasks"])
    return name, site.host(name)["tasks"]


def incarnations(site: Site) -> dict[str, int]:
    return {task["task"]: task["incarnation"] for task in (site.view() or {}).get("tasks", ())}


def rows_out(site: Site) -> int:
    db = sqlite3.connect(site.directory / "out.db", timeout=10)
    (rows,) = db.execute("SELECT count(*) FROM output").fetchone()
    db.close()
    return int(rows)
