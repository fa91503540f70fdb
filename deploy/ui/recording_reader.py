"""Answers the page's questions about the recording of a job.

    python -m deploy.ui.recording_reader     a separate process, because the index of a day takes time and memory

It is the process of a `deploy.ui.child.Child`; each question is a JSON object. The recording is only read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import PipelineError
from causal.recorded_index import Interval
from causal.recording_window import OFF
from deploy.jobs.hints import job_argument, resume_command
from deploy.ui import replay_commands
from deploy.ui.child import answer_questions
from deploy.ui.models import WHY_MAX, because, settings
from deploy.ui.recorded_axis import SECOND_NS, Performed, axis, performed
from operators.recordings.recording import Recording, open_recording

TASKS_MAX = 1000
"""The number of tasks that are listed for an epoch, those with the largest logs first."""

OWN = ("run", "name", "pipeline", "code")
"""The settings that every job has of its own."""


class RecordingReader:
    """The recording of the job in a directory, which is opened once for each run of the job."""

    def __init__(self, job: Path) -> None:
        self._job = job
        self._run = ""
        self._recording: Recording | None = None
        self._intervals: Sequence[Interval] = ()
        self._epochs: list[Performed] = []

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a question.

        Raises:
            PipelineError: there is no recording, or it does not have what the question is about.
            CorruptData: the recording is damaged.
            Unavailable: its store does not answer.
        """
        config = JobConfig.load(self._job)
        recording = self._opened(config)
        if question["ask"] == "axis":
            if recording is None:
                return {"none": _none(self._job, config)}
            shown = axis(self._epochs, recording.entries_of_versions(), question["since_s"], question["until_s"])
            return {**shown, "job": config.name, "window": config.record, "bytes": recording.bytes()}
        if recording is None:
            raise PipelineError(_none(self._job, config))
        if question["ask"] == "epoch":
            return self._epoch(recording, question["epoch"])
        return self._failure(recording, question["epoch"], question["task"])

    def _opened(self, config: JobConfig) -> Recording | None:
        """Return the recording as it is now; None if nothing is recorded."""
        if self._recording is not None and config.run == self._run:
            self._recording.reload()
            if not self._recording.checkpoints():
                self._recording = None
        else:
            self._recording = None
        if self._recording is None:
            try:
                self._recording = open_recording(self._job)
            except PipelineError:
                return None
            self._run = config.run
        intervals = self._recording.intervals()
        if intervals is not self._intervals:
            self._intervals, self._epochs = intervals, performed(intervals)
        return self._recording

    def _epoch(self, recording: Recording, epoch: int) -> dict[str, Any]:
        version, start = recording.version_at(epoch), recording.start_of(epoch)
        place = next(place for place in reversed(range(len(self._epochs))) if self._epochs[place].entry.epoch == epoch)
        shown = self._epochs[place]
        logs = sorted(shown.entry.logs.items(), key=lambda log: -log[1][1])
        tasks = [{"task": task, "incarnation": number, "bytes": size} for task, (number, size) in logs]
        around = [
            self._epochs[other].entry.epoch if 0 <= other < len(self._epochs) else None
            for other in (place - 1, place + 1)
        ]
        return {
            "epoch": epoch,
            "since_s": round(shown.since_ns / SECOND_NS, 3),
            "until_s": round(shown.until_ns / SECOND_NS, 3),
            "before": around[0],
            "after": around[1],
            "version": version.number,
            "code": version.config.code[:12],
            "settings": [each for each in settings(version.config) if each["changed"] and each["name"] not in OWN],
            "start": start,
            "bytes": shown.entry.bytes,
            "tasks": tasks[:TASKS_MAX],
            "tasks_left_out": max(0, len(tasks) - TASKS_MAX),
            "failures": [{"task": each.task, "incarnation": each.incarnation} for each in shown.entry.failures],
            "commands": replay_commands.of_epochs(job_argument(self._job), epoch, epoch),
        }

    def _failure(self, recording: Recording, detected: int, task: str) -> dict[str, Any]:
        """Return the last failure of a task that was detected in an epoch."""
        of_task = [each for each in recording.failures(range(detected, detected + 1)) if each.task == task]
        if not of_task:
            raise PipelineError(f"no failure of {task} was detected in epoch {detected}")
        failure = of_task[-1]
        later = any(
            each.task == task for epoch in self._epochs if epoch.entry.epoch > detected for each in epoch.entry.failures
        )
        return {
            "task": task,
            "epoch": failure.epoch,
            "at_s": round(failure.at_ns / SECOND_NS, 3),
            "incarnation": failure.incarnation,
            "mode": failure.mode,
            "why": because(failure.cause)[:WHY_MAX],
            "replayed": None if failure.replayed_elements < 0 else failure.replayed_elements,
            "log_bytes": failure.log_bytes,
            "commands": replay_commands.of_failure(job_argument(self._job), task, failure.epoch, not later),
        }


def _none(job: Path, config: JobConfig) -> str:
    """Return a line for a job of which nothing is recorded."""
    if config.record != OFF:
        return "Nothing is recorded yet: the first epoch appears after the next checkpoint."
    return f"The job is not recorded. From now on it is, with: {resume_command(job)} --record"


def main() -> int:
    """Answer questions until standard input ends, or for a while there is none."""
    readers: dict[Path, RecordingReader] = {}

    def answer(job: Path, question: str) -> dict[str, Any]:
        reader = readers.setdefault(job, RecordingReader(job))
        return reader.answer(json.loads(question))

    return answer_questions(answer)


if __name__ == "__main__":
    sys.exit(main())
