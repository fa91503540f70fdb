"""`causal recordings`: shows what of a job can be replayed, while it runs and afterwards; nothing is changed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causal.config import JobConfig
from causal.recording_window import OFF
from deploy.jobs.chosen import add_job, chosen_job
from deploy.printable import printable
from deploy.progress.progress_model import in_bytes
from deploy.savepoints.savepoint_list import CODE_DIGITS

if TYPE_CHECKING:
    from operators.recordings.recording import Recording

FAILURES_SHOWN = 10
"""The number of latest failures that are listed; `--json` has all."""


def add_parser(commands: Any) -> None:
    """Add the command to those of `causal`."""
    listing = commands.add_parser("recordings", help="show what of a job can be replayed")
    add_job(listing)
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(act=recordings)


def recordings(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: there is no such job, or it has no recording.
        CorruptData: the recording is damaged, or was written by another version.
        Unavailable: the store of the recording does not answer.
    """
    from operators.recordings.recording import open_recording

    job = chosen_job(arguments)
    recording, config = open_recording(job), JobConfig.load(job)
    if arguments.json:
        print(json.dumps(as_json(recording, job, config), indent=1))
    else:
        print(*map(printable, lines_of(recording, config)), sep="\n")
    return 0


def as_json(recording: Recording, job: Path, config: JobConfig) -> dict[str, Any]:
    """Return what can be replayed as values of JSON; times are in ns since 1970."""
    tail = recording.tail()
    return {
        "job": config.name,
        "directory": str(job),
        "window": config.record,
        "bytes": recording.bytes(),
        "stretches": [
            {
                "first": each.start,
                "last": each.stop - 1,
                "from_ns": recording.time_ns(each.start),
                "to_ns": recording.time_ns(each.stop),
            }
            for each in recording.stretches()
        ],
        "unfinished": None
        if tail is None
        else {"first": tail.epochs.start, "last": tail.epochs[-1], "to_ns": tail.ended_ns},
        "checkpoints": [{"epoch": each, "at_ns": recording.time_ns(each)} for each in recording.checkpoints()],
        "versions": [
            {
                "number": each.number,
                "code": each.config.code,
                "settings": dict(each.config.settings),
                "first": each.first,
                "last": each.last,
                "tasks": list(each.tasks),
            }
            for each in recording.versions
        ],
        "failures": [
            {
                "task": each.task,
                "epoch": each.epoch,
                "at_ns": each.at_ns,
                "mode": each.mode,
                "replayed_elements": None if each.replayed_elements < 0 else each.replayed_elements,
                "log_bytes": each.log_bytes,
                "cause": each.cause,
            }
            for each in recording.failures()
        ],
    }


def lines_of(recording: Recording, config: JobConfig) -> Iterator[str]:
    """Yield the lines for people."""
    from operators.recordings.recording import shown_time

    window = "it records no longer" if config.record == OFF else f"window {config.record}"
    kept = recording.checkpoints()
    yield f"{config.name}: {window}; {in_bytes(recording.bytes())}, {len(kept)} checkpoints"
    stretches = recording.stretches()
    for each in stretches:
        since, until = shown_time(recording.time_ns(each.start)), shown_time(recording.time_ns(each.stop))
        yield f"epochs {each.start:,} to {each.stop - 1:,}: {since} to {until}"
        for version in recording.versions:
            if version.first in each and version.last >= version.first:
                code = version.config.code[:CODE_DIGITS]
                yield f"  version {version.number}: epochs {version.first:,} to {version.last:,}, code {code}"
    tail = recording.tail()
    if tail is not None:
        yield f"epoch {tail.epochs.start:,}, unfinished: until {shown_time(tail.ended_ns)}"
    elif not stretches:
        yield "no epoch is complete yet; there is one after the next checkpoint"
    failures = recording.failures()
    if len(failures) > FAILURES_SHOWN:
        yield f"{len(failures) - FAILURES_SHOWN:,} earlier failures; --json has all"
    for failure in failures[-FAILURES_SHOWN:]:
        cause, at = f": {failure.cause}" if failure.cause else "", shown_time(failure.at_ns)
        yield f"failure of {failure.task} in epoch {failure.epoch:,}, {at} ({failure.mode}){cause}"
