"""A real recording is replayed: a task died meanwhile, every channel is verified, and nothing else is touched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run

from tests.faults.conftest import HeldChain

PROGRAM = """
import sys
from pathlib import Path
from operators.recordings.recording import open_recording
from operators.replay.exact import Replay

job, scratch = Path(sys.argv[1]), Path(sys.argv[2])
touched = []

def audited(event, arguments):
    if event == "open" and type(arguments[0]) is str and arguments[2] & 0o3:
        touched.append(arguments[0])
    elif event in ("socket.connect", "socket.bind", "os.remove", "os.rename", "os.mkdir", "os.fork"):
        touched.append(f"{event} {arguments[0]}")

sys.addaudithook(audited)
recording = open_recording(job)
replay = Replay(recording, job, recording.epochs().start, scratch)
while replay.epoch in recording.epochs():
    replay.perform_epoch()
replay.close()
print(replay.cone.verified, replay.epoch - recording.epochs().start)
print([each for each in touched if str(scratch) not in each])
"""


def test_a_job_in_which_a_task_died_is_replayed_exactly(start_chain: Callable[..., HeldChain], tmp_path: Path) -> None:
    chain = start_chain("--record", "60s,1GB", checkpoint_interval_s=0.1)
    before = chain.until_checkpoint(3)
    chain.job.replace("score/0")
    chain.until_checkpoint(before + 6)
    chain.finish_exactly()
    job, scratch = chain.job.state, tmp_path / "scratch"
    scratch.mkdir()
    there = {path: path.stat().st_mtime_ns for path in job.rglob("*")}
    done = run([sys.executable, "-c", PROGRAM, str(job), str(scratch)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    counts, touched = done.stdout.splitlines()
    verified, epochs = map(int, counts.split())
    assert epochs > before + 6 and verified >= 3 * epochs
    assert touched == "[]"
    assert {path: path.stat().st_mtime_ns for path in job.rglob("*")} == there
