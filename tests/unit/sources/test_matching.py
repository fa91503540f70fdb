"""Patterns stand for what `glob` says, but for each file once, and leave out nothing that must not be looked at."""

from __future__ import annotations

import errno
import glob
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from causal.errors import Unavailable
from causal.storage.directory import Directory
from operators.sources import FilesSource
from operators.sources.files.listing import FileJournal
from operators.sources.files.local_files import LocalFiles
from operators.sources.files.matching import matches


def names(directory: Path, *patterns: str) -> list[str]:
    """Return the files that the patterns stand for, from the directory on."""
    return [os.path.relpath(match.path, directory) for match in matches([str(directory / each) for each in patterns])]


def make(directory: Path, *files: str) -> None:
    for name in files:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")


def journal_of(directory: Path, patterns: list[str], quiet_s: float | None = None) -> FileJournal:
    """Return the journal of a job's source, which follows files if `quiet_s` is given."""
    (directory / "job").mkdir(exist_ok=True)
    finder = LocalFiles(patterns, quiet_s=quiet_s)
    return FileJournal(Directory(directory / "job"), "s", finder, follow=quiet_s is not None)


PARTS = ["a", "b", "*", "a*", "?", "[ab]", "**", "*.txt", "x.txt", "[!a]*"]


def test_it_is_what_glob_says_where_there_are_no_links_and_no_hidden_names(tmp_path: Path) -> None:
    chance = Random(3)
    every = ["a", "b", "ab", "x.txt", "a.txt"]
    for _ in range(40):
        path = "/".join(chance.choices(["a", "b", "ab"], k=chance.randrange(3)) + [chance.choice(every)])
        if not (tmp_path / path).exists() and not any((tmp_path / above).is_file() for above in Path(path).parents):
            make(tmp_path, path)
    for _ in range(300):
        pattern = "/".join(chance.choices(PARTS, k=chance.randrange(1, 5)))
        expected = glob.glob(str(tmp_path / pattern), recursive=True)
        assert names(tmp_path, pattern) == sorted({os.path.relpath(p, tmp_path) for p in expected if os.path.isfile(p)})


def test_a_link_to_an_ancestor_does_not_multiply_files(tmp_path: Path) -> None:
    make(tmp_path, "in/a.txt", "in/sub/b.txt", "in/sub/deep/c.txt")
    (tmp_path / "in/sub/up").symlink_to("..")
    (tmp_path / "in/0-deep").symlink_to("sub/deep")
    (tmp_path / "in/sub/self").symlink_to(".")
    expected = ["in/a.txt", "in/sub/b.txt", "in/sub/deep/c.txt"]
    assert names(tmp_path, "in/**/*.txt") == names(tmp_path, "in/**") == expected
    assert names(tmp_path, "in/**/*.txt", "in/*/*.txt", "in/a.txt", "in/sub/up/**") == expected


