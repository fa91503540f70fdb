"""The recording of a job under test, replayed whole: each epoch of each task again, and each channel verified.

All tasks together from the beginning of each version, and each task with its upstream tasks from a kept checkpoint.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from operators.recordings.recording import RecordedVersion, Recording, open_recording
from operators.replay.exact import Replay
from tests.faults.forked import forked_call
from tests.faults.job import WAIT_S, environment


def assert_replayed(job: Path, chance: random.Random) -> int:
    """Assert that all recorded epochs are the same again, and return how many there are.

    Args:
        job: the directory of a job that was recorded.
        chance: draws the checkpoint from which each task is replayed.
    """
    recording = open_recording(job)
    epochs = 0
    for version in recording.versions:
        epochs += version.last + 1 - version.first
        if version.last < version.first:
            continue
        _assert_replayed(recording, job, version, version.first, ())
        starts = [each for each in recording.checkpoints() if version.first <= each <= version.last]
        for task in version.tasks:
            _assert_replayed(recording, job, version, chance.choice(starts), (task,))
    return epochs


def _assert_replayed(
    recording: Recording, job: Path, version: RecordedVersion, first: int, tasks: Sequence[str]
) -> None:
    """Assert it of some tasks from a kept checkpoint on, in a process of its own, which loads the version's code."""

    def replay() -> int:
        with tempfile.TemporaryDirectory() as scratch:
            performed = Replay(recording, job, first, Path(scratch), tasks)
            assert performed.epoch == first
            while performed.epoch <= version.last:
                performed.perform_epoch()
            performed.close()
        channels = [
            len(recording.log(task, epoch).reached.outputs)
            for task in performed.tasks
            for epoch in range(first, version.last + 1)
        ]
        assert performed.cone.verified == sum(channels), "each channel is verified at each barrier"
        return 0

    name = f"version {version.number}, epochs {first} to {version.last} of {', '.join(tasks) or 'all tasks'}"
    ended = forked_call(replay, job.parent, (name,), environment(), WAIT_S)
    assert ended.returncode == 0, f"{name}: {ended.stderr}"
