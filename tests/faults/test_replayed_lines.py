"""A recorded job whose input exists only in its ingest log is replayed and compared; the log stays as it is."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from operators.recordings.recording import open_recording

JOB = """
import json

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import StdinSource


class Total(Operator):
    def process(self, record, ctx):
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"n": ctx.state["n"], "v": record["v"], "luck": ctx.random.random()}


pipeline = Pipeline("lines")
(
    pipeline.source("in", StdinSource())
    .map("parse", json.loads)
    .key_by(lambda record: record["v"] % 5)
    .process("total", Total())
    .sink("out", SqliteSink("out.db"))
)
"""
CAUSAL = (sys.executable, "-m", "deploy")


def test_lines_are_read_again_from_the_segments_that_the_recording_keeps(tmp_path: Path) -> None:
    (tmp_path / "lines.py").write_text(JOB)
    state = tmp_path / ".causal" / "lines"
    options = ("--record", "1h,1GB", "--checkpoint-interval", "0.2")
    job = subprocess.Popen(
        [*CAUSAL, "run", "lines.py", *options], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert job.stdin is not None
    sent = 0
    while sent < 500 or not list((state / "recording" / "index").glob("e*4.json")):
        assert job.poll() is None
        job.stdin.write(f'{{"v": {sent}}}\n')
        job.stdin.flush()
        sent += 1
        if sent == 300:
            subprocess.run([*CAUSAL, "kill", "total/0"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
        time.sleep(0.002)
    shown, _ = job.communicate(timeout=60)
    assert job.returncode == 0, shown
    there = {path: path.stat().st_mtime_ns for path in state.rglob("*")}
    recording = open_recording(state)
    assert len(recording.epochs()) > 4 and recording.replayable().start == 0

    def performed(*arguments: str) -> str:
        done = subprocess.run([*CAUSAL, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=100)
        assert not done.returncode, done.stdout + done.stderr
        return done.stdout

    assert f"epochs 0 to {recording.replayable()[-1]} of " in performed("replay", "lines")
    assert f"  record  {{'v': {sent - 1}}}\n" in performed("replay", "lines", "--row", f"out/0:{sent - 1}")
    performed("diff", "lines", "--code", "lines.py", "--epoch", "0..3")
    assert {path: path.stat().st_mtime_ns for path in state.rglob("*")} == there
