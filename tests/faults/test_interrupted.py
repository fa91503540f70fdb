"""Ctrl-C at any moment of `causal run`, once or twice: no traceback, the promised status, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from standby.host.processes import kill_marked
from tests.faults.job import WAIT_S, environment, without_progress
from tests.members import members

PIPELINE = """
from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("endless")
numbers = pipeline.source("numbers", GeneratedSource(lambda p, i: i % 7, count=None, rate=500))
numbers.key_by(lambda r: r).count("count").sink("out", SqliteSink("out.db", existing="replace"))
"""

INT, TERM = signal.SIGINT, signal.SIGTERM
SENT = {"once": (INT,), "twice": (INT, INT), "terminated": (TERM, INT)}
MOMENTS = [(stage, how) for stage in ("loading", "sockets", "supervised", "running") for how in SENT]
EACH_ONCE = [("loading", "twice"), ("sockets", "once"), ("supervised", "terminated"), ("running", "twice")]
STARTED = """
import sys
from deploy.entry import main

class Announcing:
    def find_spec(self, name, path=None, target=None):
        if name == "deploy.cli":
            print("started", flush=True)

sys.meta_path.insert(0, Announcing())
sys.exit(main())
"""
"""`causal`, which says when it begins to load its modules."""


def seen(job: Path, runtime: Path, stage: str) -> bool:
    """Return whether a `causal run` has come that far."""
    if stage == "loading":
        return True
    if stage == "sockets":
        return any(runtime.glob("causal-*"))
    if stage == "supervised":
        return (job / "journal.sqlite").exists()
    return (job / "status.json").exists()


@pytest.mark.parametrize(("stage", "how"), members(MOMENTS, *EACH_ONCE))
def test_ctrl_c_leaves_nothing(stage: str, how: str, tmp_path: Path) -> None:
    sent = SENT[how]
    (tmp_path / "endless.py").write_text(PIPELINE)
    job, runtime = tmp_path / "job", tmp_path / "tmp"
    runtime.mkdir()
    run = subprocess.Popen(
        [sys.executable, "-c", STARTED, "run", "endless.py", "--state-dir", str(job)],
        cwd=tmp_path,
        env={**environment(), "TMPDIR": str(runtime)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stdout is not None and run.stdout.readline() == "started\n"
    try:
        while not seen(job, runtime, stage):
            time.sleep(0.005)
            assert run.poll() is None
        for number in sent:
            if run.poll() is None:
                os.killpg(run.pid, number)
                time.sleep(0.02)
        _, said = run.communicate(timeout=WAIT_S)
        assert "Traceback" not in said and len(without_progress(said).splitlines()) <= 1, said
        assert run.returncode in {128 + number for number in sent}, said  # two together come in any order
        assert not kill_marked(job.resolve(), 0.0), "processes of the job are still there"
        assert not list(runtime.iterdir())
    finally:
        if run.poll() is None:
            run.kill()
        kill_marked(job.resolve(), 5.0)


@pytest.mark.parametrize("stage", members(["loading", "running"], "running"))
def test_a_job_that_was_started_to_survive_its_terminal_does(stage: str, tmp_path: Path) -> None:
    """`nohup` starts it so, and a shell without jobs that is given `&`."""
    (tmp_path / "endless.py").write_text(PIPELINE)
    job = tmp_path / "job"
    run = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", sys.executable, "-c", STARTED, "run", "endless.py"]
        + ["--state-dir", str(job)],
        cwd=tmp_path,
        env={**environment(), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None and run.stdout.readline() == "started\n"
    try:
        for now in (stage, "running"):
            while not seen(job, tmp_path, now):
                time.sleep(0.005)
                assert run.poll() is None
            if now == stage:
                run.send_signal(signal.SIGHUP)
                run.send_signal(signal.SIGINT)
        run.send_signal(signal.SIGTERM)
        _, said = run.communicate(timeout=WAIT_S)
        assert run.returncode == 128 + signal.SIGTERM and "interrupted by SIGTERM" in said, said
    finally:
        if run.poll() is None:
            run.kill()
        kill_marked(job.resolve(), 5.0)
