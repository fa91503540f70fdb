"""The part of a recording on which two versions are compared: its epochs, its version, its checkpoint and its steps.

Nothing of the job or its recording is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from causal.errors import CorruptData, PeerViolation, PipelineError
from causal.topology import Topology
from deploy.savepoints.recorded_checkpoint import checkpoint_in, reached
from operators.recordings.recording import RecordedVersion, Recording, shown_time
from operators.replay.input_steps import Positions, positions_in
from operators.replay.performance import Checkpoint, Step
from operators.replay.recorded_answers import asked_in
from operators.replay.recorded_steps import Reader, partitions_of, recorded_steps

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
EPOCHS = "A..B, two epochs of the recording, such as 120..180"
SPAN = "a time such as 90s, 30m, 1h or 1d"


@dataclass(frozen=True, slots=True)
class Interval:
    """Epochs of one version of a job.

    Attributes:
        first, last: the epochs that are compared; the first begins at the kept checkpoint `first`.
        wanted: the first epoch that was asked for.
    """

    recording: Recording
    version: RecordedVersion
    first: int
    last: int
    wanted: int
    topology: Topology
    checkpoint: Checkpoint
    sources: tuple[str, ...]

    @property
    def began_ns(self) -> int:
        """The wall-clock time of the checkpoint at its beginning."""
        return self.recording.time_ns(self.first)

    @property
    def ended_ns(self) -> int:
        """The wall-clock time of the checkpoint at its end."""
        return self.recording.time_ns(self.last + 1)

    def steps(self) -> Iterator[Step]:
        """Yield the steps of all epochs, and one without elements that reaches the end of the interval.

        Raises:
            CorruptData: a log is damaged.
        """
        at: Positions = positions_in(self.topology, {each.task.name: each.cut for each in self.checkpoint.saved})
        partitions = partitions_of(self.topology)
        began_ns = self.began_ns
        for epoch in range(self.first, self.last + 1):
            logs = {task: self.recording.log(task, epoch) for task in partitions}
            after = positions_in(self.topology, {task: reached(task, epoch, log) for task, log in logs.items()})
            ended_ns = max(self.recording.time_ns(epoch + 1), began_ns)
            readers = [Reader(task, log.log, partitions[task]) for task, log in logs.items()]
            yield from recorded_steps(readers, at, after, began_ns, ended_ns)
            at, began_ns = after, ended_ns
        yield Step(began_ns, "", 0, 0, 0)

    def elements(self) -> int:
        """Return the number of elements of the interval."""
        begun = positions_in(self.topology, {each.task.name: each.cut for each in self.checkpoint.saved})
        logs = {task: self.recording.log(task, self.last) for task in partitions_of(self.topology)}
        ended = positions_in(self.topology, {task: reached(task, self.last, log) for task, log in logs.items()})
        return sum(position - begun[partition][0] for partition, (position, _) in ended.items())

    def asking(self) -> list[str]:
        """Return the tasks that have been answered by the outside world in the interval."""
        names = [str(task.name) for task in self.topology.tasks]
        epochs = range(self.first, self.last + 1)
        try:
            return [name for name in names if any(asked_in(self.recording.log(name, epoch).log) for epoch in epochs)]
        except PeerViolation as problem:
            raise CorruptData(f"a recorded log cannot be read: {problem}") from None


def interval_of(recording: Recording, epochs: str | None, last: str | None) -> Interval:
    """Return the interval that `--epoch` or `--last` names; by default, all epochs of the latest version.

    Raises:
        PipelineError: it is not recorded, or was performed by several versions; the line says what there is.
        CorruptData: the recording is damaged.
    """
    whole = recording.epochs()
    if not whole:
        raise PipelineError("nothing of the job can be replayed yet; there is something after the next checkpoint")
    if epochs is not None:
        first, end = _epochs(epochs)
    elif last is not None:
        end = whole[-1]
        since_ns = recording.time_ns(end + 1) - int(_seconds(last) * 1e9)
        first = next((epoch for epoch in whole if recording.time_ns(epoch + 1) > since_ns), end)
    else:
        first, end = max(whole[0], recording.version_at(whole[-1]).first), whole[-1]
    start, version = recording.start_of(first), recording.version_at(first)
    if last is not None and version.number != recording.version_at(end).number:
        version = recording.version_at(end)
        first = start = recording.start_of(version.first)
    if recording.version_at(end).number != version.number:
        raise PipelineError(
            f"epochs {first} to {end} were performed by several versions of the code: {_versions(recording)}; "
            "name epochs of one of them with --epoch"
        )
    if end not in next((each for each in recording.stretches() if start in each), range(0)):
        raise PipelineError(f"epochs {first} to {end} are not recorded without a gap; {_stretches(recording)}")
    return _opened(recording, version, start, end, first)


def _opened(recording: Recording, version: RecordedVersion, start: int, end: int, wanted: int) -> Interval:
    checkpoint, sources = checkpoint_in(recording, version, start)
    return Interval(recording, version, start, end, wanted, checkpoint.topology, checkpoint, sources)


def _epochs(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    try:
        begin = int(first)
        end = int(last) if dots else begin
    except ValueError:
        raise PipelineError(f"--epoch {text}: use {EPOCHS}") from None
    if not 0 <= begin <= end:
        raise PipelineError(f"--epoch {text}: use {EPOCHS}")
    return begin, end


def _seconds(text: str) -> float:
    match = _SPAN.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise PipelineError(f"--last {text}: use {SPAN}")
    return float(match[1]) * _SECONDS[match[2]]


def _versions(recording: Recording) -> str:
    return ", ".join(f"{each.first}..{each.last}" for each in recording.versions if each.last >= each.first)


def _stretches(recording: Recording) -> str:
    shown = [
        f"epochs {each.start}..{each.stop - 1} ({shown_time(recording.time_ns(each.start))} to "
        f"{shown_time(recording.time_ns(each.stop))})"
        for each in recording.stretches()
    ]
    return f"the recording has {' and '.join(shown)}"
