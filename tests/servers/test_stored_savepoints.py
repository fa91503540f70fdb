"""Savepoints at a URL: complete or refused, and what a job begins with that has other tasks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.harness.runs import sets
from causal.errors import CorruptData, PipelineError, Unavailable
from causal.storage.shared import Depot
from deploy.savepoints import stored_savepoints
from deploy.savepoints.savepoint_store import FILE, Savepoint
from deploy.savepoints.stored_savepoints import as_directory, check_room, put
from standby.storage.manifest_files import newest_manifest
from standby.storage.manifests import write_manifest
from tests.faults.conftest import POOL, Start
from tests.faults.job import HOME, PIPELINES, WAIT_S
from tests.faults.roots import ROOTS
from tests.faults.test_savepoints import changing, check_copy, further, rows
from tests.members import members

SNAPSHOT = "checkpoints/count/0/e00000003-i1.snap"
FILES = {"count/0": ((SNAPSHOT, 4, "00"),)}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The directory of a savepoint."""
    where = tmp_path / "saved"
    (where / SNAPSHOT).parent.mkdir(parents=True)
    (where / SNAPSHOT).write_bytes(b"kept")
    for name in ("job.json", "topology.json"):
        (where / name).write_text("{}")
    Savepoint("3-abcdef", where, 3, 2, {"out/0": (7, 9)}, 1.0).save()
    write_manifest(where, 3, FILES, sync=False)
    return where


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a fork of the process that starts jobs: this one has a client of the store."""
    process = ROOTS.start(arguments, HOME, {**os.environ, "PYTHONPATH": str(HOME)})
    try:
        stdout, stderr = process.communicate(WAIT_S)
    finally:
        process.kill()
    return subprocess.CompletedProcess(arguments, process.wait(), stdout, stderr)


def content(where: Path) -> dict[str, bytes]:
    return {path.relative_to(where).as_posix(): path.read_bytes() for path in where.rglob("*") if path.is_file()}


def test_what_is_put_there_is_found_there(saved: Path, url: str) -> None:
    place = f"{url}/saved"
    check_room(place)
    put(saved, place)
    with as_directory(place) as directory:
        assert directory is not None
        assert content(Path(directory)) == content(saved)
    assert not Path(directory).exists(), "the copy goes away"
    with pytest.raises(PipelineError, match="is not empty; use another URL"):
        check_room(place)


def test_a_writer_that_ends_at_any_object_leaves_nothing_that_counts(
    saved: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Depot.create
    for left in range(len(content(saved))):
        place, budget = f"{url}/saved-{left}", left

        def limited(self: Depot, name: str, data: bytes) -> bool:
            nonlocal budget
            budget -= 1
            if budget < 0:
                raise Unavailable("the store is unavailable")
            return create(self, name, data)

        with monkeypatch.context() as patch:
            patch.setattr(Depot, "create", limited)
            with pytest.raises(Unavailable):
                put(saved, place)
        refusal = "its manifest is missing; create another" if left else "does not contain a savepoint; create another"
        with pytest.raises(PipelineError, match=refusal):
            _read(place)


@pytest.mark.parametrize("name", [SNAPSHOT, FILE, "job.json"])
def test_a_savepoint_that_lacks_an_object_is_refused_with_its_name(saved: Path, url: str, name: str) -> None:
    put(saved, f"{url}/saved")
    Depot(url, "saved").remove([name])
    with pytest.raises(PipelineError, match=f"incomplete savepoint: {name} is missing"):
        _read(f"{url}/saved")


def test_an_object_that_another_has_created_stays(saved: Path, url: str) -> None:
    Depot(url, "saved").create("job.json", b"of another")
    with pytest.raises(CorruptData, match="another job writes to this place"):
        put(saved, f"{url}/saved")
    assert Depot(url, "saved").read("job.json") == b"of another"
    assert not [name for name in Depot(url, "saved").names("checkpoints") if "manifest" in name]


def _read(place: str) -> None:
    with as_directory(place) as directory:
        assert directory is not None
        newest_manifest(Path(directory))


@pytest.mark.parametrize("place", ["ftp://host/name", "s3://bucket", "s3:///name", "file:///", "file://host/name"])
def test_what_is_no_place_in_a_store_is_refused(place: str) -> None:
    with pytest.raises(PipelineError, match="use s3://BUCKET/NAME or file:///DIRECTORY/NAME"):
        check_room(place)
    with pytest.raises(PipelineError, match="use s3://BUCKET/NAME or file:///DIRECTORY/NAME"):
        _read(place)


def test_a_store_that_does_not_answer_is_refused_with_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ENDPOINT": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "x"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    real = Depot.__init__
    monkeypatch.setattr(Depot, "__init__", lambda self, url, prefix: real(self, url, prefix, retry_s=0.2))
    with pytest.raises(PipelineError, match="s3://bucket.*check the URL, the endpoint and the credentials"):
        check_room("s3://bucket/name")
    with pytest.raises(PipelineError, match="s3://bucket.*check the URL, the endpoint and the credentials"):
        _read("s3://bucket/name")


def test_a_place_that_is_no_directory_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="does not contain a savepoint"):
        _read(f"file://{tmp_path}/absent/name")
    assert list(tmp_path.iterdir()) == []
    assert stored_savepoints.is_url("file:///x") and not stored_savepoints.is_url("x/y")


@pytest.mark.parametrize(
    ("url", "stops"),
    members([(store, stops) for store in ("file", "s3") for stops in (False, True)], ("s3", True)),
    indirect=["url"],
)
def test_a_job_begins_with_a_savepoint_of_the_store_as_other_tasks(
    start: Start, tmp_path: Path, url: str, stops: bool
) -> None:
    place = f"{url}/savepoints/first"
    job = changing(start, tmp_path, "--checkpoint-interval", "0.5")
    job.until_warm(records=300)
    state = ("--state-dir", str(job.state))
    if not stops:
        ended = command("savepoint", "--to", place, *state)
        assert ended.returncode == 0 and f"--from {place}" in ended.stdout, ended.stderr
        again = command("savepoint", "--stop", "--to", place, *state)
        assert again.returncode == 2 and "is not empty" in again.stderr
        job.until_warm(records=len(rows(tmp_path)) + 100)
    ended = command("savepoint", "--stop", *(("--to", place) if stops else ()), *state)
    assert ended.returncode == 0 and (f"--from {place}" in ended.stdout) == stops, ended.stderr
    job.finish_well()
    done = further(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    settings = sets(out=other / "rows.db", parallelism=3, sources=1, count=done, rate=100_000)
    arguments = [str(PIPELINES / "changing.py"), "--state-dir", str(other / "job"), *POOL, *settings]
    ended = command("run", *arguments, "--from", place)
    assert ended.returncode == 0, ended.stderr
    check_copy(rows(other), done)
