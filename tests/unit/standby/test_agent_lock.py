"""One agent at a time; the lock of one that was killed may be held a moment longer, by what it was about to start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from causal.errors import PipelineError
from standby import agent


def test_a_lock_that_is_let_go_of_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = agent._locked(tmp_path)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        os.close(lock)  # the process that had it has become another program

    monkeypatch.setattr("standby.agent.time.sleep", pause)
    os.close(agent._locked(tmp_path))
    assert len(pauses) == 1


def test_one_that_is_kept_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = agent._locked(tmp_path)
    monkeypatch.setattr(agent, "LOCK_S", 0.0)
    with pytest.raises(PipelineError, match="another agent already serves") as refused:
        agent._locked(tmp_path)
    assert "\n" not in str(refused.value)
    os.close(lock)
