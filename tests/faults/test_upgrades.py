"""Upgrades at savepoints: refused without effect, taken back when they fail, and exact either way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.runs import sets
from benchmarks.harness.written import lines_in, records_in
from causal.sealed import seal, unseal
from tests.faults.conftest import Start
from tests.faults.job import Job, causal, causal_output
from tests.faults.test_bad_input import one_line
from tests.members import campaign

PIPELINE = """
from operators import Operator, Pipeline, ValueState
from operators.sinks import JsonLinesSink, ParquetSink, PostgresSink, RedisSink, SqliteSink
from operators.sources import GeneratedSource

class Plain:
    def __init__(self, inner):
        self.open, self.last_bundle, self.write = inner.open, inner.last_bundle, inner.write
        self.truncate, self.close = inner.truncate, inner.close

class PlainSink(SqliteSink):
    def open_store(self, task, job_directory):
        return Plain(super().open_store(task, job_directory))

class Count(Operator):
    total = ValueState[int](default=0)
    def process(self, record, ctx):
        self.total.value += 1
        yield {"key": ctx.key, "n": self.total.value}

pipeline = Pipeline("counts")
settings = pipeline.settings
count, rate = int(settings.get("count", 1_000_000)), int(settings.get("rate", 1000))
COLUMNS = {"key": "int64", "n": "int64", "wrong": "bool", "v": "int64"}
SINKS = {
    "sqlite": lambda: SqliteSink("out.db"),
    "jsonlines": lambda: JsonLinesSink("rows"),
    "plain": lambda: PlainSink("out.db"),
    "parquet": lambda: ParquetSink("files", COLUMNS, publish_s=0.1),
    "postgres": lambda: PostgresSink(settings["server"], table="upgraded"),
    "redis": lambda: RedisSink(settings["server"], stream="upgraded"),
}
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: {"k": i % 20}, count=count, rate=rate))
counted = numbers.key_by(lambda r: r["k"]).process("count", Count(), parallelism=2)
counted.sink("out", SINKS[settings.get("sink", "sqlite")]())
"""
FAILING = PIPELINE.replace(
    'yield {"key": ctx.key, "n"',
    'self.left = getattr(self, "left", 100) - 1\n'
    '        if not self.left:\n            raise ValueError("a mistake")\n'
    '        yield {"key": ctx.key, "wrong": True, "n"',
)


Rows = list[dict[str, Any]]


def rows(directory: Path) -> Rows:
    if (directory / "files").exists():
        return in_parquet(directory / "files")
    return list(lines_in(directory / "rows") if (directory / "rows").exists() else records_in(directory / "out.db"))


def in_parquet(directory: Path) -> Rows:
    """Rows in files and in journals; those in files are among them."""
    from pyarrow import dataset

    from operators.sinks.parquet.parquet_sink import read

    def there(records: Rows) -> Rows:
        return [{name: value for name, value in row.items() if value is not None} for row in records]

    seen = there(read(directory).to_pylist())
    listed = there(dataset.dataset(directory, format="parquet").to_table().to_pylist())
    assert not Counter(map(str, listed)) - Counter(map(str, seen)), "a file has rows that are not there any more"
    return seen


def check(directory: Path, count: int, read: Callable[[Path], Rows] = rows) -> None:
    records = read(directory)
    assert not [row for row in records if "wrong" in row]
    assert Counter((row["key"], row["n"]) for row in records) == {(i % 20, 1 + i // 20): 1 for i in range(count)}


def begun(
    start: Start, directory: Path, *arguments: str, interval: str = "0.5", text: str = PIPELINE
) -> tuple[Path, Job]:
    path = directory / "counts.py"
    path.write_text(text)
    return path, start(path, "--checkpoint-interval", interval, *arguments)


def stopped(job: Job, *arguments: str) -> str:
    said = causal_output(job.directory, "savepoint", "--stop", "--state-dir", str(job.state), *arguments)
    job.finish_well()
    return said


def finish(job: Job, *arguments: str, read: Callable[[Path], Rows] = rows) -> int:
    """Resume the job to an end that is further than any row so far; returns how many records that is."""
    done = len(read(job.directory)) + 1500
    job.start("--resume", *arguments, "--set", f"count={done}", "--set", "rate=100000")
    job.finish_well()
    return done


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--set", "sink=sqlite"], id="sqlite"),
        campaign(["--set", "sink=jsonlines"], id="jsonlines"),
        campaign(["--set", "sink=parquet"], id="parquet"),
        campaign(["--set", "sink=sqlite", "--guarantee", "epoch"], id="epoch"),
        campaign(["--set", "sink=sqlite", "--sharing-depth", "1"], id="depth 1"),
        campaign(["--set", "sink=sqlite", "--guarantee", "at-least-once"], id="at-least-once"),
    ],
)
def test_a_failed_upgrade_is_taken_back_with_one_command(start: Start, tmp_path: Path, options: list[str]) -> None:
    if "sink=parquet" in options:
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: there are no Parquet files")
    a_failed_upgrade_is_taken_back(start, tmp_path, *options)


def a_failed_upgrade_is_taken_back(
    start: Start, tmp_path: Path, *options: str, read: Callable[[Path], Rows] = rows
) -> None:
    path, job = begun(start, tmp_path, *options)
    job.until_written(500)
    stopped(job)
    good = len(read(tmp_path))
    path.write_text(FAILING)
    job.start("--resume", "--checkpoint-interval", "30")
    status, said = job.finish()
    assert status == 1 and "a mistake" in said and "this is an upgrade" in said
    assert said.rstrip().endswith(
        "revert the upgrade that it started with: "
        f"causal run {path.name} --resume --state-dir {job.state.name} --rollback"
    )
    wrong = [row for row in read(tmp_path) if "wrong" in row]
    assert bool(wrong) is ("epoch" not in options), "rows of the failed version are visible"
    listed, *_ = causal_output(tmp_path, "savepoint", "--list", "--state-dir", str(job.state)).splitlines()
    assert "--rollback goes back to it" in listed and f"{good:,} rows" in listed
    name = listed.split()[0]
    status, said = causal(tmp_path, "savepoint", "--delete", name, "--state-dir", str(job.state))
    assert status == 2 and "the one to which --rollback returns" in one_line(said)
    done = finish(job, "--rollback", read=read)
    check(tmp_path, done, read)
    causal_output(tmp_path, "savepoint", "--delete", name, "--state-dir", str(job.state))
    assert "no savepoints" in causal_output(tmp_path, "savepoint", "--list", "--state-dir", str(job.state))


@pytest.mark.campaign
def test_a_corrected_version_begins_at_the_same_savepoint(start: Start, tmp_path: Path) -> None:
    path, job = begun(start, tmp_path)
    job.until_written(500)
    stopped(job)
    path.write_text(FAILING)
    job.start("--resume", "--checkpoint-interval", "30")
    assert job.finish()[0] == 1
    path.write_text(PIPELINE.replace('"n": self', '"v": 2, "n": self').replace("parallelism=2", "parallelism=3"))
    done = finish(job, "--rollback", "--code", "new")
    check(tmp_path, done)
    assert [row for row in rows(tmp_path) if "v" in row]


REFUSED = (
    ("ValueState[int](default=0)", "ValueState[str](default='')", "total"),
    ('"count", Count()', '"renamed", Count()', "--allow-dropped-state"),
    ("class Count", "raise ValueError('no')\nclass Count", "ValueError: no"),
    ('"out.db"', '"other.db"', "/other.db, is missing although the job has written"),
)
"""Text of the pipeline, its replacement, and the words of the refusal."""


@pytest.mark.campaign
def test_what_is_refused_has_no_effect(start: Start, tmp_path: Path) -> None:
    path, job = begun(start, tmp_path)
    job.until_written(300)
    copy, other = tmp_path / "copy", str(tmp_path / "other")
    stopped(job, "--to", str(copy))
    for old, new, line in REFUSED:
        path.write_text(PIPELINE.replace(old, new))
        for _ in range(2):
            status, said = job.start("--resume").finish()
            assert status == 2 and line in one_line(said), said
    assert not (tmp_path / "other.db").exists()
    path.write_text(PIPELINE)
    content = (job.state / "job.json").read_text()
    for where in (copy, job.state):
        described = unseal((where / "job.json").read_text())
        (where / "job.json").write_text(seal({**described, "format": 99, "unheard_of": True}))
    status, said = causal(tmp_path, "run", str(path), "--state-dir", other, "--from", str(copy))
    assert status == 2 and "another version of causal-streams (format 99" in one_line(said)
    status, said = job.start("--resume").finish()
    assert status == 2 and "another version of causal-streams" in one_line(said)
    (job.state / "job.json").write_text(content)
    check(tmp_path, finish(job))


@pytest.mark.campaign
def test_rows_that_no_store_takes_back_are_said_and_stay(start: Start, tmp_path: Path) -> None:
    path, job = begun(start, tmp_path, "--set", "sink=plain")
    job.until_written(300)
    stopped(job)
    path.write_text(FAILING)
    job.start("--resume", "--checkpoint-interval", "30")
    assert job.finish()[0] == 1
    job.start("--resume", "--rollback")
    status, said = job.finish()
    assert status == 2 and "cannot withdraw rows" in one_line(said)
    assert [row for row in rows(tmp_path) if "wrong" in row]


@pytest.mark.campaign
def test_a_graph_that_changes_with_the_code(start: Start, tmp_path: Path) -> None:
    path, job = begun(start, tmp_path)
    job.until_written(300)
    stopped(job)
    more = PIPELINE.replace("parallelism=2", "parallelism=3").replace(
        'counted.sink("out"', 'counted.map("same", lambda r: r).filter("all", lambda r: True).sink("out"'
    )
    path.write_text(more)
    job.start("--resume")
    job.until_warm(records=300)
    pid = job.pid_of("all/2")  # as the chain of its operators is called
    assert kill(pid)
    stopped(job)  # while a task is being recovered
    path.write_text(PIPELINE.replace("parallelism=2", "parallelism=1"))
    check(tmp_path, finish(job))


@pytest.mark.campaign
def test_a_copy_of_the_savepoint_at_which_a_job_stopped_keeps_its_sinks(start: Start, tmp_path: Path) -> None:
    path, job = begun(start, tmp_path)
    job.until_written(300)
    copy = tmp_path / "copy"
    assert "copy is in" in stopped(job, "--to", str(copy))
    done = len(rows(tmp_path)) + 1000
    arguments = ["run", str(path), "--state-dir", str(tmp_path / "other"), "--from", str(copy), *sets(count=done)]
    status, said = causal(tmp_path, *arguments)
    assert status == 2 and "rows of another run" in one_line(said), said
    status, said = causal(tmp_path, *arguments, "--keep-sinks", "--set", "rate=100000")
    assert status == 0, said
    check(tmp_path, done)
    for changed in ((), ("--set", f"count={done}")):
        job.start("--resume", *changed)
        status, said = job.finish()
        assert status == 2 and "a job has written to it since" in one_line(said), said
