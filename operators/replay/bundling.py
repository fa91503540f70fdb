"""Cuts a bundle out of a recording: some epochs of a task and of everything upstream of it, with their input (0058).

The epochs are replayed once from the recording, and what the sources supply meanwhile is the input of the bundle, so it
has what a replay asks for, and nothing else. What the recorded code raises at its end is found out in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from causal.config import JobConfig
from causal.errors import CausalError, OperatorFailed, PipelineError, ReplayDivergence
from causal.ids import OUTSIDE, ChannelId
from causal.recorded_files import (
    EpochEntry,
    EpochLog,
    FailureEntry,
    KeptEntry,
    VersionEntry,
    archive_name,
    log_name,
)
from causal.records.values import NotCarried
from causal.storage.files import joined
from causal.task.cone import Elements
from operators.code_archive.archive import runtime_version
from operators.recordings.bundle import INPUT
from operators.recordings.bundle_file import CONTENT_BYTES_MAX
from operators.recordings.input_slice import InputSlice
from operators.recordings.recording import EXCEPTION, Recording
from operators.records.seconds import seconds_of
from operators.replay.exact import Replay
from operators.replay.recorded_answers import asked_in

Redact = Callable[[str, Any], Any]
"""Returns what replaces a record of a source in a bundle."""
REDACTED_INPUT = "input"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a recording.

    Attributes:
        task: the name of the task; all tasks upstream of it belong to the part.
        first, last: the epochs; all epochs since the checkpoint before the first belong to it.
        point: the options of `causal replay` that name the point for which it is cut out.
    """

    task: str
    first: int
    last: int
    point: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cutting:
    """The content of a bundle.

    Attributes:
        facts: what its manifest states.
        parts: the name and content of each part.
        differs: why the recording could not be replayed to the end of the part; empty if it could.
        records: the number of records of sources.
        state_bytes: the size of the checkpoint.
        answers: whether there are recorded answers of the outside world.
    """

    facts: Mapping[str, Any]
    parts: Iterator[tuple[str, bytes]]
    differs: str
    records: int
    state_bytes: int
    answers: bool


def cut(
    recording: Recording,
    job: Path,
    excerpt: Excerpt,
    scratch: Path,
    hide: Callable[[Mapping[str, str]], Mapping[str, str]],
    redact: Redact | None = None,
) -> Cutting:
    """Return the content of a bundle; the code of the job is loaded into this process.

    Args:
        job: the directory of the job, from which sources are read.
        scratch: an empty directory.
        hide: returns the settings of the pipeline without secrets.
        redact: replaces the records of sources; by default, they are kept as they are.

    Raises:
        PipelineError: the epochs or the task are not recorded, a source cannot be read again, or its records cannot be
            kept.
        CorruptData: the recording is damaged.
        Unavailable: a source does not give the elements again.
    """
    replay = Replay(recording, job, excerpt.first, scratch, (excerpt.task,))
    first = replay.epoch
    tail = recording.tail()
    last = excerpt.last
    if tail is not None and last in tail.epochs:  # a tail is whole, or there is none
        last = max(tail.ends[task].epoch for task in replay.tasks)
    read, raised, differs = _performed(replay, recording, last)
    replay.close()
    slices = [_redacted(each, redact) for each in read]
    version = recording.version_at(excerpt.first)
    archive = recording.archive(version)
    tasks = tuple(replay.tasks)
    config = _portable(version.config, hide)
    files = {task: tuple(recording.snapshot(first)[task]) for task in tasks}
    logs = _logs(recording, tasks, first, last)
    began_ns = recording.time_ns(first)
    performer = replay.topology.performer(excerpt.task)
    facts = {
        "job": config.name,
        "task": replay.tasks[-1] if performer is None else str(performer.name),
        "tasks": list(tasks),
        "point": dict(excerpt.point),
        "first": first,
        "last": last,
        "since": datetime.fromtimestamp(seconds_of(began_ns), UTC).isoformat(timespec="seconds"),
        "raised": raised,
        "redacted": [REDACTED_INPUT] if redact is not None else [],
        "settings_hidden": [each for each, value in version.config.settings.items() if config.settings[each] != value],
        "inputs": [[each.source, each.partition, _input_name(each)] for each in slices],
        "python": archive.python,
        "libraries": dict(archive.outside),
        "runtime": runtime_version(),
    }

    def parts() -> Iterator[tuple[str, bytes]]:
        yield archive_name(config.code), archive.packed()
        yield from _index(recording, config, tasks, first, last)
        for path in sorted({path for each in files.values() for path, _, _ in each}):
            yield path, (recording.directory / path).read_bytes()
        for name, log in sorted(logs.items()):
            yield name, joined(log.parts())
        for each in slices:
            yield _input_name(each), each.packed()

    return Cutting(
        facts, parts(), differs, sum(each.stop - each.start for each in slices),
        sum(size for each in files.values() for _, size, _ in each), any(asked_in(each.log) for each in logs.values()),
    )  # fmt: skip


