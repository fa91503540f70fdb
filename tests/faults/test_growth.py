"""No state outlives its use: memory and open files of every process of a job stay flat over many failures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.runs import sets
from tests.faults.conftest import Start
from tests.faults.job import PIPELINES, Job, wait_for
from tests.faults.test_hot_standbys import shadow_of
from tests.members import members
from tests.soak.cut import cut, links
from tests.soak.growth import Growth, own_bytes

FILLED = "fill/0"
FILLED_RECORDS = 9_000
SAMPLE, MANY = 5, 50
STATE_BYTES_MIN = 12 << 20


def performing(job: Job) -> int:
    """Return the process of the hot standby of the task with the state, once one performs."""
    job.until("a hot standby performs", partial(shadow_of, task=FILLED))
    view = job.view()
    assert view is not None
    shadow = shadow_of(view, FILLED)
    slot = shadow["slot"] if shadow else ""
    return next((process["pid"] for process in view["processes"] if process["slot"] == slot), 0)


def lost_echoes(job: Job) -> int:
    logs = (job.state / "logs").glob("*.log")
    return sum(log.read_text(errors="replace").count(f"hot standby of {FILLED}: ") for log in logs)


def lose_an_echo(job: Job) -> int:
    pid, before = performing(job), lost_echoes(job)

    def lost() -> bool:
        nonlocal pid
        pid = performing(job)  # a busy machine may have replaced it meanwhile
        try:
            for link in links(pid, job.runtime):
                if not link.control:
                    cut(link)
        except PermissionError as problem:
            pytest.skip(str(problem))
        return lost_echoes(job) > before

    wait_for("the echo is lost", lost)
    return performing(job)


def roll_back_in_place(job: Job) -> int:
    """Two tasks die together at sharing depth 1, and the one after them goes back to the last checkpoint."""
    pid = job.pid_of(FILLED)
    job.replace("b/0", "c/0")
    job.until_warm(checkpoints=0)
    assert job.pid_of(FILLED) == pid
    return pid


def promote(job: Job) -> int:
    """Its neighbours, the supervisor and the agent live through it."""
    job.replace("c/0")
    job.until_warm(checkpoints=0)
    return job.pid_of(FILLED)


FAILURES: dict[str, tuple[Callable[[Job], int], tuple[str, ...]]] = {
    "echo": (lose_an_echo, ("--standbys", "hot:fill")),
    "rollback": (roll_back_in_place, ("--sharing-depth", "1")),
    "promotion": (promote, ()),
}
CASES = [(kind, state, count) for kind in FAILURES for state in ("memory", "disk") for count in (SAMPLE, MANY)]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("kind", "state", "count"), members(CASES))
def test_each_process_stays_as_large_as_it_is(start: Start, tmp_path: Path, kind: str, state: str, count: int) -> None:
    fail, arguments = FAILURES[kind]
    settings: list[Any] = sets(out=tmp_path / "rows", gate=tmp_path / "gate", state=state)
    arguments = ("--checkpoint-interval", "0.5", *arguments)
    job = start(
        PIPELINES / "filled.py", *settings, *arguments, config={"crash_loop_max": 30 * count}, own_standbys=True
    )
    job.until_warm(records=FILLED_RECORDS // 100)
    growth, pid, failures = Growth(), 0, 0
    while len(growth.of(pid)) < count - 1:
        failures += 1
        assert failures <= 3 * count, f"no process with the state lives through {count - 1} failures: {growth.seen}"
        pid = fail(job)  # a busy machine may leave one silent for so long that it is replaced
        growth.look(job.living())
    assert not growth.grown(), growth.grown()
    assert state == "disk" or (own_bytes(pid) or 0) > STATE_BYTES_MIN, "it has the state"
    job.interrupt()
    job.finish()
