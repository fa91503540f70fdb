"""Runs `causal explain-divergence`: performs a recording in several processes, and compares what they observe.

Exit status: 0 if no performance differs; 3 if some does, and it is explained; 1 if a performance fails; 2 for wrong
usage. The job, its stores and its recording are not changed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from causal.errors import Unavailable
from deploy.exit_status import DONE
from deploy.jobs.chosen import chosen_job
from deploy.printable import printable
from operators.code_archive.archive import other_versions
from operators.code_archive.reach import versions_now
from operators.recordings.recording import Recording, open_recording
from operators.replay.causes import Cause, cause_of, questions_of
from operators.replay.difference import Difference, first_difference
from operators.replay.user_trace import Question, Step
from standby.host.room import HASH_SEED

DIVERGED = 3
EPOCHS_MAX = 100
FRESH_MAX = 3
"""The number of states from which a fresh process begins."""
PERFORMANCE_S = 600.0
OTHER_SEED = "1"


@dataclass(slots=True)
class Explanation:
    """A divergence, and why it happens.

    Attributes:
        problem: the task, the epoch, and how its replay differs.
        cause: the likely cause.
        event: the number of the first event that differs, from 1; 0 if it is not known.
        arrived: the operator that it reaches there, the key, the record and the kind of event, as text.
        difference: the first difference of the user's code; None if there is none.
        labels: the performances to which the two values belong.
        performed: what was done, one line each.
    """

    problem: Mapping[str, Any]
    cause: Cause
    event: int = 0
    arrived: Sequence[Any] = ()
    difference: Difference | None = None
    labels: tuple[str, str] = ("", "")
    performed: list[str] = field(default_factory=list)


class Performances:
    """The performances of one recording, each in a process of its own, and lines that say what each has shown."""

    def __init__(self, job: Path, scratch: Path) -> None:
        self.said: list[str] = []
        self._job = job
        self._scratch = scratch
        self._number = 0

    def perform(
        self,
        first: int,
        last: int,
        target: tuple[str, int, int] | None = None,
        seed: str = HASH_SEED,
        *,
        begins: Any = None,
        saves: bool = False,
    ) -> dict[str, Any]:
        """Return what a performance of these epochs has observed.

        Args:
            target: the task, epoch and number of the event of which a trace is kept.
            begins: the state from which it begins, as a performance with `saves` has returned it.

        Raises:
            Unavailable: it failed, or took too long.
        """
        self._number += 1
        place = self._scratch / str(self._number)
        place.mkdir()
        request, result = place / "request.json", place / "result.json"
        asked = {
            "job": str(self._job.resolve()), "scratch": str(place), "first": first, "last": last, "target": target,
            "begins": begins, "saves": saves,
        }  # fmt: skip
        request.write_text(json.dumps(asked))
        command = [sys.executable, "-P", "-m", "operators.replay.evidence", str(request), str(result)]
        home = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
        try:
            done = subprocess.run(
                command, env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", timeout=PERFORMANCE_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Unavailable(f"a performance of epochs {first} to {last} took more than {PERFORMANCE_S:g} s") from None
        if not result.exists():
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise Unavailable(f"a performance of epochs {first} to {last} failed: {lines[-1]}")
        observed: dict[str, Any] = json.loads(result.read_text())
        if target is None and not saves:
            problem = observed["problem"]
            shown = f"differs in epoch {problem['epoch']}, {problem['task']}" if problem else "as recorded"
            other = "" if seed == HASH_SEED else ", with another hash seed"
            self.said.append(f"epochs {first} to {last} in a fresh process{other}: {shown}")
        return observed


def explain(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    Raises:
        PipelineError: wrong usage, or nothing is recorded.
        CorruptData: the recording is damaged.
        Unavailable: a performance failed, or the store of the recording does not answer.
    """
    job = chosen_job(arguments)
    with tempfile.TemporaryDirectory(prefix="causal-explain-") as directory:
        recording = open_recording(job, Path(directory) / "recording")
        epochs = _range(recording, arguments.epoch)
        performances = Performances(job, Path(directory))
        explanation = _explained(recording, epochs, performances)
    if explanation is None:
        line = f"epochs {epochs[0]} to {epochs[-1]}: no divergence in {len(performances.said)} performances"
        facts = {"divergence": None, "performed": performances.said}
        print(json.dumps(facts, indent=1) if arguments.json else line)
        return DONE
    explanation.performed = performances.said
    if arguments.json:
        print(json.dumps(_facts(explanation), indent=1))
    else:
        print(*map(printable, lines_of(explanation)), sep="\n")
    return DIVERGED


def _range(recording: Recording, epoch: int | None) -> range:
    """Return the epochs to examine, from a kept checkpoint on.

    Raises:
        PipelineError: nothing, or not this epoch, is recorded.
    """
    recorded = recording.epochs()
    last = epoch if epoch is not None else max(recorded.stop - 1, recorded.start)
    version = recording.version_at(last)
    first = max(version.first, recorded.start if last in recorded else version.first, last - EPOCHS_MAX)
    return range(recording.start_of(first), last + 1)


