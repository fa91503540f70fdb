"""`causal upgrade --canary`: both versions perform what a job reads, outside the job, and are compared (0042).

Nothing of the job is changed: its checkpoints are read, and the processes that perform the versions end with the
command.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

from causal.commands import Files
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import CorruptData, OperatorFailed, PipelineError
from causal.storage.files import read_parts
from deploy.changes.conversion import Version
from deploy.savepoints.upgrading import read_saved, written_by
from operators.code_archive.archive import Archive
from operators.replay.comparison import Comparison
from operators.replay.input_steps import Positions, count, positions_in, steps_between
from operators.replay.performance import Checkpoint, Step
from operators.replay.performer import Performer
from standby.blueprint import Blueprint
from standby.storage.manifest_files import newest_manifest

LOADED_S, LOOK_S = 600.0, 0.05
"""The time that the versions have to load their state, and the interval between two looks for a checkpoint."""
AHEAD_MAX = 32
"""The most steps that a version has received and not answered, so that it need not wait for the other one."""
READS_MAX = 5
"""The number of attempts to read a checkpoint that later ones replace meanwhile."""

CURRENT, NEW = "the current version", "the new version"

Answered = TypeVar("Answered")


@dataclass(slots=True)
class Canary:
    """The result of a comparison.

    Attributes:
        epoch: the checkpoint from which both versions were performed.
        performed: the number of elements that both versions have performed.
        read: the number of elements that the job has read since the checkpoint.
        took_s: the time of the comparison.
        unread: the sources of the next version that the job does not read yet.
        failures: the errors of the versions that have failed, by name.
    """

    epoch: int
    performed: int = 0
    read: int = 0
    took_s: float = 0.0
    comparison: Comparison = field(default_factory=Comparison)
    unread: Sequence[str] = ()
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The reason for which the upgrade must not follow; empty if the versions have the same rows."""
        if self.failures:
            return f"{' and '.join(self.failures)} failed"
        if self.comparison.differs:
            return "the rows differ"
        return "" if self.comparison.rows else "there were no rows to compare"

    def lines(self) -> Iterator[str]:
        """Return the result as text."""
        rate = f"{self.performed / max(self.took_s, 0.001):,.0f}/s"
        yield (
            f"canary: {self.performed:,} records in {self.took_s:.1f} s ({rate}), of {self.read:,} that the job has "
            f"read since checkpoint {self.epoch}"
        )
        for source in self.unread:
            yield f"source {source!r} is new, so its input is not part of the comparison"
        for name, sink in sorted(self.comparison.sinks.items()):
            yield (
                f"{name}: {sink.same:,} rows are the same, {sink.only_before:,} only of the current version, "
                f"{sink.only_after:,} only of the new version"
            )
            yield from (f"  {each.shown()}" for each in sink.first())
        if self.comparison.full:
            yield "the comparison ended early, because too many rows differ"
        yield from (f"{version} failed: {problem}" for version, problem in self.failures.items())

    def document(self) -> str:
        """Return the result as one line of JSON."""
        sinks: dict[str, Any] = {
            name: {
                "same": sink.same,
                "only_current": sink.only_before,
                "only_new": sink.only_after,
                "first": [
                    {
                        "surplus": each.surplus,
                        "task": each.task,
                        "source": each.step.source,
                        "partition": each.step.partition,
                        "positions": [each.step.start, each.step.stop],
                        "row": each.row,
                    }
                    for each in sink.first()
                ],
            }
            for name, sink in sorted(self.comparison.sinks.items())
        }
        facts = {"checkpoint": self.epoch, "performed": self.performed, "read": self.read, "took_s": self.took_s}
        others = {"unread": list(self.unread), "failures": self.failures, "verdict": self.verdict, "sinks": sinks}
        return json.dumps({**facts, **others})


def compare(job: Path, before: JobConfig, version: Version, seconds: float) -> Canary:
    """Perform the current and the next version of a running job for some seconds of its input, and compare their rows.

    Raises:
        PipelineError: the job cannot change to this version, or one of them cannot be performed outside the job.
        CorruptData: the files of the job cannot be read.
    """
    checkpoint, positions = _latest(job)
    known = {source for source, _ in positions}
    canary = Canary(checkpoint.epoch, unread=[name for name in version.planned.sources if name not in known])
    current = Performer(before, Archive.load(job, before.code), checkpoint, False, job)
    with current, Performer(version.config, version.archive, checkpoint, version.allow_dropped, job) as new:
        following = _Following(job, checkpoint, positions, canary, {CURRENT: current, NEW: new})
        del checkpoint  # it may be large, and the processes have their own copy
        following.perform(seconds)
    return canary


