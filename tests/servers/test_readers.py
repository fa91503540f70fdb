"""Readers that look at a sink of every kind repeatedly while tasks, and then all of the job, are killed.

Rows that a reader has seen stay the first rows for every reader, and in the end each reader has seen each row once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.servers.s3 import BUCKET
from tests.faults import readers
from tests.faults.conftest import Start
from tests.faults.job import Job
from tests.faults.readers import Reader, Rows, reading
from tests.members import members
from tests.servers.chains import assert_consistent, assert_exactly_once

pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")

PIPELINE = Path(__file__).resolve().parent / "pipelines" / "watched.py"
COUNT, EACH, RATE = 240, 5, 2.0
"""Elements, rows of each, and elements a second: there is something to write for minutes."""
MORE = 20
KILLED = (("sqlite/0", "parquet/0", "postgres/1", "padded/0"), ("lines/1", "redis/0"))


@pytest.mark.parametrize(
    ("guarantee", "stored"), members([("causal", False), ("epoch", False), ("epoch", True)], ("causal", False))
)
def test_what_a_reader_has_seen_stays_whatever_dies(
    guarantee: str,
    stored: bool,
    start: Start,
    tmp_path: Path,
    shared_servers: dict[str, Any],
    request: pytest.FixtureRequest,
) -> None:
    looks = {
        "sqlite": readers.of_sqlite(tmp_path / "rows.db"),
        "lines": readers.of_lines(tmp_path / "lines"),
        "parquet": readers.of_parquet(tmp_path / "parquet"),
        "files": readers.of_parquet_files(tmp_path / "parquet"),
    }
    named = f"watched_{guarantee}"
    settings = {"count": COUNT, "each": EACH, "rate": RATE, "gate": tmp_path / "gate", "named": named}
    if "postgres" in shared_servers:
        settings["dsn"] = shared_servers["postgres"].dsn
        looks["postgres"] = readers.of_postgres(shared_servers["postgres"], named)
    if "redis" in shared_servers:
        settings["url"] = shared_servers["redis"].url
        looks["redis"] = readers.of_redis(shared_servers["redis"], named, ["redis/0"])
    arguments = sets(**settings)
    if stored:
        request.getfixturevalue("s3_here")
        arguments += ["--store", f"s3://{BUCKET}/{tmp_path.name}"]
    with reading(looks) as watching:
        job = start(
            PIPELINE, *arguments, "--guarantee", guarantee, "--checkpoint-interval", "0.5", config={"standbys": "3"}
        )
        job.until_warm()
        for tasks in KILLED:
            until_more(job, watching)
            job.replace(*(task for task in tasks if task.split("/")[0] in (*looks, "padded")))
        until_more(job, watching)
        job.kill_everything()
        for each in watching:
            assert_consistent(each.records())
        job.start("--resume")
        until_more(job, watching)
        (tmp_path / "gate").touch()
        job.finish_well()
    for each in watching:
        assert not each.wrong, each.wrong
        assert_exactly_once(each.records(), COUNT * EACH)
    assert len({each.said() for each in watching}) == 1, "all sinks have the same rows"


def until_more(job: Job, watching: list[Reader]) -> None:
    """Wait until each reader has seen some rows more."""
    wanted = {each.name: each.count + MORE for each in watching}

    def all_have(view: dict[str, Any]) -> bool:
        wrong = [problem for each in watching for problem in each.wrong]
        assert not wrong, wrong
        return all(each.count >= wanted[each.name] for each in watching)

    job.until(f"every reader has seen {MORE} rows more", all_have)


@pytest.mark.parametrize(
    "looks",
    [[{"a": ["1", "2"]}, {"a": ["1", "3"]}], [{"a": ["1"]}, {}], [{"a": ['{"half']}]],
    ids=["a row changes", "a row goes", "half a row"],
)
def test_a_reader_notices_what_may_not_be(looks: list[Rows]) -> None:
    coming = iter(looks)
    reader = Reader("one", lambda: next(coming))
    for _ in looks:
        assert not reader.wrong
        reader.look()
    assert reader.wrong
