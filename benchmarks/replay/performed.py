"""`python -m benchmarks.replay.performed JOB EPOCH [TASK…]`: replays a recording in this process, and prints figures.

*verify_s* is the time of `verify`, which performs all epochs on all cores, beginning with code and state; it is 0 if
one epoch is asked for. The rest is of a replay in one process: *restore_s* is the time until state is loaded and
readers are open, *perform_s* that in which the epochs are performed and verified, *cpu_s* its CPU time, *recorded_s*
the time that they took when they were recorded; *keys* are those with state at the checkpoint.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from causal.channels.partition import Partition
from operators.engine.operator_chain import OperatorChain
from operators.recordings.recording import Recording, open_recording
from operators.replay.exact import Replay
from operators.replay.verification import verify

ALL = -1


def performed(job: Path, epoch: int, tasks: Sequence[str]) -> dict[str, float]:
    """Return the figures of a replay of one epoch, with those after its checkpoint, or of `ALL` epochs."""
    recording = open_recording(job)
    epochs = recording.epochs()
    first, last = (epochs[0], epochs[-1]) if epoch == ALL else (recording.start_of(epoch), epoch)
    with tempfile.TemporaryDirectory(prefix="causal-bench-") as name:
        scratch, own = Path(name, "one"), Path(name, "all")
        scratch.mkdir()
        own.mkdir()
        verify_s = _verify_s(recording, job, last, own, tasks) if epoch == ALL else 0.0
        began_s = time.monotonic()
        replay = Replay(recording, job, first, scratch, tasks)
        restored_s = time.monotonic()
        began, keys = _read(replay), sum(_keys(chain) for chain in replay.chains.values())
        begun_s, cpu_s = time.monotonic(), time.process_time()
        while replay.epoch <= last:
            replay.perform_epoch()
        ended_s, used_s = time.monotonic(), time.process_time() - cpu_s
        replay.close()
    return {
        "verify_s": verify_s,
        "restore_s": restored_s - began_s,
        "perform_s": ended_s - begun_s,
        "cpu_s": used_s,
        "recorded_s": (recording.time_ns(last + 1) - recording.time_ns(first)) / 1e9,
        "events": replay.cone.events,
        "channels": replay.cone.verified,
        "records": _read(replay) - began,
        "keys": keys,
    }


def _verify_s(recording: Recording, job: Path, last: int, scratch: Path, tasks: Sequence[str]) -> float:
    began_s = time.monotonic()
    verify(recording, job, recording.epochs()[0], last, scratch, tasks)
    return time.monotonic() - began_s


def _read(replay: Replay) -> int:
    """Return the sum of the positions up to which sources have been read."""
    return sum(
        each.next for task in replay.cone.replays.values() for each in task.inputs if isinstance(each, Partition)
    )


def _keys(chain: OperatorChain) -> int:
    """Return for how many keys the operators of a chain keep state."""
    return sum(1 for stage in chain.stages for _ in stage.kept_keys())


if __name__ == "__main__":
    print(json.dumps(performed(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])))
