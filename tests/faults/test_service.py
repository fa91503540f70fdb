"""The systemd unit: it starts a job, ends it cleanly, resumes it, and knows when it is done."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness.processes import kill, of_job
from benchmarks.harness.written import records_in
from standby.host.processes import kill_marked
from tests.faults.job import HOME, WAIT_S, environment, wait_for

UNIT = (HOME / "deploy" / "systemd" / "causal@.service").read_text()
COUNT = 4000
PIPELINE = f"""
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

pipeline = Pipeline("shop")
orders = pipeline.source("orders", hold_end(GeneratedSource(lambda p, i: i % 7, count={COUNT}, rate=1000), "gate"))
orders.key_by(lambda shop: shop).count("count").sink("out", SqliteSink("out.db"))
"""


def command() -> str:
    """Return what the unit has the shell run, with this checkout in the place of the installed command."""
    match = re.search(r"^ExecStart=/bin/sh -c '(.*)'$", UNIT, re.MULTILINE)
    assert match is not None
    line = match[1].replace("$$", "$").replace("/opt/causal/bin/causal", f"{sys.executable} -m deploy")
    assert "%" not in line and "deploy run" in line
    return line


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "state").mkdir()
    yield tmp_path / "state"
    kill_marked((tmp_path / "state").resolve(), 5.0)


def started(job: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["/bin/sh", "-c", command()],
        cwd=job.parent,
        env={**environment(), "STATE_DIRECTORY": str(job)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def written(job: Path, since_ns: int) -> int:
    """Return how many rows are out, as a life of the job says that began after that moment."""
    try:
        view = json.loads((job / "status.json").read_text())
    except FileNotFoundError:
        return 0
    tasks = view["tasks"] if view["at_ns"] > since_ns else ()
    return sum(task["figures"].get("records_out", 0) for task in tasks)


def test_stopped_killed_and_started_again_every_row_is_there_once(job: Path) -> None:
    first = started(job)
    wait_for("rows", lambda: written(job, 0) > 200)
    os.kill(first.pid, signal.SIGTERM)  # systemctl stop, with KillMode=mixed
    printed, said = first.communicate(timeout=WAIT_S)
    assert first.returncode == 0 and "stopped at savepoint" in printed, said
    assert not of_job(job.resolve())

    began_ns = time.monotonic_ns()
    second = started(job)
    wait_for("rows of the second", lambda: written(job, began_ns) > 600)
    for pid in of_job(job.resolve()):  # what systemd does after TimeoutStopSec, or a loss of the machine
        kill(pid)
    second.communicate(timeout=WAIT_S)

    (job.parent / "gate").touch()
    third = started(job)
    _, said = third.communicate(timeout=WAIT_S)
    assert third.returncode == 0, said
    rows = sorted(map(tuple, records_in(job.parent / "out.db")))
    assert rows == sorted((shop, n + 1) for shop in range(7) for n in range(len(range(shop, COUNT, 7))))

    again = started(job)  # after a reboot
    _, said = again.communicate(timeout=WAIT_S)
    assert again.returncode == 0 and "has finished already" in said


def test_a_mistake_in_the_pipeline_is_not_tried_again(job: Path) -> None:
    (job.parent / "pipeline.py").write_text("pipeline = 1")
    wrong = started(job)
    _, said = wrong.communicate(timeout=WAIT_S)
    assert wrong.returncode == 2 and "must be a Pipeline" in said
    assert "RestartPreventExitStatus=1 2" in UNIT
