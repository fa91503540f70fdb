"""The reason that `causal agent` gives when its agent has ended because of an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.launching.host_agent import last_error

INFO = "2026-11-26T09:57:00.524Z agent INFO standby.agent: {}"
ERROR = "2026-11-26T09:57:00.984Z agent ERROR standby.agent: {}"


@pytest.mark.parametrize(
    "lines",
    [
        [INFO.format("joined as incarnation 1"), ERROR.format("the supervisor refuses this host: it is too old")],
        [ERROR.format("the supervisor refuses this host: it is too old"), INFO.format("w5 (pid 3) ended: ERROR 9")],
        [ERROR.format("an earlier one"), ERROR.format("the supervisor refuses this host: it is too old"), "w5"],
    ],
)
def test_it_is_the_last_error_whatever_was_logged_behind_it(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "agent.log").write_text("\n".join(lines))
    assert last_error(tmp_path) == "the supervisor refuses this host: it is too old"


def test_without_an_error_it_is_the_last_line(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "agent.log").write_text(f"{INFO.format('joined')}\nw: no such file\n")
    assert last_error(tmp_path) == "no such file"
