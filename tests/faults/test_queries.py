"""`causal state` of a job whose tasks are killed: its answer is of one moment, and right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill
from benchmarks.harness.runs import sets
from benchmarks.harness.written import lines_in
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job, causal, ended_of, wait_for
from tests.members import campaign

COUNT, RATE, KEYS = 1000, 300, 5


def state(job: Job, operator: str, key: str, *more: str) -> tuple[int, Any, str]:
    """Exit status, the JSON that was printed, and what was said on standard error."""
    ended = ended_of(job.directory, "state", str(job.state), operator, key, "--json", *more)
    return ended.returncode, json.loads(ended.stdout or "null"), ended.stderr.strip()


def kept_state(job: Job, key: int, *more: str) -> dict[str, Any]:
    """Return what the one task that owns the key says."""
    status, answer, said = state(job, "keep", f'"k{key}"', *more)
    assert status == 0, said
    [task] = answer["tasks"]
    task["state"].pop("lately", None)
    assert answer["key"] == f"k{key}" and task["task"] in ("keep/0", "keep/1", "keep/2")
    return dict(task)


def keys_of(job: Job, *options: str) -> list[str]:
    """Return the keys of `keep` that are listed."""
    ended = ended_of(job.directory, "state", str(job.state), "keep", "--json", *options)
    assert ended.returncode == 0, ended.stderr
    listed = json.loads(ended.stdout)
    assert listed["complete"] and listed["count"] == len(listed["keys"]) and listed["epoch"] > 0
    return list(listed["keys"])


def model(key: int, count: int) -> dict[str, Any]:
    """Return the state after the first `count` elements of that key."""
    numbers = list(range(key, count * KEYS, KEYS))
    digits = {str(digit): sum(n % 10 == digit for n in numbers) for digit in dict.fromkeys(n % 10 for n in numbers)}
    return {
        "state": {"last": numbers[-1]},
        "numbers": numbers,
        "recent": numbers,
        "total": {"n": count, "sum": sum(numbers)},
        "by_digit": digits,
        "most": numbers[-1],
    }


def assert_of_one_moment(answer: dict[str, Any], key: int) -> int:
    """Assert that all states of the key have seen the same elements, and return how many."""
    if not answer["state"]:
        return 0
    count = len(answer["state"]["numbers"])
    assert answer["state"] == model(key, count)
    assert list(answer["state"]["by_digit"]) == list(model(key, count)["by_digit"]), "entries are in their order"
    return count


ON_DISK = {"state": "disk", "state_memory_bytes_max": 65536}


@pytest.fixture(params=[campaign({}, id="memory"), pytest.param(ON_DISK, id="disk")])
def job(request: pytest.FixtureRequest, start: Start, tmp_path: Path) -> Job:
    settings = sets(count=COUNT, rate=RATE, gate=tmp_path / "gate", out=tmp_path / "rows")
    return start(PIPELINES / "kept.py", *settings, "--checkpoint-interval", "0.3", config=request.param)


def test_queries_while_tasks_die_and_afterwards(job: Job, tmp_path: Path) -> None:
    job.until_warm(records=100)
    for task in ("keep/0", "numbers/0", "keep/1"):
        dying = job.pid_of(task)
        kill(dying)
        for key in (0, 1):
            assert_of_one_moment(kept_state(job, key), key)
        job.until_replaced(dying)
        live = kept_state(job, 1, "--live")
        assert assert_of_one_moment(live, 1) > 0 and live["incarnation"] >= 1
    for operator, asked, line in [
        ("kep", '"k0"', "operator 'kep' does not exist; the operators are keep"),
        ("keep", '{"a": 1}', "the value of an object must be a string, after one of bytes, decimal, datetime, float"),
    ]:
        status, printed, said = state(job, operator, asked)
        assert (status, printed) == (2, None)
        assert line in said and "\n" not in said
    assert state(job, "keep", '"absent"')[1]["tasks"][0]["state"] == {}
    assert state(job, "keep", '["k0", 1]', "--live")[1]["tasks"][0]["state"] == {}
    job.until_written(COUNT - 1)  # the last one waits for the gate, so nothing changes any more
    for key in (0, KEYS - 1):
        whole = model(key, COUNT // KEYS - (key == KEYS - 1))
        assert kept_state(job, key, "--live")["state"] == whole

        def holds_all(key: int = key, whole: Any = whole) -> bool:
            return bool(kept_state(job, key)["state"] == whole)

        wait_for("a checkpoint holds all of it", holds_all)
    (tmp_path / "gate").touch()
    report = job.finish_well()
    assert len(report["recoveries"]) >= 3
    assert report["counts"]["keep"]["expired"] > COUNT // 2, "most came to the end of their time to live"
    assert_exact(tmp_path)
    assert_of_one_moment(kept_state(job, 0), 0)
    assert keys_of(job) == [f"k{key}" for key in range(KEYS)] == keys_of(job, "--prefix", "k")
    assert keys_of(job, "--prefix", "k3") == ["k3"] and keys_of(job, "--prefix", "x") == []
    status, plain, _ = state(job, "keep", "k0")
    assert status == 0 and plain["key"] == "k0", "a text that is no JSON needs no quotes"
    for options, expected in (
        (["k0", "--prefix", "k"], "use either a prefix or a key"),
        (["--live"], "--live asks for one key"),
    ):
        status, said = causal(tmp_path, "state", str(job.state), "keep", *options)
        assert status == 2 and expected in said
    status, _, said = state(job, "keep", '"k0"', "--live")
    assert status == 2 and "is not running; ask without --live" in said and "\n" not in said


def assert_exact(tmp_path: Path) -> None:
    rows = lines_in(tmp_path / "rows")
    expected = [(i, f"k{i % KEYS}", i // KEYS + 1) for i in range(COUNT)]
    assert sorted((row["i"], row["k"], row["n"]) for row in rows) == expected


@pytest.mark.parametrize("job", [{}], indirect=True)
@pytest.mark.campaign
def test_a_class_may_grow_while_the_job_is_down_and_nothing_is_guessed(job: Job, tmp_path: Path) -> None:
    job.until_warm(records=300, checkpoints=3)
    job.kill_everything()
    status, said = job.start("--resume", "--code", "new", "--set", "form=wrong").finish()
    assert status in (1, 2) and "\n" not in said
    assert "state 'total' of operator 'keep': field 'n' was int and is now str; add a new field and convert" in said
    job.start("--resume", "--code", "new", "--set", "form=later").until_written(COUNT - 1)
    whole = model(0, COUNT // KEYS)
    whole["total"] = {"added": 7, "sum": whole["total"]["sum"], "n": whole["total"]["n"]}
    assert kept_state(job, 0, "--live")["state"] == whole
    (tmp_path / "gate").touch()
    job.finish_well()
    assert_exact(tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("job", [ON_DISK], indirect=True)
def test_every_kind_of_state_moves_to_other_tasks(job: Job, tmp_path: Path) -> None:
    job.until_warm(records=300, checkpoints=3)
    assert causal(tmp_path, "savepoint", "--stop", "--state-dir", str(job.state)) == (0, "")
    assert job.finish()[0] == 0
    job.start("--resume", "--set", "tasks=3").until_written(COUNT - 1)
    kill(job.pid_of("keep/2"))
    owners = [kept_state(job, key, "--live") for key in (0, 1, 2)]
    assert [owner["state"] for owner in owners] == [model(key, COUNT // KEYS) for key in (0, 1, 2)]
    (tmp_path / "gate").touch()
    job.finish_well()
    assert_exact(tmp_path)


NUMBERED = """
from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

