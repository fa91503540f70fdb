"""Processes of a job are found and ended by the marks in their environment, whatever bytes its directory's path has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from standby.host.children import environment
from standby.host.processes import kill_marked, marked


@pytest.mark.parametrize("name", ["job", "ü", "no UTF-8 \udcff"])
def test_a_process_is_found_and_ended_by_its_marks(name: str, tmp_path: Path) -> None:
    job = tmp_path / name
    command = [sys.executable, "-c", "print('begun', flush=True); input()"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(job, {}, "w1")
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"begun\n"
            assert [(each.pid, each.slot) for each in marked(job)] == [(process.pid, "w1")]
            assert not marked(tmp_path)
            while kill_marked(job, 5.0):
                pass
            assert process.wait() == -9
        finally:
            process.kill()
