"""Modes of files for the job alone and for its user."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from causal.storage.modes import UMASK, closed_to_others, ensure_directory, mode_of_files, opened, private, public


@pytest.fixture(autouse=True)
def umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(UMASK, raising=False)
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_is_private_but_for_what_the_user_asked_for(tmp_path: Path) -> None:
    with private():
        (tmp_path / "ours").touch()
        os.close(opened(tmp_path / "theirs", os.O_WRONLY, mode_of_files()))
        ensure_directory(tmp_path / "directory", 0o750)
        with public():
            (tmp_path / "callback").touch()
        assert os.environ[UMASK] == "027" and mode_of_files(private=True) == 0o600
        with private():
            assert mode_of_files() == 0o640
    assert UMASK not in os.environ
    modes = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert modes == {"ours": 0o600, "theirs": 0o640, "directory": 0o750, "callback": 0o640}
    (tmp_path / "later").touch()
    assert mode(tmp_path / "later") == 0o640


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.touch()
    path.chmod(0o604)
    os.close(opened(path, os.O_RDWR, 0o600))
    assert mode(path) == 0o604
    ensure_directory(tmp_path, 0o700)
    with pytest.raises(FileExistsError):
        ensure_directory(path, 0o700)


def test_a_directory_is_closed_with_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "job" / "logs").mkdir(parents=True)
    (tmp_path / "job" / "logs" / "w0.log").touch(0o666)
    (tmp_path / "outside").touch(0o644)
    (tmp_path / "job" / "link").symlink_to(tmp_path / "outside")
    closed_to_others(tmp_path / "job")
    closed_to_others(tmp_path / "missing")
    assert [mode(tmp_path / name) for name in ("job", "job/logs", "job/logs/w0.log")] == [0o700, 0o700, 0o600]
    assert mode(tmp_path / "outside") == 0o640
