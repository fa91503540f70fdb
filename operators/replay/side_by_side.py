"""Two versions of a pipeline, performed side by side on the same steps, and the comparison of their rows (0056).

The recorded version is some steps ahead, because the new code needs the answers that it was given.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import OperatorFailed
from operators.code_archive.archive import Archive
from operators.replay.answers import Unanswered
from operators.replay.comparison import Comparison
from operators.replay.observed_chain import Divergence, divergence, diverging
from operators.replay.pairing import RowKey
from operators.replay.performance import Checkpoint, Step
from operators.replay.performer import Outside, Performed, Performer

BATCH_STEPS, BATCH_ELEMENTS = 64, 4_096
"""The most steps of one message, and the elements after which no further step is added."""
AHEAD_MAX = 4
"""The most messages that a process has received and not answered."""
LOADED_S = 600.0
"""The time that the versions have to load their state."""

_PLACE = re.compile(r"[^\s'\"(]*\.py:\d+")
"""A place in code, which is in another file in the new code."""

RECORDED, NEW = "the recorded version", "the new code"


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a pipeline.

    Attributes:
        allow_dropped: whether state without an operator may be left behind.
    """

    config: JobConfig
    archive: Archive
    allow_dropped: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """The checkpoint, the input and the answers on which two versions are performed.

    Attributes:
        directory: the directory in which the input of the job is found.
        answers: the file of recorded answers; None if the recording has none.
        rule: `refuse`, `live` or the path of a file with functions, for other requests.
        steps: returns the steps; it is called once per pass.
    """

    checkpoint: Checkpoint
    directory: Path
    answers: Path | None
    rule: str
    steps: Callable[[], Iterable[Step]]


@dataclass(slots=True)
class Outcome:
    """The result of two performances.

    Attributes:
        performed: the number of elements that both versions have performed.
        steps: the number of steps.
        until_ns: the recorded time of the last step.
        took_s: the time of the comparison.
        failures: the errors of the versions that have failed, by name; both have the same error at the same step if
            `alike`.
        ended: why the comparison ended before the interval; empty if it did not.
        divergence: the first operator that emits something else; None if rows do not differ, or none was found.
        places: file:line of each operator of the new code.
        added, removed: the operators that only one version has.
    """

    comparison: Comparison
    performed: int = 0
    steps: int = 0
    until_ns: int = 0
    took_s: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)
    alike: bool = False
    ended: str = ""
    divergence: Divergence | None = None
    places: Mapping[str, str] = field(default_factory=dict)
    added: Sequence[str] = ()
    removed: Sequence[str] = ()

    @property
    def differs(self) -> bool:
        """Whether the versions differ in a row or an error."""
        return self.comparison.differs or bool(self.failures and not self.alike)


@dataclass(slots=True)
class _Answer:
    """The result of a batch of steps of one version, and the error that ended it."""

    performed: Performed
    failure: str = ""
    unanswered: bool = False


