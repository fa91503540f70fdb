"""The supervisor's part in the recording of a job: the recorder of each version, and the failures that it notes.

The supervisor imports this module only for a job that has a recording.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from causal.config import JobConfig
from causal.recorded_files import FailureEntry
from causal.storage.recording_places import place_of
from standby.blueprint import Blueprint
from standby.storage.recorded_sources import RecordedSources
from standby.storage.recorder import FAILURES_S, Recorder
from standby.supervision.recoveries import COLD, Timeline


def started_recorder(job: Path, config: JobConfig, tasks: Iterable[str], before: Recorder | None) -> Recorder:
    """Start the recorder of a version; `before` is that of the version before, which has been closed."""
    sources = RecordedSources(job, config, Blueprint.load(job))
    recorder = Recorder(lambda: place_of(job, config), config, tasks, sources, before)
    recorder.start()
    return recorder


def recent_failures(timeline: Timeline, now_ns: int, at_ns: int) -> list[FailureEntry]:
    """Return the latest failures.

    Args:
        now_ns, at_ns: the present time, of the supervisor's clock and of the day.
    """
    return [
        FailureEntry(
            each.task, each.incarnation, at_ns - (now_ns - each.detected_ns), each.mode or COLD,
            -1 if each.replayed_elements is None else each.replayed_elements, each.why or each.cause,
        )
        for each in timeline.since(now_ns - FAILURES_S * 1_000_000_000)
    ]  # fmt: skip