def _explained(recording: Recording, epochs: range, performances: Performances) -> Explanation | None:
    """Return why performances differ from the recording, or None if none does."""
    first, last = epochs[0], epochs[-1]
    whole = performances.perform(first, last)
    if whole["problem"]:
        epoch = whole["problem"]["epoch"]
        start = recording.start_of(epoch)
        one, fresh = whole, False
        if start > first:
            near = performances.perform(start, epoch)
            if near["problem"] is None:
                return _compared(recording, performances, (start, first), near, whole, fresh=True)
            first, one = (start, near) if near["problem"]["epoch"] == epoch else (first, whole)
        again = performances.perform(first, epoch)
        return _compared(recording, performances, (first, first), one, again, fresh=fresh)
    starts = range(first + 1, last + 1)
    for start in reversed(starts[:: max(1, len(starts) // FRESH_MAX)]):
        begins = performances.perform(first, start - 1, saves=True)["saved"]
        near = performances.perform(start, last, begins=begins)
        if near["problem"]:
            whole = performances.perform(first, near["problem"]["epoch"])
            return _compared(recording, performances, (first, start), whole, near, fresh=True, begins=begins)
    return None


def _compared(
    recording: Recording,
    performances: Performances,
    starts: tuple[int, int],
    one: Any,
    other: Any,
    *,
    fresh: bool,
    begins: Any = None,
) -> Explanation:
    """Return the explanation of a divergence, from two performances.

    Args:
        starts: the epochs at which they begin.
        fresh: whether the first is like the recording.
        begins: the state from which the second begins.
    """
    problem = one["problem"] or other["problem"]
    task, epoch = problem["task"], problem["epoch"]
    seeds, hashes = [HASH_SEED, HASH_SEED], False
    number = _first_event(one, other, task)
    if number < 0 and not fresh:
        hashed = performances.perform(starts[0], epoch, seed=OTHER_SEED)
        number = _first_event(one, hashed, task)
        hashes, seeds[1] = number >= 0, OTHER_SEED if number >= 0 else HASH_SEED
    traces = [
        performances.perform(start, epoch, (task, epoch, number), seed, begins=state)
        for start, seed, state in zip(starts, seeds, (None, begins), strict=True)
    ]
    one_steps, other_steps = [
        [Step(**{**each, "ordered": tuple(each["ordered"])}) for each in trace["steps"]] for trace in traces
    ]
    difference = (
        first_difference(one_steps, other_steps, {**traces[1]["uses"], **traces[0]["uses"]}) if number >= 0 else None
    )
    asked: list[Question] = questions_of([*traces[0]["asked"], *traces[1]["asked"]])
    archive = recording.archive(recording.version_at(epoch))
    cause = cause_of(
        difference, asked, one["changed"].get(task, []), fresh=fresh, hashes=hashes,
        versions=list(other_versions(archive, versions_now(archive))),
    )  # fmt: skip
    step = difference.step if difference is not None else 0
    before = [each for each in traces[0]["arrivals"] if each[0] <= step]
    labels = ("as recorded", "in a fresh process") if fresh else ("in one replay", "in another replay")
    if hashes:
        labels = ("with the job's hash seed", "with another hash seed")
    return Explanation(problem, cause, number + 1, before[-1][1:] if before else (), difference, labels)


def _first_event(one: Mapping[str, Any], other: Mapping[str, Any], task: str) -> int:
    """Return the number of the first event of a task that differs, from 0; -1 if none does."""
    events, others = one["events"].get(task, []), other["events"].get(task, [])
    for number, (digest, another) in enumerate(zip(events, others, strict=False)):
        if digest != another:
            return number
    return -1 if len(events) == len(others) else min(len(events), len(others))


def lines_of(explanation: Explanation) -> list[str]:
    """Return an explanation as people read it."""
    problem, cause, difference = explanation.problem, explanation.cause, explanation.difference
    event = f", event {explanation.event}" if explanation.event else ""
    lines = [f"{problem['task']}, epoch {problem['epoch']}{event}: {problem['text']}"]
    if explanation.arrived:
        operator, key, record, kind = explanation.arrived
        lines += [f"  operator  {operator}", f"  {kind:<8}  {record}", f"  key       {key}"]
    if problem["state"]:
        operator, key, before, after = problem["state"]
        lines += [
            f"  state     of key {key} of {operator!r}",
            f"            {before}  as recorded",
            f"            {after}",
        ]
    if cause.file:
        lines.append(f"  code      {cause.file}:{cause.line} in {cause.function}")
    if difference is not None:
        lines.append(f"  value     {'the lines that follow' if not difference.name else difference.name}")
        for value, label in zip((difference.before, difference.after), explanation.labels, strict=True):
            lines.append(f"            {value}  {label}")
    lines += [f"  cause     {cause.what}", f"  remedy    {cause.remedy}"]
    if difference is None:
        lines.append("  limit     the performances do not differ from each other, so the recorded value is not known")
    return [
        *lines,
        *(f"  {'tried' if not place else '':<9} {line}" for place, line in enumerate(explanation.performed)),
    ]


def _facts(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation for programs."""
    problem, cause, difference = explanation.problem, explanation.cause, explanation.difference
    names = ("operator", "key", "record", "kind")
    return {
        "divergence": {"task": problem["task"], "epoch": problem["epoch"], "text": problem["text"]},
        "event": explanation.event or None,
        **dict(zip(names, explanation.arrived or (None,) * 4, strict=True)),
        "cause": {**asdict(cause), "remedy": cause.remedy},
        "value": None
        if difference is None
        else {
            "name": difference.name,
            explanation.labels[0]: difference.before,
            explanation.labels[1]: difference.after,
        },
        "performed": explanation.performed,
    }
