"""Runs `causal diff`: performs new code on the recorded stream of a job next to the recorded code, and reports.

Exit status: 0 if no row differs, 3 if some do, 2 for wrong usage, 1 if the recording cannot be read. The job, its
stores and its recording are not changed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from causal.errors import PipelineError
from deploy import settings
from deploy.diffing.document import Document, document_of, json_of, lines_of
from deploy.diffing.interval import Interval, interval_of
from deploy.diffing.page import page_of
from deploy.exit_status import DONE
from deploy.jobs import versions
from deploy.jobs.chosen import chosen_job
from deploy.plan_command import explicit_settings
from deploy.printable import printable
from operators.builder.pipeline_settings import asking_again
from operators.code_archive.archive import Archive
from operators.engine.counted_partitions import fixing_partitions
from operators.engine.plan import Plan, plan
from operators.recordings.recording import open_recording, shown_time
from operators.replay.answers import LIVE, REFUSE
from operators.replay.pairing import FIELD, RowKey, row_key
from operators.replay.recorded_answers import record_answers
from operators.replay.side_by_side import Outcome, Scene, Version, compare

DIFFERENT = 3
"""The exit status if a row differs."""
PROGRESS_S = 5.0
CODE_DIGITS = 12


def diff(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: wrong usage, code that does not load or cannot continue, or an interval that is not recorded.
        CorruptData: the recording is damaged.
        Unavailable: the recorded input cannot be read, or the store of the recording does not answer.
    """
    job, rule = chosen_job(arguments), _rule(arguments.calls or REFUSE)
    if arguments.last is not None and arguments.epoch is not None:
        raise PipelineError("--last and --epoch both name the interval; use only one of them")
    for path in filter(None, (arguments.html, arguments.json)):
        if path != "-" and not Path(path).absolute().parent.is_dir():
            raise PipelineError(f"{path}: there is no such directory; create it first")
    keys = _keys(arguments.row_keys)
    with tempfile.TemporaryDirectory(prefix="causal-diff-") as scratch:
        recording = open_recording(job, Path(scratch))
        interval = interval_of(recording, arguments.epoch, arguments.last)
        new, planned = _new(arguments, interval)
        for name in keys:
            if name not in {node.name for node in planned.operators if node.kind == "sink"}:
                raise PipelineError(f"--key {name}: the new code has no sink {name!r}")
        recorded = Version(interval.version.config, recording.archive(interval.version))
        path, number = record_answers(recording, job, interval.first, interval.last, interval.asking(), Path(scratch))
        scene = Scene(interval.checkpoint, job, path, rule, interval.steps)
        outcome = compare(recorded, new, scene, _key_of(planned, keys), _progress(interval))
    document = document_of(outcome, _facts(interval, new, planned, Path(arguments.code), rule, number))
    _report(document, arguments)
    return DIFFERENT if outcome.differs else DONE


def _new(arguments: argparse.Namespace, interval: Interval) -> tuple[Version, Plan]:
    path, explicit = Path(arguments.code).absolute(), explicit_settings(arguments)
    before = interval.version.config
    unfixed = replace(before, settings=asking_again(before.settings))
    config = settings.resumed(unfixed, path, explicit, arguments.config)
    loaded = versions.first(path, dict(config.settings))
    if loaded.pipeline.name != before.name:
        raise PipelineError(
            f"{path} defines the pipeline {loaded.pipeline.name!r}, but the recording is of {before.name!r}; name it "
            f"Pipeline({before.name!r})"
        )
    settings.check_read(explicit, loaded.pipeline.settings, arguments)
    planned = plan(loaded.pipeline, config)
    config = fixing_partitions(planned, config)
    archive: Archive = loaded.planned(planned).archive
    return Version(config, archive, arguments.allow_dropped_state), planned


def _rule(calls: str) -> str:
    if calls in (REFUSE, LIVE):
        return calls
    path = Path(calls).absolute()
    if not path.is_file():
        raise PipelineError(f"--calls {calls}: there is no such file; use a file with functions, refuse or live")
    return str(path)


def _keys(options: list[str]) -> dict[str, RowKey]:
    keys: dict[str, RowKey] = {}
    for option in options:
        sink, equals, fields = option.partition("=")
        names = tuple(filter(None, fields.split(",")))
        if not equals or not sink or not names:
            raise PipelineError(f"--key {option}: use SINK=FIELD, or SINK=FIELD,FIELD")
        keys[sink] = RowKey(FIELD, names)
    return keys


def _key_of(planned: Plan, keys: Mapping[str, RowKey]) -> Callable[[str, Any], RowKey]:
    sinks = {node.name: node for node in planned.operators if node.kind == "sink"}

    def key_of(sink: str, sample: Any) -> RowKey:
        if sink in keys:
            return keys[sink]
        return row_key(sinks[sink], sample) if sink in sinks else RowKey()

    return key_of


def _progress(interval: Interval) -> Callable[[Outcome], None]:
    """Return what reports the progress on a terminal."""
    if not sys.stderr.isatty():
        return lambda outcome: None
    total, shown_s = interval.elements(), time.monotonic()

    def report(outcome: Outcome) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s >= PROGRESS_S:
            shown_s = time.monotonic()
            differs = "rows differ" if outcome.comparison.differs else "no row differs"
            print(f"causal: {outcome.performed:,} of {total:,} records, {differs}", file=sys.stderr)

    return report


def _facts(interval: Interval, new: Version, planned: Plan, file: Path, rule: str, answers: int) -> dict[str, Any]:
    return {
        "job": interval.version.config.name,
        "code": {
            "file": file.name,
            "recorded": interval.version.config.code[:CODE_DIGITS],
            "new": new.archive.digest[:CODE_DIGITS],
        },
        "interval": {
            "first": interval.first,
            "last": interval.last,
            "wanted": interval.wanted,
            "from": shown_time(interval.began_ns),
            "to": shown_time(interval.ended_ns),
            "from_ns": interval.began_ns,
            "to_ns": interval.ended_ns,
            "version": interval.version.number,
        },
        "sources_new": [name for name in planned.sources if name not in interval.sources],
        "sources_gone": [name for name in interval.sources if name not in planned.sources],
        "calls": {"rule": rule, "recorded": answers},
    }


def _report(document: Document, arguments: argparse.Namespace) -> None:
    if arguments.json == "-":
        print(json_of(document), flush=True)
    else:
        print(*map(printable, lines_of(document)), sep="\n", flush=True)
    if arguments.json not in (None, "-"):
        Path(arguments.json).write_text(json_of(document) + "\n")
    if arguments.html is not None:
        Path(arguments.html).write_text(page_of(document))
