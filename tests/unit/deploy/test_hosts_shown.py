"""`causal hosts` of a job that is led, and of one that is not any more."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from causal.config import JobConfig
from deploy.cli import main
from deploy.hosts.host_commands import shown
from standby.supervision.job_view import JobView

HOST = {
    "host": "a", "state": "joined", "incarnation": 2, "zone": "", "version": "0.2.0", "last_heard_ms": 120.0,
    "clock_error_ms": 0.5, "tasks": ["count/0"], "standbys": [], "slots": 8,
}  # fmt: skip
LOSS = {"host": "a", "why": "it was silent for 3.0 s", "tasks": ["count/0"], "recovered_ms": 3100.0}
VIEW: dict[str, Any] = {
    "job": "shop", "state": "running", "ended": None, "at_ns": time.monotonic_ns(), "hosts": [HOST],
    "host_losses": [LOSS], "without_process": [], "without_standby": ["count/0"],
    "leader": {"name": "supervisor", "listen": "tcp://10.0.0.1:7700", "term": 3, "here": True},
    "candidates": [{"name": "supervisor-b", "listen": "tcp://10.0.0.2:7700", "heard_ms": 4000.0}],
}  # fmt: skip


def test_a_job_that_is_led_shows_who_is_heard_and_what_lacks() -> None:
    text = "\n".join(shown(JobView.of(VIEW)))
    assert "a  joined (incarnation 2, version 0.2.0, heard 0.1 s ago" in text
    assert "led by supervisor at tcp://10.0.0.1:7700 (term 3)" in text
    assert "candidate: supervisor-b at tcp://10.0.0.2:7700, heard 4 s ago" in text
    assert "without a standby: count/0" in text


def test_a_job_that_is_not_led_any_more_shows_nothing_as_present(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    JobConfig(run="r", name="shop", pipeline="p.py", listen="tcp://127.0.0.1:1", store="file:///s").save(tmp_path)
    (tmp_path / "journal.sqlite").touch()
    (tmp_path / "status.json").write_text(json.dumps({**VIEW, "ended": {"status": 0, "reason": ""}}))
    assert main(["hosts", "--state-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("shop: ended with status 0: finished (as of ")
    assert "was joined (incarnation 2, version 0.2.0" in text and "lost a: it was silent" in text
    assert not [part for part in ("heard", "led by", "candidate", "without") if part in text]
