"""Measures how long people wait for `causal replay`, `diff` and `lineage`: whole commands, from start to exit."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.harness import children
from benchmarks.harness.declared import Measurement
from benchmarks.harness.runs import RunFailed, ended_cpu_s, last_line
from benchmarks.replay.recorded_jobs import EACH_SECOND, ORDERS, Recorded, recorded, recorded_records, replayed
from operators.recordings.recording import open_recording

TASK = "total/0"
FILL = 6
"""The records per key of the job in which `causal replay` stops."""
RATE, HOUR_S = 1_000, 3_600.0
VERSIONS: Mapping[str, tuple[tuple[str, ...], int]] = {"same": ((), 0), "changed": (("--set", "limit=990"), 3)}
"""Versions of the code that are compared with the recorded one, and the exit status; one row in a hundred changes."""


def stop(run: Measurement) -> None:
    """Measure the first stop of `causal replay` after a kept checkpoint that has all keys."""
    options = run.options
    with _many_keys(run) as job:
        recording = open_recording(job.job)
        epoch = next(each for each in reversed(recording.checkpoints()) if each in recording.epochs())
        for number in run.rounds():
            words = ("--task", TASK, "--epoch", epoch, "--break", "operator == 'total'")
            run.add("stop.first_s", took_s("replay", job.job, words, options.limit))
            at = replayed(job.job, epoch, TASK, options.limit)
            if at["keys"] < options.keys:
                raise RunFailed(f"the checkpoint has {at['keys']} keys of {options.keys}; give the job more records")
            run.add_all("stop.", {"restore_s": at["restore_s"], "epoch_s": at["perform_s"]})
            run.report(
                f"round {number}: first stop after {run.last('stop.first_s'):.2f} s, of which state takes"
                f" {at['restore_s']:.2f} s; its epoch is performed in {at['perform_s']:.2f} s"
            )


def lineage(run: Measurement) -> None:
    """Measure `causal lineage` of a row in the last recorded epoch of such a job."""
    with _many_keys(run) as job:
        row = recorded_records(open_recording(job.job), "orders") - 1
        for number in run.rounds():
            run.add("lineage.row_s", took_s("lineage", job.job, ("out", row), run.options.limit))
            run.report(f"round {number}: lineage of row {row:,} in {run.last('lineage.row_s'):.2f} s")


def _many_keys(run: Measurement) -> AbstractContextManager[Recorded]:
    """Return a recorded job that keeps checkpoints with all keys."""
    options = run.options
    settings = {"count": FILL * options.keys, "keys": options.keys, "rate": 0, "parallelism": 1}
    return recorded(ORDERS, settings, options.limit, (EACH_SECOND,))


def diff(run: Measurement) -> None:
    """Measure `causal diff` of orders that were recorded in real time, for the same code and for other code."""
    options = run.options
    if options.recorded != Path():
        _diffs(run, options.recorded)
        return
    settings = {"count": int(RATE * options.diff_seconds), "rate": RATE}
    with recorded(ORDERS, settings, options.limit + options.diff_seconds) as job:
        _diffs(run, job.job)


def _diffs(run: Measurement, job: Path) -> None:
    """Compare the whole recording, and one epoch, so that what an hour would take can be computed."""
    recording = open_recording(job)
    first, last = recording.epochs()[0], recording.epochs()[-1]
    covered_s = (recording.time_ns(last + 1) - recording.time_ns(first)) / 1e9
    for number in run.rounds():
        for name, (words, status) in VERSIONS.items():
            code = ("--code", ORDERS, *words)
            before_s = ended_cpu_s()
            one_s = took_s("diff", job, (*code, "--epoch", f"{first}..{first}"), run.options.limit, status)
            between_s = ended_cpu_s()
            whole_s = took_s("diff", job, (*code, "--epoch", f"{first}..{last}"), run.options.limit, status)
            cpu_s = between_s - before_s, ended_cpu_s() - between_s
            figures = {
                "one_epoch_s": one_s,
                "whole_s": whole_s,
                "hour_s": one_s + (whole_s - one_s) * HOUR_S / covered_s,
                "hour_cpu_s": cpu_s[0] + (cpu_s[1] - cpu_s[0]) * HOUR_S / covered_s,
            }
            run.add_all(f"diff.{name}.", figures)
            run.report(
                f"round {number}, {name}: {covered_s:.0f} s in {whole_s:.1f} s, an hour in {figures['hour_s']:.0f} s"
                f" and {figures['hour_cpu_s']:.0f} s of CPU"
            )


def took_s(command: str, job: Path, words: Sequence[object], limit_s: float, status: int = 0) -> float:
    """Return the time of one command about a job, from the start of its interpreter to its exit.

    Raises:
        RunFailed: it ended with another status.
    """
    env = {**os.environ, "PYTHONPATH": str(children.ROOT)}
    began_s = time.monotonic()
    ended = children.run([sys.executable, "-P", "-m", "deploy", command, str(job), *map(str, words)], limit_s, env)
    if ended.returncode != status:
        raise RunFailed(f"causal {command} ended with {ended.returncode}, not {status}: {last_line(ended.stderr)}")
    return time.monotonic() - began_s
