"""A host takes the code of its job only as the job has it, and says what is different where it runs."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from causal.config import JobConfig
from causal.errors import PipelineError, Unavailable
from causal.storage import shared as depot
from causal.storage.shared import Depot
from deploy.jobs import versions
from deploy.jobs.jobdirectory import JobDirectory
from deploy.launching.host_agent import check_versions, fetch_code
from operators.code_archive.archive import Archive, Module, path_of
from tests.unit.deploy import tiny
from tests.unit.operators.scene import config as settings

pytest.importorskip("obstore", reason="obstore is not installed (extra hosts)")

ARCHIVE = Archive((Module("", "/somewhere/p.py", False, b"x = 1\n"),))
BODY = ARCHIVE.packed()


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The directory of a host."""
    (tmp_path / "host").mkdir()
    return tmp_path / "host"


def config_in(store: Path, body: bytes | None = BODY) -> JobConfig:
    """Return the settings of a job with a store that has these bytes as its code."""
    config = settings(code=ARCHIVE.digest, store=f"file://{store}/store")
    if body is not None:
        Depot(config.store, config.place_in_store).create_own(f"code/{config.code}.zip", body)
    return config


def left(host: Path) -> list[str]:
    return sorted(path.name for path in (host / "code").glob("*"))


def test_the_code_comes_from_the_store_once(host: Path) -> None:
    config = config_in(host.parent)
    assert fetch_code(host, config) == ARCHIVE
    assert path_of(host, config.code).read_bytes() == BODY
    assert fetch_code(host, replace(config, store="file:///nowhere/else")) == ARCHIVE
    assert left(host) == [f"{config.code}.zip"]


@pytest.mark.parametrize("body", [BODY[:-1], b"", BODY.replace(b"x = 1", b"x = 2")])
def test_a_damaged_object_is_refused_and_nothing_is_kept(host: Path, body: bytes) -> None:
    config = config_in(host.parent, body)
    with pytest.raises(PipelineError) as refused:
        fetch_code(host, config)
    assert f"code/{config.code}.zip, the code of the run, is damaged" in str(refused.value)
    assert "restore it from a copy, or start the job again from its pipeline file" in str(refused.value)
    assert left(host) == []


def test_a_torn_file_of_an_earlier_life_is_fetched_again(host: Path) -> None:
    config = config_in(host.parent)
    path_of(host, config.code).parent.mkdir()
    path_of(host, config.code).write_bytes(BODY[:100])
    assert fetch_code(host, config) == ARCHIVE
    assert path_of(host, config.code).read_bytes() == BODY


def test_an_object_that_is_gone_is_refused(host: Path) -> None:
    config = config_in(host.parent, None)
    Depot(config.store, config.place_in_store).create_own("code/other.zip", b"")
    with pytest.raises(PipelineError, match="is missing; restore it from a copy, or start the job again"):
        fetch_code(host, config)


def test_a_store_that_is_another_directory_here_is_refused(host: Path) -> None:
    with pytest.raises(PipelineError, match="has no files of job .* mount the directory that the supervisor uses"):
        fetch_code(host, config_in(host.parent, None))


def test_a_store_that_does_not_answer_is_said_once_and_so_is_its_return(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, attempts, names = config_in(host.parent), 0, Depot.names

    def listed(self: Depot, folder: str) -> list[str]:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise Unavailable(f"attempt {attempts} failed")
        return names(self, folder)

    monkeypatch.setattr(Depot, "names", listed)
    monkeypatch.setattr(depot, "RETRY_S_MAX", 0.0)
    assert fetch_code(host, config) == ARCHIVE
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(
        "causal: attempt 1 failed; waiting for the store; if this lasts, check the URL and the credentials"
    )
    assert second == "causal: the store answers again"


def test_a_job_without_code_has_none_to_fetch(host: Path) -> None:
    assert fetch_code(host, settings()) is None


def test_another_minor_version_of_python_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"^b: the job's code needs Python 3.1.4, .* with Python 3.1$"):
        check_versions("b", replace(ARCHIVE, python="3.1.4"))


def test_other_versions_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    own = platform.python_version()
    older = f"{own.rpartition('.')[0]}.0-rc"
    check_versions("b", replace(ARCHIVE, outside={"msgpack": "0.1"}, python=older))
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"causal: b: Python was {older} and is {own} here"
    assert second.startswith("causal: b: msgpack was 0.1 and is ") and second.endswith(" here")
    check_versions("b", ARCHIVE)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("stopped", "taken"), [(True, platform.python_version()), (False, "3.1.4")])
def test_a_stopped_job_that_resumes_with_another_python_has_code_of_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool, taken: str
) -> None:
    path = tmp_path / "p.py"
    path.write_text(tiny.text())
    kept = replace(versions.first(path, {}).archive, python="3.1.4")
    directory = JobDirectory(tmp_path / "job")
    try:
        before = settings(code=kept.save(directory.path, False))
        monkeypatch.setattr(JobDirectory, "stopped", lambda self: stopped)
        version = versions.next_of(directory, before, before, path, None)
    finally:
        directory.close()
    assert (version.archive.python, version.changed) == (taken, ())
