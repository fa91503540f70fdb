"""A job that reads another job's output, while both die: each row arrives once, and withdrawn rows are retracted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.written import records_in
from standby.host.processes import marked
from tests.faults.changing import Changing
from tests.faults.conftest import POOL, Start
from tests.faults.job import Job

SECOND = """
from operators import Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import OutputSource

class Numbered(Operator):
    total = ValueState[int](default=0)
    def process(self, record, ctx):
        self.total.value += 1
        yield {**record, "number": self.total.value, "roll": ctx.random.random()}

pipeline = Pipeline("second")
rows = pipeline.source("rows", OutputSource("../out.db"))
rows.key_by(lambda row: row["key"]).process("numbered", Numbered(), parallelism=2).sink("out", SqliteSink("second.db"))
"""


class Second:
    """A job that copies the rows of the first one."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        path = directory / "second.py"
        path.write_text(SECOND)
        self.directory = directory
        self.job = Job(directory, path, "--checkpoint-interval", "0.5", *POOL).start()

    def rows(self) -> list[dict[str, Any]]:
        return list(records_in(self.directory / "second.db"))

    def remaining(self) -> Counter[tuple[Any, ...]]:
        """Return the rows that were not retracted; a row is retracted after it has arrived."""
        rows: Counter[tuple[Any, ...]] = Counter()
        for key in {row["key"] for row in self.rows()}:
            own = [row for row in self.rows() if row["key"] == key]
            assert [row["number"] for row in own] == list(range(1, len(own) + 1))
            for row in own:
                rows[identity(row)] += -1 if row.get("_withdrawn") else 1
                assert rows[identity(row)] >= 0, row
        return +rows

    def kill_companion(self) -> None:
        for process in marked(self.job.state):
            if not process.slot.startswith("w"):
                kill(process.pid)


def identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("key", "n", "p", "i", "version", "task", "dice"))


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Second]:
    job = Second(tmp_path / "second")
    yield job
    job.job.close()


def test_each_row_of_a_killed_job_arrives_once_in_a_killed_job(start: Start, tmp_path: Path, second: Second) -> None:
    first = Changing(start, tmp_path)
    second.job.until_warm(records=100)
    first.job.replace("count/0")
    second.job.replace("numbered/1")
    second.kill_companion()
    first.until_more(100)
    second.job.replace("rows/0")
    first.job.kill_everything()
    second.kill_companion()
    first.job.start("--resume")
    first.until_more(100)
    second.job.kill_everything()
    second.job.start("--resume")
    second.job.until_warm()
    first.finish()
    second.job.finish_well()
    assert second.remaining() == Counter(map(identity, first.rows()))
    assert not [row for row in second.rows() if row.get("_withdrawn")]


def test_rows_that_a_rollback_withdraws_are_retracted(start: Start, tmp_path: Path, second: Second) -> None:
    first = Changing(start, tmp_path)
    second.job.until_warm(records=50)
    first.upgraded(2)
    first.until_more(200)
    second.job.until("rows of version 2 have arrived", lambda view: any(row["version"] == 2 for row in second.rows()))
    first.changed("rollback")
    first.until_more(100)
    first.finish()
    second.job.finish_well()
    assert second.remaining() == Counter(map(identity, first.rows()))
    assert [row for row in second.rows() if row.get("_withdrawn")], "rows of version 2 were withdrawn"
    assert {row["version"] for row in first.rows()} == {1}
