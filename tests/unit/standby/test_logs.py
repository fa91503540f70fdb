"""A log on a full disk loses lines and says nothing else; on any other it has them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from standby import logs


@pytest.fixture(autouse=True)
def _logging_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(logging.root, "handlers", [])
    level = logging.root.level
    yield
    logging.root.setLevel(level)


def test_a_line_says_when_who_and_what() -> None:
    told = StringIO()
    logs.begin(told)
    logging.getLogger("standby.daemon").info("a task is back")
    assert told.getvalue().endswith(" standby.daemon: a task is back\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_line_that_does_not_fit_is_lost_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    full = open("/dev/full", "w")
    logs.begin(full)
    logging.getLogger("standby.daemon").info("nobody will read this")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(OSError, match="No space left"):
        full.close()
