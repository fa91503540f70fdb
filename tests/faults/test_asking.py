"""Calls of the outside world in jobs whose processes are killed while answers are awaited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from benchmarks.harness.written import records_in
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job, causal
from tests.faults.test_bad_input import one_line
from tests.faults.test_savepoints import further, stop
from tests.members import campaign, members

COUNT = 450


def asking(start: Start, directory: Path, *arguments: str, **settings: object) -> Job:
    (directory / "world").mkdir(exist_ok=True)
    values = {"out": directory / "rows.db", "world": directory / "world", "count": COUNT, **settings}
    return start(PIPELINES / "asking.py", *sets(**values), "--checkpoint-interval", "0.4", *arguments)


def rows(directory: Path) -> list[dict[str, Any]]:
    return list(records_in(directory / "rows.db"))


def effects(directory: Path) -> list[tuple[str, int, int]]:
    """Return (key, record, how often it was asked for) of each effect."""
    files = [(path.name, path.read_text().split()) for path in sorted((directory / "world").iterdir())]
    return [(key, int(times[0]), len(times)) for key, times in files]


def everything(count: int = COUNT) -> list[tuple[int, int]]:
    return [(p, i) for p in range(2) for i in range(count)]


@pytest.mark.parametrize("order", members(["input", "completion"]))
def test_each_record_once_and_its_effect_once_whatever_is_killed(start: Start, tmp_path: Path, order: str) -> None:
    gate = tmp_path / "gate"
    job = asking(start, tmp_path, order=order, gate=gate, rate=100)
    job.until_warm(records=100)
    for task in ("after/0", "keyed/0", "after/0"):
        job.replace(task)
    gate.touch()
    report = job.finish_well()
    visible = rows(tmp_path)
    assert sorted((record["p"], record["i"]) for record in visible) == everything()
    assert report["determinant_bytes"]["answer"] > 0
    assert report["latency_ms"]["p50"] > 0
    done = effects(tmp_path)
    assert sorted(divmod(record, 1_000_000) for _, record, _ in done) == everything(), "one effect per record"
    keys = {record: key for key, record, _ in done}
    assert all(record["key"] == keys[record["p"] * 1_000_000 + record["i"]] for record in visible)
    if order == "input":
        for partition in (0, 1):
            came = [record["i"] for record in visible if record["p"] == partition]
            assert came == sorted(came)


@pytest.mark.campaign
def test_everything_dies_while_answers_are_awaited(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = asking(start, tmp_path, gate=gate, rate=100)
    job.until_warm(records=150)
    job.kill_everything()
    gate.touch()
    job.start("--resume")
    job.finish_well()
    assert sorted((record["p"], record["i"]) for record in rows(tmp_path)) == everything()
    assert sorted(divmod(record, 1_000_000) for _, record, _ in effects(tmp_path)) == everything()


@pytest.mark.parametrize(
    "victims",
    [
        campaign(("after/0",), id="caller"),
        campaign(("after/0", "keyed/0", "out/0"), id="caller and all behind it"),
        pytest.param(("numbers/0", "numbers/1", "after/0", "keyed/0"), id="caller and its neighbours"),
    ],
)
def test_what_was_asked_stays_so_whatever_dies_together(start: Start, tmp_path: Path, victims: tuple[str, ...]) -> None:
    """A request depends on the order of arrival, which must be stored before it leaves."""
    gate = tmp_path / "gate"
    job = asking(start, tmp_path, order="completion", gate=gate, rate=100, sources=2, stamped=1)
    job.until_warm(records=200)
    for _ in range(2):
        job.replace(*victims)
    gate.touch()
    job.finish_well()
    visible = rows(tmp_path)
    done = effects(tmp_path)
    named = [divmod(content, 1_000_000) for _, content, _ in done]
    assert sorted(divmod(record, 1_000_000) for record, _ in named) == everything(), "one effect per record"
    for path in (tmp_path / "world").iterdir():
        assert len(set(path.read_text().split())) == 1, "one key, one request"
    places = {(record["p"] * 1_000_000 + record["i"]): record["place"] for record in visible}
    assert dict(named) == places, "what is visible is what was asked"
    assert {record["key"] for record in visible} == {key for key, _, _ in done}


@pytest.mark.campaign
def test_what_fails_is_tried_again_and_what_never_goes_is_a_dead_letter(start: Start, tmp_path: Path) -> None:
    job = asking(start, tmp_path, "--on-error", "dead-letter", fail=7, never=50, slow=90, rate=200)
    job.finish_well()
    bad = {i for i in range(COUNT) if i % 50 == 0 or i % 90 == 0}
    assert sorted((r["p"], r["i"]) for r in rows(tmp_path)) == [(p, i) for p, i in everything() if i not in bad]
    letters = job.letters()
    assert sorted((each["record"]["p"], each["record"]["i"]) for each in letters) == [
        (p, i) for p, i in everything() if i in bad
    ]
    for each in letters:
        assert each["operator"] == "rate"
        never, late = "CallFailed: ValueError: never" in each["error"], "no answer within 1 s" in each["error"]
        assert never or late, each  # the last try of any may have been late, on a machine that is busy enough
        assert late or each["record"]["i"] % 50 == 0, each
    assert any("ValueError: never" in each["error"] for each in letters)


@pytest.mark.campaign
def test_what_never_goes_stops_the_job_otherwise(start: Start, tmp_path: Path) -> None:
    status, said = asking(start, tmp_path, never=40).finish()
    line = one_line(said)
    assert status == 1 and "operator 'rate'" in line and "ValueError: never" in line


@pytest.mark.campaign
def test_requests_move_with_a_change_of_the_job(start: Start, tmp_path: Path) -> None:
    job = asking(start, tmp_path, count=100_000)
    job.until_warm(records=200)
    stop(job)
    done = further(tmp_path)
    job.start("--resume", *sets(sources=2, parallelism=2, count=done, rate=2000))
    job.finish_well()
    assert sorted((record["p"], record["i"]) for record in rows(tmp_path)) == everything(done)
    assert sorted(divmod(record, 1_000_000) for _, record, _ in effects(tmp_path)) == everything(done)


@pytest.mark.campaign
def test_requests_stay_when_an_operator_gives_their_task_another_name(start: Start, tmp_path: Path) -> None:
    """Requests that wait at the savepoint are made again with their keys; new ones have keys of their own."""
    gate = tmp_path / "gate"
    job = asking(start, tmp_path, count=100_000, gate=gate)
    job.until_warm(records=200)
    job.replace("after/0")
    stop(job)
    before, done = len(rows(tmp_path)), further(tmp_path)
    job.start("--resume", *sets(later=1, count=done, rate=2000))
    job.until("it asks", lambda view: len(rows(tmp_path)) > before)
    job.replace("later/0")
    gate.touch()
    job.finish_well()
    visible = rows(tmp_path)
    assert sorted((record["p"], record["i"]) for record in visible) == everything(done)
    assert sum("later" not in record for record in visible) == before
    done_outside = effects(tmp_path)
    assert sorted(divmod(record, 1_000_000) for _, record, _ in done_outside) == everything(done)
    keys = {record: key for key, record, _ in done_outside}
    assert all(record["key"] == keys[record["p"] * 1_000_000 + record["i"]] for record in visible)
    assert sorted(path.stem for path in (job.state / "requests").glob("[!.]*.journal")) == ["after-0", "later-0"]


@pytest.mark.campaign
def test_a_copy_that_keeps_the_sinks_asks_what_was_not_asked(start: Start, tmp_path: Path) -> None:
    """The store of requests stays with the job that wrote it; the new run has keys of its own, what waits keeps its."""
    job = asking(start, tmp_path, count=100_000)
    job.until_warm(records=200)
    copy = tmp_path / "copy"
    stop(job, "--to", str(copy))
    done = further(tmp_path)
    values = {"out": tmp_path / "rows.db", "world": tmp_path / "world", "count": done, "rate": 2000}
    where = ["--state-dir", str(tmp_path / "other"), "--from", str(copy), "--keep-sinks"]
    status, said = causal(tmp_path, "run", str(PIPELINES / "asking.py"), *sets(**values), *where)
    assert status == 0, said
    assert sorted((record["p"], record["i"]) for record in rows(tmp_path)) == everything(done)
    assert sorted(divmod(record, 1_000_000) for _, record, _ in effects(tmp_path)) == everything(done)
