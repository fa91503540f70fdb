"""Changes of a running job: exact rows, refused without effect, and a job that is as sound as before (0040)."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.processes import kill, workers
from causal.errors import PipelineError
from deploy import cli
from deploy.changes import next_version
from deploy.jobs import jobdirectory
from deploy.jobs.jobdirectory import JobDirectory
from deploy.savepoints import rolling_back
from standby.storage.change_files import ROLLBACK, WITHDRAWAL_LOCK
from tests.faults.changing import LEDGER, Changing, text_of
from tests.faults.conftest import Start
from tests.faults.job import causal, causal_output, environment, wait_for
from tests.faults.roots import ROOTS
from tests.faults.test_bad_input import one_line
from tests.members import campaign


def savepoints(changing: Changing) -> list[dict[str, Any]]:
    words = ("savepoint", "--list", "--json", "--state-dir", str(changing.job.state))
    listed: list[dict[str, Any]] = json.loads(causal_output(changing.directory, *words))
    return listed


def counting(changing: Changing) -> list[str]:
    """Return the tasks of the counting operator."""
    view = changing.job.until("a view is there", lambda view: view)
    return [task["task"] for task in view["tasks"] if task["task"].startswith("count/")]


def until_counting(changing: Changing, tasks: int) -> None:
    names = [f"count/{index}" for index in range(tasks)]

    def runs(view: dict[str, Any]) -> bool:
        states = {task["task"]: task["state"] for task in view["tasks"] if task["task"].startswith("count/")}
        return list(states) == names and set(states.values()) == {"running"}

    changing.job.until(f"{tasks} tasks count", runs)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="causal"),
        campaign(["--sharing-depth", "1"], id="depth 1"),
        campaign(["--standbys", "per-task"], id="own standbys"),
        campaign(["--standbys", "hot"], id="hot"),
        campaign(["--processes", "stages"], id="cells"),
        campaign(["--determinant-flush", "background"], id="flushed"),
    ],
)
def test_a_running_job_gets_other_numbers_of_tasks_with_kills(start: Start, tmp_path: Path, options: list[str]) -> None:
    changing = Changing(start, tmp_path, *options)
    changing.job.until_warm(records=200)
    for tasks in (4, 1, 3):
        assert f"count has {tasks} task" in changing.changed("rescale", f"count={tasks}")
        changing.until_more()
        assert {row["task"] for row in changing.last()} <= {f"count/{index}" for index in range(tasks)}
        if "--processes" not in options:
            until_counting(changing, tasks)
            changing.job.replace(f"count/{tasks - 1}")
            changing.job.until_warm()
    assert len({row["task"] for row in changing.rows()}) == 4
    changing.finish()


def test_a_running_job_gets_other_code_and_is_rolled_back_after_a_total_failure(start: Start, tmp_path: Path) -> None:
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=200)
    assert "`causal rollback` reverts it" in changing.upgraded(2)
    changing.until_more()
    assert changing.versions() == [1, 2]
    changing.job.kill_everything()
    changing.job.start("--resume")
    changing.until_more()
    changing.job.replace("count/1", "out/0")
    changing.until_more()
    assert changing.versions() == [1, 2], "it is still the next version"
    [kept] = savepoints(changing)
    assert sum(kept["withdraws"].values()) > 0
    assert f"rolled back to savepoint {kept['name']}" in changing.changed("rollback")
    changing.until_more()
    assert changing.versions() == [1]
    changing.job.replace("count/0")
    changing.job.kill_everything()
    changing.path.write_text(LEDGER)
    changing.job.start("--resume")
    changing.until_more()
    changing.finish()
    assert changing.versions() == [1]


@pytest.mark.campaign
def test_savepoints_of_changes_are_those_of_a_job_that_stops(start: Start, tmp_path: Path) -> None:
    """A job that has stopped after two upgrades is rolled back to the first of them, and then upgraded again."""
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=200)
    changing.upgraded(2)
    changing.until_more()
    changing.upgraded(3)
    changing.until_more()
    first, second = savepoints(changing)
    assert first["code"] != second["code"] and first["rows"] < second["rows"]
    causal_output(tmp_path, "savepoint", "--stop", "--state-dir", str(changing.job.state))
    changing.job.finish_well()
    changing.job.start("--resume", "--rollback", first["name"])
    changing.until_more()
    assert changing.versions() == [1]
    changing.upgraded(4)
    changing.until_more()
    assert changing.versions() == [1, 4]
    assert "do not continue from savepoint" in changing.refused("rollback", second["name"])
    changing.finish()


@pytest.mark.campaign
def test_an_operator_is_added_and_left_behind(start: Start, tmp_path: Path) -> None:
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=200)
    changing.changed("upgrade", str(changing.path), "--set", "alone=yes")
    changing.until_more()
    assert "--allow-dropped-state" in changing.refused("upgrade", str(changing.path), "--set", "alone=")
    changing.changed("upgrade", str(changing.path), "--set", "alone=", "--allow-dropped-state")
    changing.until_more()
    changing.job.kill_everything()
    changing.job.start("--resume", "--set", "alone=")
    changing.until_more()
    changing.finish()


def test_a_running_job_with_requests_is_rolled_back(start: Start, tmp_path: Path) -> None:
    """Requests stay in their store, so they continue from other places than those of the savepoint."""
    changing = Changing(start, tmp_path, "--set", "asks=yes", "--processes", "stages")
    changing.job.until_warm(records=200)
    for _ in range(2):
        changing.changed("rescale", "count=3")
        changing.until_more()
        changing.changed("rollback")
        changing.until_more()
    changing.finish()


REFUSED = [
    (("rescale", "alone=3"), "keeps state per task"),
    (("rescale", "coun=3"), "has no operator 'coun'; did you mean 'count'?"),
    (("rescale", "nothing_alike=3"), "its operators are"),
    (("rescale", "count=0"), "whole number from 1"),
    (("rescale", "count=129"), "128"),
    (("rescale", "count=many"), "whole number"),
    (("rescale", "count"), "causal: count: use OPERATOR=N"),
    (("rollback",), "needs the name of a savepoint"),
    (("rollback", "9-nothing"), "9-nothing"),
    (("upgrade", "ledger.py", "--set", "unheard=1"), "unheard"),
    (("upgrade", "absent.py"), "absent.py"),
    (("upgrade", "renamed.py"), "--allow-dropped-state"),
    (("upgrade", "repartitioned.py"), "partitions of source 'numbers'"),
    (("upgrade", "broken.py"), "broken.py"),
    (("upgrade", "other.py"), "defines the pipeline 'other', but the job in"),
    (("upgrade", "ledger.py", "--config", "heartbeat.toml"), "heartbeat_ms cannot change"),
    (("upgrade", "ledger.py", "--config", "guarantee.toml"), "guarantee"),
    (("upgrade", "ledger.py", "--config", "groups.toml"), "key_groups"),
]
"""Commands that are refused, and a part of the line that states the reason."""


def test_what_is_refused_has_no_effect(start: Start, tmp_path: Path) -> None:
    changing = Changing(start, tmp_path, "--set", "alone=yes")
    changing.job.until_warm(records=200)
    (tmp_path / "renamed.py").write_text(LEDGER.replace('"count"', '"tally"'))
    (tmp_path / "repartitioned.py").write_text(
        LEDGER.replace("ELEMENTS, 2,", "20000, 3,").replace("20000, 2,", "20000, 3,")
    )
    (tmp_path / "broken.py").write_text(text_of(2) + "\nraise ValueError('a mistake')\n")
    (tmp_path / "other.py").write_text(text_of(2).replace('Pipeline("ledger")', 'Pipeline("other")'))
    (tmp_path / "heartbeat.toml").write_text("heartbeat_ms = 77\n")
    (tmp_path / "guarantee.toml").write_text('guarantee = "epoch"\n')
    (tmp_path / "groups.toml").write_text("key_groups = 64\n")
    before = workers(changing.job.state)
    pids = {task: changing.job.pid_of(task) for task in ("count/0", "count/1", "out/0")}
    for words, part in REFUSED:
        assert part in changing.refused(*words), words
    assert not (changing.job.state / "change").exists() and not (changing.job.state / "next").exists()
    assert not savepoints(changing)
    assert {task: changing.job.pid_of(task) for task in pids} == pids, "no task has begun again"
    wait_for("the same processes are left", lambda: workers(changing.job.state) == before)
    assert changing.versions() == [1]
    changing.finish()


def test_a_second_change_during_the_first_is_refused(start: Start, tmp_path: Path) -> None:
    """The first is held while its processes start; it continues, unless its lease has ended meanwhile."""
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=200)
    words = ("rescale", "count=4", "--state-dir", str(changing.job.state))
    known = set(workers(changing.job.state))
    first = ROOTS.start(words, tmp_path, environment())
    wait_for("the next version starts", lambda: len(set(workers(changing.job.state)) - known) >= 3)
    first.send_signal(signal.SIGSTOP)
    said = changing.refused("rescale", "count=3")
    first.send_signal(signal.SIGCONT)
    assert "another change of this job is under way" in said, said
    out, err = first.communicate(120.0)
    assert first.returncode in (0, 2), err
    changing.until_more()
    until_counting(changing, 4 if first.returncode == 0 else 2)
    changing.finish()


@pytest.mark.campaign
@pytest.mark.parametrize("guarantee", ["epoch", "at-least-once", "none"])
def test_other_guarantees_are_refused(start: Start, tmp_path: Path, guarantee: str) -> None:
    changing = Changing(start, tmp_path, "--guarantee", guarantee)
    changing.job.until_warm(records=50, checkpoints=0 if guarantee == "none" else 1)
    for words in (("rescale", "count=3"), ("upgrade", "ledger.py")):
        assert "guarantee" in changing.refused(*words)
    changing.let_end()
    changing.job.finish_well()
    changing.check()


def test_a_job_that_does_not_run_is_not_changed(start: Start, tmp_path: Path) -> None:
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=50)
    changing.finish()
    for words in (("rescale", "count=3"), ("upgrade", "ledger.py"), ("rollback",)):
        assert "is not running" in changing.refused(*words)
    status, said = causal(tmp_path, "rescale", "count=3", "--job", "nothing")
    assert status == 2 and "nothing" in one_line(said)


@pytest.mark.campaign
def test_code_that_fails_at_its_first_records_is_rolled_back_at_a_resume(start: Start, tmp_path: Path) -> None:
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=200)
    failing = text_of(2).replace("        yield {", "        assert record['i'] % 50, 'a mistake'\n        yield {")
    changing.path.write_text(failing)
    changing.changed("upgrade", str(changing.path))
    status, said = changing.job.finish()
    assert status == 1 and "a mistake" in said
    changing.job.start("--resume", "--rollback")
    changing.until_more()
    changing.job.kill_everything()
    changing.path.write_text(LEDGER)
    changing.job.start("--resume")
    changing.until_more()
    changing.finish()
    assert changing.versions() == [1]


@pytest.mark.campaign
def test_a_version_whose_processes_cannot_start_leaves_the_job_as_it_was(start: Start, tmp_path: Path) -> None:
    changing = Changing(start, tmp_path)
    changing.job.until_warm(records=200)
    alone = (
        "import sys\nif not any(name.startswith('deploy.changes') for name in sys.modules):\n    sys.exit('alone')\n"
    )
    changing.path.write_text(alone + text_of(2))
    pid = changing.job.pid_of("count/0")
    assert "is not changed" in changing.refused("upgrade", str(changing.path))
    changing.until_more()
    assert changing.job.pid_of("count/0") == pid and changing.versions() == [1]
    changing.upgraded(3)
    changing.until_more()
    changing.finish()
    assert changing.versions() == [1, 3]


@pytest.mark.campaign
def test_changes_follow_each_other_with_kills_in_between(start: Start, tmp_path: Path) -> None:
    """Incarnations and epochs rise by a thousand at each change; no name is used twice."""
    changing = Changing(start, tmp_path, "--set", "rate=150")
    changing.job.until_warm(records=100)
    for version in range(2, 8):
        changing.upgraded(version)
        changing.until_more(60)
        changing.changed("rescale", f"count={1 + version % 3}")
        changing.until_more(60)
        if version % 2:
            for _ in range(2):
                changing.changed("rollback")
                changing.until_more(60)
        until_counting(changing, len(counting(changing)))
        kill(changing.job.pid_of("count/0"))
    names = [each["name"] for each in savepoints(changing)]
    assert len(set(names)) == len(names)
    changing.finish()
    assert changing.versions() == list(range(1, 8))


def test_a_job_is_not_resumed_while_a_command_that_was_suspended_withdraws_rows(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intent would otherwise reach a version that continues, and no later resumption would be accepted."""
    changing = Changing(start, tmp_path)
    job = changing.job
    job.until_warm(records=150)
    changing.upgraded(2)
    changing.until_more()
    note, resumptions = rolling_back._note, []

    def suspended(*arguments: Any) -> None:
        job.kill_everything()
        directory = JobDirectory(job.state)
        try:
            with pytest.raises(PipelineError, match=rf"{WITHDRAWAL_LOCK} is in use by a process of the previous job"):
                directory.take_over()
            resumptions.append(directory)
        finally:
            directory.close()
        note(*arguments)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobdirectory, "RELEASE_S", 0.0)
    monkeypatch.setattr(next_version, "ANSWER_S", 2.0)
    monkeypatch.setattr(rolling_back, "_note", suspended)
    assert cli.main(["rollback", "--state-dir", str(job.state)]) != 0
    assert len(resumptions) == 1 and (job.state / ROLLBACK).exists()
    status, said = job.start("--resume", "--code", "kept").finish()
    assert status == 2 and "was interrupted while it withdrew rows; complete it" in one_line(said)
    job.start("--resume", "--rollback")
    changing.until_more()
    changing.finish()
    assert changing.versions() == [1]