class _Following:
    """The performance of the input that a job reads after a checkpoint, as later checkpoints complete."""

    def __init__(
        self, job: Path, checkpoint: Checkpoint, begun: Positions, canary: Canary, versions: Mapping[str, Performer]
    ) -> None:
        self._job = job
        self._topology = checkpoint.topology
        self._begun = begun
        self._epoch = 0
        self._canary = canary
        self._versions = versions
        self._pending: deque[Step] = deque()
        """The steps that the versions have received and not answered."""

    def perform(self, seconds: float) -> None:
        """Perform until the time is over, the input has ended, a version fails or too many rows differ."""
        self._ask(lambda version: version.await_begun(LOADED_S))
        began_s, reached_ns = time.monotonic(), time.time_ns()
        # The end of a partition that had ended before the checkpoint is reported once more to its operators.
        at: Positions = {partition: (position, False) for partition, (position, _) in self._begun.items()}
        while not self._over and (left_s := began_s + seconds - time.monotonic()) > 0:
            newest = self._newest()
            if newest is None:
                if at and all(ended for _, ended in at.values()):
                    break
                time.sleep(min(LOOK_S, left_s))
                continue
            now_ns = time.time_ns()
            self._canary.read = count(self._begun, newest)
            for step in chain(steps_between(at, newest, reached_ns, now_ns), repeat(None, AHEAD_MAX)):
                if self._over or time.monotonic() - began_s >= seconds:
                    break
                self._perform(step)
            at, reached_ns = newest, now_ns
        self._canary.took_s = time.monotonic() - began_s

    @property
    def _over(self) -> bool:
        return bool(self._canary.failures) or self._canary.comparison.full

    def _perform(self, following: Step | None) -> None:
        """Begin a step, if there is one; await an earlier one if as many have begun as may, or if none follows."""
        if following is not None:
            self._pending.append(following)
            for version in self._versions.values():
                version.perform([following])
            if len(self._pending) < AHEAD_MAX:
                return
        if not self._pending:
            return
        step = self._pending.popleft()
        rows = self._ask(lambda version: version.performed().rows()[0])
        if not self._canary.failures:
            self._canary.performed += step.stop - step.start
            self._canary.comparison.add(step, rows[CURRENT], rows[NEW])

    def _ask(self, question: Callable[[Performer], Answered]) -> dict[str, Answered]:
        """Return the answer of each version, and record the errors of those that fail."""
        answers: dict[str, Answered] = {}
        for name, version in self._versions.items():
            try:
                answers[name] = question(version)
            except OperatorFailed as problem:
                self._canary.failures[name] = str(problem)
        return answers

    def _newest(self) -> Positions | None:
        """Return the positions of the latest checkpoint if it has not been returned before."""
        newest = newest_manifest(self._job)
        if newest is None or newest[0] == self._epoch:
            return None
        epoch, files = newest
        readers = [str(task.name) for task in self._topology.tasks if self._topology.is_source(task.index)]
        try:
            cuts = {name: _cut(self._job, files[name]) for name in readers}
        except CorruptData:  # a later checkpoint has replaced it meanwhile
            return None
        except KeyError:
            raise PipelineError(f"the job in {self._job} has changed meanwhile; repeat the command") from None
        self._epoch = epoch
        return positions_in(self._topology, cuts)


def _cut(job: Path, files: Files) -> Cut:
    path, _, digest = files[-1]
    return Cut.unpack(read_parts(job / path, digest)[0])


def _latest(job: Path) -> tuple[Checkpoint, Positions]:
    """Return the latest checkpoint of a job, and the positions of its partitions.

    Raises:
        PipelineError: there is none.
        CorruptData: its files cannot be read.
    """
    left = READS_MAX
    while True:
        try:
            return _read(job)
        except CorruptData:  # a later checkpoint has replaced it meanwhile, unless this remains so
            left -= 1
            if not left:
                raise


def _read(job: Path) -> tuple[Checkpoint, Positions]:
    newest, topology = newest_manifest(job), Blueprint.load(job).topology
    if newest is None:
        raise PipelineError(f"the job in {job} has not completed a checkpoint yet; repeat the command later")
    epoch, files = newest
    saved = [read_saved(job, task, files[task.name], epoch) for task in topology.tasks]
    positions = positions_in(topology, {each.task.name: each.cut for each in saved})
    return Checkpoint(epoch, topology, saved, lambda: written_by(job)), positions
