"""SIGKILL of one task repeatedly, each when its standby is ready, at all phases of a checkpoint interval."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.harness.watched import Watched, ready

READY_WITHIN_S = 60.0
PHASES_SEED = 20
SLACK_S = 1.5
"""Time that a round takes beyond `every_s`: the standby's start, and the phase within the checkpoint interval."""


def kill_again(
    job: Watched, task: str, kills: int, every_s: float, interval_s: float, show: Callable[[str], None]
) -> list[int]:
    """Kill `task` that often, at least `every_s` apart; returns the moments in monotonic time.

    Args:
        interval_s: between checkpoints; the kills fall anywhere in it.

    Raises:
        RunFailed: a standby was not ready in time, or there was nothing to kill.
    """
    chance = random.Random(PHASES_SEED)
    moments: list[int] = []
    job.until("every standby was ready and a checkpoint complete", _warm, READY_WITHIN_S)
    for number in range(kills):
        time.sleep(every_s + chance.random() * interval_s)
        job.until("the standby was ready", lambda view: ready(view, task), READY_WITHIN_S)
        moments.append(job.kill_process(task))
        show(f"kill {number + 1} of {kills}")
    time.sleep(every_s)
    return moments


def seconds_needed(kills: int, every_s: float, interval_s: float) -> float:
    """Return how long the job has to run for that many kills, its start included."""
    return 8.0 + (kills + 1) * (every_s + interval_s + SLACK_S)


def _warm(view: Mapping[str, Any]) -> bool:
    return ready(view) and view["checkpoint"]["count"] >= 2