def compare(
    recorded: Version,
    new: Version,
    scene: Scene,
    key_of: Callable[[str, Any], RowKey],
    progress: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:
    """Perform both versions on all steps, and compare their rows; then search for the first divergence, if rows differ.

    Raises:
        PipelineError: a version cannot be performed from the checkpoint.
        CorruptData: the recording cannot be read.
    """
    outcome = Outcome(Comparison(key_of))
    began_s = time.monotonic()
    with ExitStack() as opened:
        pair = _Pair(recorded, new, scene, opened, observing=False)
        if pair.begun(outcome):
            for batch, answers in pair.answered(scene.steps()):
                if _add(batch, answers, outcome):
                    break
                progress(outcome)
    outcome.comparison.finish()
    if outcome.comparison.differs:
        outcome.divergence = _first_divergence(recorded, new, scene, outcome)
    outcome.took_s = time.monotonic() - began_s
    return outcome


def _first_divergence(recorded: Version, new: Version, scene: Scene, outcome: Outcome) -> Divergence | None:
    """Perform both versions once more, up to the first step whose rows differ, and observe their operators."""
    last = outcome.comparison.first
    known = outcome.places.keys() - set(outcome.added) | set(outcome.removed)
    with ExitStack() as opened:
        pair = _Pair(recorded, new, scene, opened, observing=True)
        if not pair.begun(Outcome(Comparison())):
            return None
        number = 0
        for batch, answers in pair.answered(islice(scene.steps(), last + 1)):
            before, after = (each.performed.observed for each in answers)
            for place, (old, own) in enumerate(zip(before, after, strict=False)):
                name = diverging(outcome.places, known, old, own)
                if name or number + place == last:
                    observed = [version.observed(place, name) for version in pair.versions]
                    result = divergence(name, observed[0], observed[1], batch[place])
                    return replace(result, place=outcome.places.get(name, ""), added=name in outcome.added)
            number += len(batch)
    return None


class _Pair:
    """The processes of both versions."""

    def __init__(self, recorded: Version, new: Version, scene: Scene, opened: ExitStack, observing: bool) -> None:
        self.versions: list[Performer] = []
        for version, leads in ((recorded, True), (new, False)):
            outside = Outside(scene.answers, scene.rule, leads)
            performer = Performer(
                version.config, version.archive, scene.checkpoint, version.allow_dropped, scene.directory, outside,
                observing,
            )  # fmt: skip
            self.versions.append(opened.enter_context(performer))

    def begun(self, outcome: Outcome) -> bool:
        """Wait until both versions have loaded their state; return whether they have, and name their operators."""
        places: list[Mapping[str, str]] = []
        for name, version in zip((RECORDED, NEW), self.versions, strict=True):
            try:
                places.append(version.await_begun(LOADED_S))
            except OperatorFailed as problem:
                outcome.failures[name] = str(problem)
        if outcome.failures:
            return False
        old, new = places
        outcome.places = new
        outcome.added = [name for name in new if name not in old]
        outcome.removed = [name for name in old if name not in new]
        return True

    def answered(self, steps: Iterable[Step]) -> Iterator[tuple[list[Step], tuple[_Answer, _Answer]]]:
        """Perform the steps, and yield each batch with the answers of both versions."""
        recorded, new = self.versions
        asked: deque[list[Step]] = deque()
        waiting: deque[tuple[list[Step], _Answer]] = deque()
        batches = iter(_batches(steps))
        over = False
        while not over or asked or waiting:
            batch = None if over else next(batches, None)
            if batch is None:
                over = True
            else:
                asked.append(batch)
                recorded.perform(batch)
            if asked and (over or len(asked) >= AHEAD_MAX):
                first = asked.popleft()
                answer = _answer(recorded, first)
                if answer.performed.passed:  # a long message may be sent only to a process that is waiting for one
                    for each, own in waiting:
                        yield each, (own, _answer(new, each))
                    waiting.clear()
                new.perform(first, answer.performed.passed)
                waiting.append((first, answer))
                if answer.failure:
                    asked.clear()
                    over = True
            if waiting and (len(waiting) >= AHEAD_MAX or over and not asked):
                each, own = waiting.popleft()
                yield each, (own, _answer(new, each))


def _batches(steps: Iterable[Step]) -> Iterator[list[Step]]:
    left = iter(steps)
    for first in left:
        batch, elements = [first], first.stop - first.start
        while len(batch) < BATCH_STEPS and elements < BATCH_ELEMENTS:
            following = next(left, None)
            if following is None:
                break
            batch.append(following)
            elements += following.stop - following.start
        yield batch


_NOTHING = Performed(0, {}, b"\x90", (), ())


def _answer(version: Performer, batch: Sequence[Step]) -> _Answer:
    performed = _NOTHING
    try:
        performed = version.performed()
        if performed.steps < len(batch):
            version.perform([])
            version.performed()  # raises what the step after the last one has raised
    except OperatorFailed as problem:
        return _Answer(performed, str(problem), isinstance(problem, Unanswered))
    return _Answer(performed)


def _add(batch: Sequence[Step], answers: tuple[_Answer, _Answer], outcome: Outcome) -> bool:
    """Add a batch to the comparison; return whether a version has failed."""
    old, new = answers[0].performed, answers[1].performed
    comparison = outcome.comparison
    number = min(old.steps, new.steps)
    if old.steps == new.steps and old.content == new.content:
        for task, count in old.counts.items():
            comparison.count(task, count, count)
    else:
        each_rows = zip(batch, old.rows(), new.rows(), strict=False)
        for place, (step, before, after) in enumerate(islice(each_rows, number)):
            comparison.add(step, before, after, outcome.steps + place)
    outcome.steps += number
    outcome.performed += sum(step.stop - step.start for step in batch[:number])
    outcome.until_ns = max([outcome.until_ns, *(step.at_ns for step in batch[:number])])
    if number == len(batch):
        return False
    failing = batch[number]
    where = f"{failing.source}[{failing.partition}] at position {failing.start:,}"
    failed = [answer for answer in answers if answer.failure and answer.performed.steps == number]
    if answers[0] in failed and answers[0].unanswered:
        outcome.ended = f"{where}: {RECORDED} has no recorded answer: {answers[0].failure}"
        return True
    outcome.failures = {
        name: answer.failure for name, answer in zip((RECORDED, NEW), answers, strict=True) if answer in failed
    }
    texts = {_PLACE.sub("", answer.failure) for answer in failed}
    outcome.alike = len(failed) == 2 and len(texts) == 1
    outcome.ended = f"{where}: {' and '.join(outcome.failures)} failed"
    return True
