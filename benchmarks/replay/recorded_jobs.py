"""Jobs that are recorded, and left in their directory for what reads the recording."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import JOBS, RunFailed, arguments, ended_cpu_s, output_of, printed_by
from operators.recordings.recording import Recording, open_recording

ORDERS = JOBS / "recorded_orders.py"
RECORD = "--record"
EACH_SECOND = "--record=1000s,10GB"
"""A window in which a checkpoint is kept about once a second."""
CHECKPOINTS = "--checkpoint-interval=1"


@dataclass(frozen=True)
class Recorded:
    """A recorded job that has ended: its directory, its report, and the CPU time of all its processes."""

    job: Path
    report: Mapping[str, Any]
    cpu_s: float


@contextmanager
def recorded(
    pipeline: Path, settings: Mapping[str, Any], limit_s: float, options: Sequence[str] = ()
) -> Iterator[Recorded]:
    """Run a job to its end with a recorder; its directory exists until the context ends.

    Raises:
        RunFailed: the job failed, or ended before an epoch was recorded.
    """
    with tempfile.TemporaryDirectory(prefix="causal-bench-") as name:
        place = Path(name)
        before_s = ended_cpu_s()
        output_of("deploy", arguments(place, pipeline, settings, (RECORD, CHECKPOINTS, *options), None), limit_s)
        cpu_s = ended_cpu_s() - before_s
        if not open_recording(place / "job").epochs():
            raise RunFailed("no epoch was recorded; give the job more records")
        yield Recorded(place / "job", json.loads((place / "report.json").read_text()), cpu_s)


def replayed(job: Path, epoch: int, task: str, limit_s: float) -> dict[str, float]:
    """Return what `performed` prints of a replay of a task."""
    return printed_by("benchmarks.replay.performed", job, epoch, task, limit_s=limit_s)


def recorded_records(recording: Recording, source: str) -> int:
    """Return how many records of a source its recorded epochs contain."""
    last = recording.epochs()[-1]
    tasks = [task for task in recording.version_at(last).tasks if task.startswith(f"{source}/")]
    cuts = [recording.log(task, last).reached for task in tasks]
    return sum(position for cut in cuts for position, _, _ in cut.inputs.values())
