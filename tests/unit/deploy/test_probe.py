"""`causal probe`: what renews its sign lives, what is old or was never there does not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from causal.network.host_file import SIGN, save_sign
from deploy.cli import main
from deploy.monitoring.probe import OLD_S


def test_an_agent_that_renews_its_sign_lives_and_is_ready_once_it_takes_part(tmp_path: Path) -> None:
    save_sign(tmp_path, joined=False)
    assert main(["probe", "--state-dir", str(tmp_path)]) == 0
    assert main(["probe", "--state-dir", str(tmp_path), "--joined"]) == 1
    save_sign(tmp_path, joined=True)
    assert main(["probe", "--state-dir", str(tmp_path), "--joined"]) == 0


def test_a_supervisor_that_writes_its_status_lives(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text("{}")
    assert main(["probe", "--state-dir", str(tmp_path), "--joined"]) == 0


@pytest.mark.parametrize("name", [SIGN, "status.json"])
def test_what_has_not_renewed_its_sign_for_a_while_does_not_live(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text('{"joined": true}')
    old_s = time.time() - OLD_S - 100
    os.utime(path, (old_s, old_s))
    assert main(["probe", "--state-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"causal: the last sign of life in {tmp_path} is 11")


def test_a_directory_without_a_sign_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--state-dir", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