pipeline = Pipeline("numbered")
numbers = pipeline.source("in", GeneratedSource(lambda p, i: {"k": i % 10}, count=None, rate=500))
numbers.key_by(lambda r: r["k"]).count("n").key_by(lambda r: str(r[0])).count("m").sink("out", JsonLinesSink("out"))
"""


@pytest.mark.campaign
def test_a_key_that_is_not_there_is_said_and_the_one_that_is_meant(start: Start, tmp_path: Path) -> None:
    (tmp_path / "numbered.py").write_text(NUMBERED)
    job = start(tmp_path / "numbered.py", "--checkpoint-interval", "0.2")
    job.until_warm(records=100)
    missing = "causal: operator {!r} has no state for the key {}"
    meant = missing + "; it has state for the key {}"
    for more in ((), ("--live",)):
        assert state(job, "n", "5", *more)[2] == state(job, "m", '"5"', *more)[2] == ""
        assert state(job, "n", '"5"', *more)[2] == meant.format("n", '"5"', 5)
        assert state(job, "m", "5", *more)[2] == meant.format("m", 5, '"5"')
        status, answer, said = state(job, "n", "99", *more)
        assert status == 0 and said == missing.format("n", 99) and not any(task["state"] for task in answer["tasks"])
        assert state(job, "n", '"none"', *more)[2] == missing.format("n", '"none"')
    job.interrupt()
    assert job.finish()[0] == 130
