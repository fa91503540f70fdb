"""Jobs that stop at a savepoint and resume as another graph: nothing lost, nothing doubled, whatever is killed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from tests.faults.conftest import POOL, Start
from tests.faults.job import PIPELINES, Job, causal
from tests.faults.test_bad_input import one_line


def changing(start: Start, directory: Path, *arguments: str, **settings: object) -> Job:
    return start(PIPELINES / "changing.py", *sets(out=directory / "rows.db", **settings), *arguments)


def stop(job: Job, *arguments: str) -> None:
    status, said = causal(job.directory, "savepoint", "--stop", "--state-dir", str(job.state), *arguments)
    assert status == 0, said
    job.finish_well()


def rows(directory: Path) -> list[dict[str, Any]]:
    return list(records_in(directory / "rows.db"))


def further(directory: Path) -> int:
    """Return a number of records per partition that no life of the job has reached."""
    return max(int(record["i"]) for record in rows(directory) if "i" in record) + 200


def check(records: list[dict[str, Any]], count: int, partitions: int = 4) -> None:
    """Assert every record once, every number of a key once."""
    counted: dict[int, list[dict[str, Any]]] = defaultdict(list)
    rang: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        (counted[record["key"]] if "n" in record else rang[record["key"]]).append(record)
    seen = sorted((record["p"], record["i"]) for each in counted.values() for record in each)
    assert seen == [(p, i) for p in range(partitions) for i in range(count)]
    for each in counted.values():
        assert sorted(record["n"] for record in each) == list(range(1, len(each) + 1))
    for each in rang.values():
        assert sorted(record["rang"] for record in each) == list(range(1, len(each) + 1))
    assert rang


def check_copy(rows: list[dict[str, Any]], count: int) -> None:
    """Assert that a job has begun where a savepoint was, and ended there: records from then on, totals of all."""
    records = [record for record in rows if "n" in record]
    firsts = {p: min(record["i"] for record in records if record["p"] == p) for p in range(4)}
    assert all(firsts.values()), "it begins where the savepoint was, not at the beginning"
    assert sorted((r["p"], r["i"]) for r in records) == [(p, i) for p in range(4) for i in range(firsts[p], count)]
    totals = {key: max(record["n"] for record in records if record["key"] == key) for key in range(40)}
    assert totals == {key: sum((i * 7 + p) % 40 == key for p in range(4) for i in range(count)) for key in range(40)}


def test_from_two_tasks_to_four_to_three_with_kills(start: Start, tmp_path: Path) -> None:
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5")
    job.until_warm(records=200)
    job.replace("tally/1")
    stop(job)
    for parallelism, sources in ((4, 1), (3, 4)):
        before = len(rows(tmp_path))
        job.start("--resume", *sets(parallelism=parallelism, sources=sources))
        job.until_warm(records=before + 200, checkpoints=1)
        job.replace(f"tally/{parallelism - 1}", "out/0")
        stop(job)
    done = further(tmp_path)
    job.start("--resume", *sets(parallelism=3, sources=4, count=done, rate=100_000))
    job.finish_well()
    check(rows(tmp_path), done)


@pytest.mark.campaign
def test_killed_altogether_after_a_change(start: Start, tmp_path: Path) -> None:
    """Determinants that the stores held of the graph before are none of the new graph."""
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5", "--sharing-depth", "1")
    job.until_warm(records=200)
    stop(job)
    job.start("--resume", *sets(parallelism=3))
    job.until_warm(records=900)
    job.kill_everything()
    job.start("--resume")  # a setting changes at a savepoint only
    job.until_warm(records=1200)
    stop(job)
    done = further(tmp_path)
    job.start("--resume", *sets(parallelism=3, count=done, rate=100_000))
    job.finish_well()
    check(rows(tmp_path), done)


@pytest.mark.campaign
def test_an_operator_is_added_and_taken_away_again(start: Start, tmp_path: Path) -> None:
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5")
    job.until_warm(records=200)
    stop(job)
    plain = len(rows(tmp_path))
    job.start("--resume", *sets(shape="more"))
    job.until_warm(records=plain + 300)
    stop(job)
    added = [record for record in rows(tmp_path) if "seen" in record]
    assert added and len(rows(tmp_path)) == plain + len(added)
    job.start("--resume", *sets(shape="plain"))
    status, said = job.finish()
    assert status == 2 and "state 'ordinal' of operator 'ordinal'" in one_line(said)
    assert "--allow-dropped-state" in said
    done = further(tmp_path)
    job.start("--resume", "--allow-dropped-state", *sets(shape="plain", count=done, rate=100_000))
    job.finish_well()
    check(rows(tmp_path), done)


def test_what_cannot_continue_is_refused_and_nothing_is_lost(start: Start, tmp_path: Path) -> None:
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5", shape="alone")
    job.until_warm(records=200)
    job.interrupt()
    assert job.finish()[0] == 130
    assert_refused(job, "did not stop at a savepoint", sources=4)
    job.start("--resume")
    job.until_warm(records=200)
    stop(job)
    changes: tuple[tuple[dict[str, object], str], ...] = (
        ({"sources": 4}, "operator 'alone' keeps state per task, so its parallelism cannot change from 2 to 4"),
        ({"partitions": 5}, "partitions of source 'numbers' was 4 at the savepoint and is 5 now; keep the number"),
        ({"shape": "other"}, "positions of source 'numbers', which this pipeline does not have"),
    )
    for settings, line in changes:
        assert_refused(job, line, **settings)
    done = further(tmp_path)
    job.start("--resume", *sets(count=done, rate=100_000))
    job.finish_well()
    check(rows(tmp_path), done)


def assert_refused(job: Job, line: str, **settings: object) -> None:
    status, said = job.start("--resume", *sets(**settings)).finish()
    assert status == 2 and line in one_line(said), said


@pytest.mark.campaign
def test_a_savepoint_of_what_does_not_run_is_refused(start: Start, tmp_path: Path) -> None:
    job = changing(start, tmp_path, count=50, rate=100_000)
    job.finish_well()
    status, said = causal(tmp_path, "savepoint", "--stop", "--state-dir", str(job.state))
    assert status == 2 and "is not running" in one_line(said)


@pytest.mark.campaign
def test_a_copy_begins_a_job_of_its_own(start: Start, tmp_path: Path) -> None:
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5")
    job.until_warm(records=200)
    copied = tmp_path / "copy"
    status, said = causal(tmp_path, "savepoint", "--to", str(copied), "--state-dir", str(job.state))
    assert status == 0, said
    job.until_warm(records=len(rows(tmp_path)) + 200)
    stop(job)
    done = further(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    settings = sets(out=other / "rows.db", parallelism=3, sources=1, count=done, rate=100_000)
    arguments = [str(PIPELINES / "changing.py"), "--state-dir", str(other / "job"), *POOL, *settings]
    status, said = causal(tmp_path, "run", *arguments, "--from", str(copied))
    assert status == 0, said
    check_copy(rows(other), done)
    status, said = causal(tmp_path, "savepoint", "--to", str(copied), "--state-dir", str(job.state))
    assert status == 2 and "is not running" in one_line(said)


@pytest.mark.campaign
def test_a_change_that_is_interrupted_has_happened_or_has_not(start: Start, tmp_path: Path) -> None:
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5")
    job.until_warm(records=200)
    stop(job)
    prepared = job.state / "change"
    prepared.mkdir()
    (prepared / "job.json").write_text("half of it")
    job.start("--resume", *sets(parallelism=3))
    job.until_warm(records=len(rows(tmp_path)) + 100)
    stop(job)
    assert not prepared.exists()
    prepared.mkdir()
    moved = {name: (job.state / name).read_bytes() for name in ("topology.json", "job.json", "journal.sqlite")}
    for name, body in moved.items():
        (prepared / name).write_bytes(body)
    (job.state / "topology.json").unlink()  # it was killed between two of the moves
    (prepared / "ready").touch()
    done = further(tmp_path)
    job.start("--resume", *sets(parallelism=3, count=done, rate=100_000))
    job.finish_well()
    check(rows(tmp_path), done)
