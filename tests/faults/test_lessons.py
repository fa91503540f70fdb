"""The lessons of the examples: each breaks something, and says itself whether its promise was kept."""

from __future__ import annotations

import pytest

from examples.lessons.__main__ import LESSONS
from tests.members import members


@pytest.mark.parametrize("name", members(LESSONS))
def test_its_promise_is_kept(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert LESSONS[name].main() == 0, capsys.readouterr().out
