"""Two jobs on one sink: the newer one owns it, whatever the older one does later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.harness.written import lines_in, records_in
from operators.sinks.parquet.parquet_reading import read
from tests.faults.job import Job
from tests.faults.owned import owner, the_newer_job_owns_the_sink
from tests.members import members

Begin = Callable[..., Job]


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Jobs to be closed at the end."""
    started: list[Job] = []
    yield started
    for job in started:
        job.close()


def in_sqlite(path: Path) -> list[tuple[str, int]]:
    return listed(list(records_in(path)))


def in_lines(path: Path) -> list[tuple[str, int]]:
    return listed(list(lines_in(path)))


def in_parquet(path: Path) -> list[tuple[str, int]]:
    return listed(read(path).to_pylist())


def listed(rows: list[dict[str, object]]) -> list[tuple[str, int]]:
    return sorted(((str(row["who"]), int(str(row["i"]))) for row in rows), key=lambda row: row[1])


SINKS: dict[str, tuple[str, Callable[[Path], list[tuple[str, int]]]]] = {
    "sqlite": ("out.db", in_sqlite),
    "lines": ("out", in_lines),
    "parquet": ("out", in_parquet),
}


CASES = [(kind, guarantee) for kind in SINKS for guarantee in ("causal", "epoch")]


@pytest.mark.parametrize(("kind", "guarantee"), members(CASES, ("sqlite", "causal")))
def test_the_newer_of_two_jobs_owns_the_sink(kind: str, guarantee: str, tmp_path: Path, jobs: list[Job]) -> None:
    name, rows = SINKS[kind]
    where = tmp_path / name
    jobs += [owner(tmp_path, who, kind, str(where), "--guarantee", guarantee) for who in ("older", "newer")]
    older, newer = jobs
    the_newer_job_owns_the_sink(older, newer, lambda: rows(where))
