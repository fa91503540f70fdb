"""Intervals of a recording are verified at the same time, and the earliest one that differs is reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from causal.errors import CorruptData, ReplayDivergence
from operators.recordings.recording import Recording, open_recording
from operators.replay.exact import Replay
from operators.replay.verification import verify
from operators.runtime.forked import in_fork

JOB = """
from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("counting")
outside = pipeline.settings.get("outside") == "yes"
seen = 0


class Count(Operator):
    def process(self, record, ctx):
        global seen
        seen += 1
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield [record, ctx.state["n"], ctx.now(), seen if outside else 0]


(
    pipeline.source("numbers", GeneratedSource(lambda partition, number: number, count=3_000, rate=2_000))
    .key_by(lambda number: number % 10)
    .process("count", Count())
    .sink("out", SqliteSink("out.db"))
)
"""


def recorded(place: Path, outside: str) -> Path:
    """Run the job with many kept checkpoints, and return its directory."""
    (place / "counting.py").write_text(JOB)
    options = ("--record", "200s,1GB", "--checkpoint-interval", "0.2", "--set", f"outside={outside}")
    command = [sys.executable, "-m", "deploy", "run", "counting.py", *options, "--state-dir", "job"]
    subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=120)
    return place / "job"


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("exact"), "no")


def verified(recording: Recording, job: Path, scratch: Path) -> tuple[int, int]:
    """Verify everything that is recorded; return the number of events and of channels."""
    epochs = recording.epochs()
    result = verify(recording, job, epochs[0], epochs[-1], scratch)
    assert list(result.tasks) == ["numbers/0", "count/0", "out/0"] and result.first == epochs[0]
    return result.events, result.channels


def test_intervals_are_together_what_one_replay_performs(exact: Path, tmp_path: Path) -> None:
    recording = open_recording(exact)
    epochs = recording.epochs()
    assert len([each for each in recording.checkpoints() if each in epochs]) > 2
    one, all_of_them = tmp_path / "one", tmp_path / "all"
    one.mkdir()
    all_of_them.mkdir()

    def replayed() -> bytes:
        replay = Replay(recording, exact, epochs[0], one)
        while replay.epoch in epochs:
            replay.perform_epoch()
        return f"{replay.cone.events} {replay.cone.verified}".encode()

    events, channels = map(int, in_fork(replayed, 60.0).split())
    assert verified(recording, exact, all_of_them) == (events, channels)


def test_a_damaged_interval_is_one_line(exact: Path, tmp_path: Path) -> None:
    recording = open_recording(exact)
    start = recording.start_of(recording.epochs()[-2])
    [damaged, *_] = (exact / "recording").rglob(f"count/0/e{start:08d}-*")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        with pytest.raises(CorruptData, match="restore it from a copy"):
            verified(recording, exact, tmp_path)
    finally:
        damaged.write_bytes(content)


def test_what_user_code_keeps_outside_of_its_state_is_found_at_the_next_kept_checkpoint(tmp_path: Path) -> None:
    job, scratch = recorded(tmp_path, "yes"), tmp_path / "scratch"
    scratch.mkdir()
    recording = open_recording(job)
    second = sorted(recording.checkpoints())[1]
    with pytest.raises(ReplayDivergence, match=rf"count/0 .* epoch {second}: .* differed"):
        verified(recording, job, scratch)
