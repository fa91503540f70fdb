"""A log on a full disk loses lines and says nothing else; on any other it has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest

from standby import logs


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Called in the test: then nobody listens to the logs of this process."""
    level = logging.root.level

    def bare() -> None:
        monkeypatch.setattr(logging, "raiseExceptions", True)
        monkeypatch.setattr(logging.root, "handlers", [])

    yield bare
    logging.root.setLevel(level)


def test_a_line_says_when_who_and_what(bare: Callable[[], None]) -> None:
    bare()
    told = StringIO()
    logs.begin(told)
    logging.getLogger("standby.daemon").info("a task is back")
    assert told.getvalue().endswith(" standby.daemon: a task is back\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_line_that_does_not_fit_is_lost_without_a_word(
    bare: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    bare()
    full = open("/dev/full", "w")
    logs.begin(full)
    logging.getLogger("standby.daemon").info("nobody will read this")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(OSError, match="No space left"):
        full.close()