def test_a_directory_elsewhere_to_which_a_link_leads_is_looked_into_once(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/a.txt", "in/b.txt")
    for link in ("x", "y"):
        (tmp_path / "in" / link).symlink_to(tmp_path / "elsewhere")
    assert names(tmp_path, "in/**/*.txt") == names(tmp_path, "in/**", "in/*/*") == ["in/b.txt", "in/x/a.txt"]


def test_a_file_with_several_names_counts_by_the_one_that_is_no_link(tmp_path: Path) -> None:
    make(tmp_path, "in/2025.csv", "in/2026.csv", "other/z.csv")
    (tmp_path / "in/0-latest.csv").symlink_to("2026.csv")
    (tmp_path / "in/z1.csv").symlink_to("../other/z.csv")
    (tmp_path / "in/z2.csv").symlink_to("../other/z.csv")
    os.link(tmp_path / "in/2025.csv", tmp_path / "in/again.csv")
    (tmp_path / "view").symlink_to("in")
    files = ["2025.csv", "2026.csv", "again.csv", "z1.csv"]
    assert names(tmp_path, "in/*.csv") == [f"in/{name}" for name in files]
    assert names(tmp_path, "view/*.csv") == [f"view/{name}" for name in files]
    assert names(tmp_path, "in/*.csv", "view/*.csv") == [f"in/{name}" for name in files]
    assert names(tmp_path, "in/0-latest.csv") == ["in/0-latest.csv"]


def test_a_link_that_appears_later_to_a_file_that_was_listed_is_no_other_file(tmp_path: Path) -> None:
    make(tmp_path, "in/a.txt")
    (tmp_path / "view").symlink_to("in")
    patterns = [str(tmp_path / "view/*.txt"), str(tmp_path / "in/*.txt")]
    assert journal_of(tmp_path, patterns[:1], quiet_s=0).look(0)
    (tmp_path / "in/b.txt").symlink_to("a.txt")
    assert not journal_of(tmp_path, patterns, quiet_s=0).look(1)
    make(tmp_path, "in/c.txt")
    journal = journal_of(tmp_path, patterns, quiet_s=0)
    assert journal.look(1) and not journal.look(2)
    listing = journal.listing(1)
    assert listing is not None and [(Path(file.path).name, file.number) for file in listing.files] == [("c.txt", 1)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*.txt", ["a.txt", "d/b.txt"]),
        ("*/*.txt", ["d/b.txt"]),
        ("_tmp/*.txt", ["_tmp/c.txt"]),
        ("_*/*.txt", ["_tmp/c.txt"]),
        (".git/*", [".git/e.txt"]),
        ("*/_started.txt", ["d/_started.txt"]),
        ("d/*", ["d/b.txt"]),
        ("d/_*", ["d/_started.txt"]),
    ],
)
def test_hidden_names_are_passed_over_in_each_part_of_a_path(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    make(tmp_path, "a.txt", "d/b.txt", "d/_started.txt", "d/.swp", "_tmp/c.txt", ".git/e.txt", "d/_x/f.txt")
    assert names(tmp_path, pattern) == expected


def test_a_name_with_wildcards_in_it_is_that_file(tmp_path: Path) -> None:
    make(tmp_path, "a[1].txt", "a1.txt")
    assert names(tmp_path, "a[1].txt") == ["a[1].txt"]
    assert names(tmp_path, glob.escape("a[1].txt")) == ["a[1].txt"]


FORBIDDEN = """
import os, sys
from pathlib import Path
from operators.sources import FilesSource
from operators.source import SourceContext
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.makedirs(sys.argv[3], exist_ok=True)
source = FilesSource(sys.argv[1], follow=sys.argv[2] == "follow")
try:
    source.check()
except Exception as problem:
    print("check", type(problem).__name__, problem)
try:
    source.open(0, SourceContext("s", Path(sys.argv[3]), 0)).read(0, 1)
except Exception as problem:
    print("read", type(problem).__name__, problem)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not read")
@pytest.mark.parametrize("follow", ["once", "follow"])
@pytest.mark.parametrize(
    ("pattern", "mode", "denied"),
    [
        ("in/*/*.txt", 0o300, "in/b"),
        ("in/**/*.txt", 0o300, "in/b"),
        ("in/**", 0o000, "in/b"),
        ("in/*/x.txt", 0o600, "in/b/x.txt"),
        ("in/b/*.txt", 0o000, "in/b"),
        ("in/b/x.txt", 0o000, "in/b/x.txt"),
        ("in/**/x.txt", 0o400, "in/b/x.txt"),
    ],
)
def test_what_must_not_be_listed_is_not_left_out(pattern: str, mode: int, denied: str, follow: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        top = Path(directory)
        make(top, "in/a/x.txt", "in/b/x.txt")
        (top / "in/b").chmod(mode)
        if mode & 0o400:
            os.chown(top / "in/b", 65534, 65534)
        ended = subprocess.run(
            [sys.executable, "-c", FORBIDDEN, str(top / pattern), follow, str(top / "job")],
            text=True,
            capture_output=True,
        )
        (top / "in/b").chmod(0o700)
    lines = ended.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["check", "PipelineError"], ["read", "OperatorFailed"]], ended
    for line in lines:
        assert f"{top / denied} cannot be read: Permission denied; grant the job's user permission to read it" in line


def test_a_file_system_that_does_not_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "in/a.txt", "in/b/c.txt")

    def stale(path: Any) -> Any:
        if str(path).endswith("/b"):
            raise OSError(errno.ESTALE, "Stale file handle", path)
        return scandir(path)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", stale)
    journal = journal_of(tmp_path, [str(tmp_path / "in/**/*.txt")])
    with pytest.raises(Unavailable, match="Stale file handle"):
        journal.look(0)
    assert journal.listing(0) is None
    monkeypatch.setattr(os, "scandir", scandir)
    assert journal.look(0)


def test_a_file_that_is_dated_in_the_future_is_taken_once_it_has_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = 0
    monkeypatch.setattr("operators.sources.files.local_files.time.monotonic_ns", lambda: now_ns)
    make(tmp_path, "a.txt")
    os.utime(tmp_path / "a.txt", (9e9, 9e9))
    journal = journal_of(tmp_path, [str(tmp_path / "*.txt")], quiet_s=10)
    assert not journal.look(0)
    now_ns = 9_000_000_000
    make(tmp_path, "a.txt", "a.txt")
    os.utime(tmp_path / "a.txt", (9.1e9, 9.1e9))
    assert not journal.look(0)
    now_ns = 18_000_000_000
    assert not journal.look(0), "it has changed meanwhile"
    now_ns = 19_000_000_000
    assert journal.look(0)


def test_follow_refuses_before_the_start_what_it_would_refuse_then(tmp_path: Path) -> None:
    make(tmp_path, "a.txt")
    FilesSource(str(tmp_path / "*.txt"), follow=True).check()
