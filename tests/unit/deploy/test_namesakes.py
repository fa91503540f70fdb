"""A copied pipeline file with the same name of its pipeline neither discards nor finishes the job of the first."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from causal.config import JobConfig
from deploy import cli
from deploy.jobs.lookup import ROOT
from deploy.jobs.namesakes import of_other_file
from standby.storage.journal import Journal
from tests.unit.deploy import tiny

PIPELINE = tiny.text()
COPY = PIPELINE.replace("rows", "other rows")
JOB = ROOT / "tiny"


def journal(**decision: object) -> None:
    """Make the supervisor of the job make one decision."""
    opened = Journal(JOB)
    opened.append([{"at_ns": 0, **decision}])
    opened.close()


@pytest.fixture(autouse=True)
def _a_job_that_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_deploy", lambda *arguments: 0)
    Path("p.py").write_text(PIPELINE)
    Path("copy.py").write_text(COPY)
    assert cli.main(["run", "p.py"]) == 0
    journal(kind="resumed")


def run_of_job() -> str:
    return JobConfig.load(JOB).run


def test_an_unfinished_job_of_another_file_is_not_discarded(capsys: pytest.CaptureFixture[str]) -> None:
    before = run_of_job()
    assert cli.main(["run", "copy.py"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"has an unfinished job of {Path('p.py').absolute()}" in line
    assert "causal run p.py --resume" in line and "--state-dir" in line and f"remove {JOB.absolute()}" in line
    assert run_of_job() == before
    assert cli.main(["run", "p.py", "--resume"]) == 0
    (JOB / "job.json").unlink()
    assert cli.main(["run", "copy.py"]) == 0


def test_a_new_run_of_the_same_file_discards_it_as_ever() -> None:
    before = run_of_job()
    Path("p.py").write_text(COPY)
    assert cli.main(["run", "p.py"]) == 0
    assert run_of_job() > before


@pytest.mark.parametrize("reason", ["", "stopped at savepoint 1"])
def test_a_job_that_loses_nothing_is_discarded_by_any_file(reason: str) -> None:
    before = run_of_job()
    if reason:
        journal(kind="savepoint", epoch=1, final=True)
        journal(kind="checkpoint", epoch=1, files={})
    journal(kind="stopping", status=0, reason=reason)
    assert cli.main(["run", "copy.py"]) == 0
    assert run_of_job() > before


def test_a_job_of_another_file_that_finished_is_not_taken_for_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    journal(kind="stopping", status=0, reason="")
    assert cli.main(["run", "copy.py", "--resume"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"the finished job is {Path('p.py').absolute()};" in line
    assert cli.main(["run", "p.py", "--resume"]) == 0


def moved(home: Path) -> Path:
    (home / "moved").mkdir()
    return (home / "p.py").rename(home / "moved" / "p.py")


def copied(home: Path) -> Path:
    (home / "copied").mkdir()
    return Path(shutil.copy(home / "p.py", home / "copied"))


def edited(file: Path) -> Path:
    file.write_text(COPY)
    return file


def renamed(home: Path) -> Path:
    return (home / "p.py").rename(home / "renamed.py")


def linked(home: Path) -> Path:
    (home / "link.py").symlink_to(home / "p.py")
    return home / "link.py"


CASES: dict[str, tuple[Callable[[Path], Path], bool]] = {
    "the same": (lambda home: home / "p.py", False),
    "edited": (lambda home: edited(home / "p.py"), False),
    "moved": (moved, False),
    "moved and edited": (lambda home: edited(moved(home)), False),
    "renamed": (renamed, False),
    "renamed and edited": (lambda home: edited(renamed(home)), True),
    "with its directory copied": (copied, False),
    "with its directory copied, and edited": (lambda home: edited(copied(home)), True),
    "a link": (linked, False),
    "a copy": (lambda home: Path(shutil.copy(home / "p.py", home / "same.py")), True),
    "an edited copy": (lambda home: home / "copy.py", True),
}


@pytest.mark.parametrize("case", CASES)
def test_what_counts_as_another_file(case: str, tmp_path: Path) -> None:
    change, other = CASES[case]
    assert of_other_file(JOB, JobConfig.load(JOB), change(tmp_path)) is other
