"""The shared store over a directory and over a real S3 server: one winner per name, and failures that say so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from causal.errors import CorruptData, PipelineError, Unavailable
from causal.storage.shared import Depot, insist

pytest.importorskip("obstore", reason="the client of the shared store (extra `hosts`) is not installed")


def test_an_object_is_created_once_and_read_by_another_client(url: str) -> None:
    depot = Depot(url, "job/run")
    assert depot.create("checkpoints/count/0/e1.snap", b"one")
    assert not depot.create("checkpoints/count/0/e1.snap", b"two")
    other = Depot(url, "job/run")
    assert other.read("checkpoints/count/0/e1.snap") == b"one"
    assert other.names("checkpoints") == ["checkpoints/count/0/e1.snap"]
    assert Depot(url, "job/other-run").names("checkpoints") == []


def test_the_same_content_again_is_no_error_and_other_content_is(url: str) -> None:
    depot = Depot(url, "job/run")
    depot.create_own("a", b"one")
    depot.create_own("a", b"one")
    with pytest.raises(CorruptData, match="exists with different content"):
        depot.create_own("a", b"two")


def test_of_many_writers_one_wins_and_the_others_know_it(url: str) -> None:
    def write(attempt: tuple[int, int]) -> bool:
        race, writer = attempt
        return Depot(url, "j").create(f"r{race}", b"%d" % writer)

    for race in range(5):
        with ThreadPoolExecutor(8) as writers:
            outcomes = list(writers.map(write, [(race, writer) for writer in range(8)]))
        assert outcomes.count(True) == 1
        assert Depot(url, "j").read(f"r{race}") == b"%d" % outcomes.index(True)


def test_what_is_missing_is_said_and_what_was_removed_can_be_removed_again(url: str) -> None:
    depot = Depot(url, "job/run")
    with pytest.raises(CorruptData, match="is missing"):
        depot.read("nothing")
    depot.create("a", b"")
    depot.remove(["a", "a", "never-was"])
    assert depot.names("") == []


def test_the_size_of_an_object_is_checked_before_it_is_created_and_before_it_is_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Depot(url, "job/run").create("large", b"12345")
    depot = Depot(url, "job/run")
    monkeypatch.setattr("causal.storage.shared.OBJECT_BYTES_MAX", 4)
    with pytest.raises(PipelineError, match="has 6 bytes, but at most 4 can be read back"):
        depot.create("larger", b"123456")
    assert depot.names("") == ["large"]
    depot.create("small", b"1234")
    assert depot.read("small") == b"1234"
    with pytest.raises(CorruptData, match="large has 5 bytes, but at most 4 are read"):
        depot.read("large")

    class Answer:
        """The answer of a store, without a body that could be read."""

        meta = {"size": 5}

    monkeypatch.setattr(depot, "_api", SimpleNamespace(get=lambda *_: Answer(), exceptions=depot._api.exceptions))
    with pytest.raises(CorruptData, match="large has 5 bytes, but at most 4 are read"):
        depot.read("large")


def test_a_store_that_does_not_answer_is_unavailable_and_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    depot = Depot("s3://nowhere/prefix", "job", retry_s=1)
    with pytest.raises(Unavailable, match="s3://nowhere/prefix"):
        depot.create("a", b"one")
    reports: list[str] = []
    left = [2]

    def wanted() -> bool:
        return len(reports) < 2 and left[0] > 0

    assert insist(lambda: depot.read("a"), reports.append, wanted) is None
    assert len(reports) == 2 and all("cannot be read" in each for each in reports)


@pytest.mark.parametrize("wrong", ["ftp://x/y", "file://host/x", "s3:///x", "/tmp/x", "file:///proc/nothing/here"])
def test_a_url_of_no_store_is_refused_in_one_line(wrong: str) -> None:
    with pytest.raises(PipelineError, match="store") as refusal:
        Depot(wrong, "job")
    assert "\n" not in str(refusal.value)


def test_a_directory_that_is_not_the_one_of_the_job_is_unavailable_until_it_is_back(tmp_path: Path) -> None:
    root, kept = tmp_path / "store", tmp_path / "kept"
    url = root.as_uri()
    first = Depot(url, "job/run")
    first.create("a", b"one")
    later = Depot(url, "job/run", proof="")
    assert later.read("a") == b"one"
    root.rename(kept)
    for mounted in (False, True):
        if mounted:
            root.mkdir()  # the empty directory below a mount
        for depot in (first, later, Depot(url, "job/run", proof="")):
            attempts: list[Callable[[], object]] = [depot.folders, partial(depot.names, ""), partial(depot.read, "a")]
            for attempt in attempts:
                with pytest.raises(
                    Unavailable, match="was moved, replaced or deleted while the job was running; put it back"
                ):
                    attempt()
            with pytest.raises(Unavailable, match="put it back"):
                depot.create("b", b"two")
            depot.remove(["a"])
        assert root.exists() == mounted and not (mounted and list(root.iterdir()))
    root.rmdir()
    shutil.copytree(kept, root)  # mounted again, it may have another device and inode
    assert later.create("b", b"two") and later.names("") == ["a", "b"]
    with pytest.raises(Unavailable):
        first.read("a")
    shutil.rmtree(root)
    kept.rename(root)
    assert first.read("a") == b"one" and first.names("") == ["a"]