def _performed(replay: Replay, recording: Recording, last: int) -> tuple[list[InputSlice], str, str]:
    """Replay to the end of an epoch; return the input, the exception of user code, and the difference, if any."""
    slices: dict[ChannelId, InputSlice] = {}
    start = replay.epoch
    for name in replay.tasks:
        for channel, queue in zip(replay.topology.inputs(replay.index(name)), replay.task(name).inputs, strict=True):
            if channel.source == OUTSIDE:
                source, _ = replay.plan.source_of(channel)
                slices[channel.id] = InputSlice(source, channel.partition, queue.next, ended=queue.ended)

    def supplied(channel: ChannelId, position: int, elements: Elements) -> None:
        try:
            slices[channel].add(position, *elements)
        except NotCarried as problem:
            source = slices[channel].source
            raise PipelineError(f"source {source!r} gives records that no bundle can carry: {problem}") from None
        if sum(each.size for each in slices.values()) > CONTENT_BYTES_MAX:
            raise PipelineError(
                f"the input of these epochs exceeds {CONTENT_BYTES_MAX:,} bytes; choose a shorter part of the "
                "recording with --epoch, or a task further upstream with --task"
            )

    replay.supplied = supplied
    raised = differs = ""
    try:
        while replay.epoch <= last:
            replay.perform_epoch()
        raised = next((str(problem) for problem in replay.cone.failed.values()), "")
    except OperatorFailed as problem:
        raised = str(problem)
    except ReplayDivergence as problem:
        differs = str(problem)
    for name in replay.tasks:
        reached = _last_log(recording, name, start, last).reached
        for id, (position, _, ended) in reached.inputs.items():
            own = slices.get(ChannelId(id))
            while own is not None and (own.stop < position - ended or (ended and not own.ended)):
                replay.read(ChannelId(id), own.stop, max(1, position - ended - own.stop))
    return list(slices.values()), raised, differs


def _last_log(recording: Recording, task: str, first: int, last: int) -> EpochLog:
    """Return the last log of a task, which may have ended before the others in epochs that the job did not finish."""
    tail = recording.tail()
    return recording.log(task, last if tail is None else max(first, min(last, tail.ends[task].epoch)))


def _redacted(slice: InputSlice, redact: Redact | None) -> InputSlice:
    if redact is None:
        return slice

    def replace(position: int, record: Any) -> Any:
        return redact(slice.source, record)

    try:
        return slice.replaced(replace)
    except CausalError:
        raise
    except NotCarried as problem:
        raise PipelineError(f"--redact returns records that no bundle can carry: {problem}") from None


def _portable(config: JobConfig, hide: Callable[[Mapping[str, str]], Mapping[str, str]]) -> JobConfig:
    """Return the settings without those that name places and keys of the job's machines."""
    return replace(
        config, settings=dict(hide(config.settings)), key="", hosts="", listen="", store="", on="", spark_conf={},
        dead_letters="", state_directory="", metrics_port=0, hosts_expected=0,
    )  # fmt: skip


def _index(
    recording: Recording, config: JobConfig, tasks: Sequence[str], first: int, last: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the entries of the index of a recording that has only these tasks and epochs."""
    number = recording.version_at(first).number
    began_ns = recording.time_ns(first)
    files = {task: tuple(recording.snapshot(first)[task]) for task in tasks}
    failures: dict[int, list[FailureEntry]] = {}
    for each in recording.failures():
        if each.task in tasks and first <= each.epoch <= last and each.mode != EXCEPTION:
            failures.setdefault(each.epoch, []).append(
                FailureEntry(each.task, each.incarnation, each.at_ns, each.mode, each.replayed_elements, each.cause)
            )
    entries: list[VersionEntry | KeptEntry | EpochEntry] = [
        VersionEntry(number, began_ns, asdict(config), tuple(tasks)),
        KeptEntry(first, number, began_ns, files),
    ]
    tail = recording.tail()
    for epoch in range(first, last + 1 if tail is None else min(last + 1, tail.epochs.start)):
        entry = recording.entry(epoch)
        logs = {task: entry.logs[task] for task in tasks}
        entries.append(EpochEntry(epoch, number, entry.at_ns, logs, tuple(failures.get(epoch, ()))))
    for each_entry in entries:
        yield each_entry.name, each_entry.text().encode()


def _logs(recording: Recording, tasks: Sequence[str], first: int, last: int) -> dict[str, EpochLog]:
    """Return the logs of some epochs, by the names of their files."""
    logs: dict[str, EpochLog] = {}
    tail = recording.tail()
    for epoch in range(first, last + 1):
        for task in tasks:
            if tail is None or epoch < tail.epochs.start:
                incarnation, _ = recording.entry(epoch).logs[task]
                logs[log_name(task, epoch, incarnation)] = recording.log(task, epoch)
            elif (task, epoch) in tail.logs:
                end = tail.ends[task]
                name = log_name(task, epoch, end.incarnation, unfinished=epoch == end.epoch)
                logs[name] = tail.logs[task, epoch]
    return logs


def _input_name(slice: InputSlice) -> str:
    return f"{INPUT}/{slice.source}-{slice.partition}.elements"
