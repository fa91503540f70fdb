"""Reads the recording of a job: its versions, kept checkpoints, logs and failures.

A recording may be read while its job runs, and changes meanwhile: `reload` returns what it contains by then. Everything
is checked against its digest, and nothing is unpickled. What is not there is said in one line that names what is.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from causal.commands import Files
from causal.config import JobConfig
from causal.errors import CorruptData, PipelineError
from causal.recorded_files import (
    DIRECTORY,
    INDEX,
    Entry,
    EpochEntry,
    EpochLog,
    FailureEntry,
    KeptEntry,
    VersionEntry,
    archive_name,
    is_entry,
    log_name,
    pack_name,
    read_entry,
)
from causal.recorded_index import Index, Interval
from causal.snapshot_files import SnapshotFile
from causal.storage.directory import Directory
from causal.storage.files import parts_of
from causal.storage.objects import Missing, Objects
from causal.storage.shared import Depot
from operators.code_archive.archive import Archive
from operators.recordings.tail import Tail, tail_of
from operators.records.seconds import seconds_of
from operators.source import PartitionReader

TRIES = 3
"""The number of times that the index is read if it changes meanwhile."""

EXCEPTION = "exception"
"""The mode of a failure from which the job did not recover: an exception of user code."""


@dataclass(frozen=True, slots=True)
class RecordedVersion:
    """A version of the job in its recording.

    Attributes:
        number: the number of the version; a later version has a higher one.
        config: the settings of the version; `config.code` is the digest of its archive.
        first, last: the first and the last epoch of the version that can be replayed; `last` is lower if there is none.
        tasks: the names of its tasks.
    """

    number: int
    config: JobConfig
    first: int
    last: int
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedFailure:
    """A failure of a task, from which it recovered, or which ended the job.

    Attributes:
        epoch: the epoch in which the task died.
        at_ns: the wall-clock time at which the failure was detected.
        incarnation: the incarnation that replaced the dead one; the dead one itself if the failure ended the job.
        mode: the kind of its recovery: `standby`, `cold`, `rollback` …; `EXCEPTION` if there was none.
        replayed_elements: the number of elements that it replayed; -1 if it is not known.
        log_bytes: the task died after these bytes of its log of `epoch`; those of an exception are its whole log.
        cause: why the supervisor killed the task, or why it was rolled back, or the exception; empty if the process
            ended on its own.
    """

    task: str
    epoch: int
    at_ns: int
    incarnation: int
    mode: str
    replayed_elements: int
    log_bytes: int
    cause: str


class Recording:
    """A recording, as it was when it was opened.

    Attributes:
        directory: contains the snapshots of `snapshot` and the archives of `archive`, under the names that they have in
            a job directory.
        redacted: what in it was replaced, so that a replay of it cannot be verified.
    """

    redacted: Sequence[str] = ()

    def __init__(self, objects: Objects, name: str, directory: Path, fetched: bool) -> None:
        """
        Args:
            name: the job, as shown in errors.
            fetched: whether `directory` is a copy, to which files are fetched from `objects` when they are needed.
        """
        self.directory = directory
        self._objects = objects
        self._name = name
        self._fetched = fetched
        self._packs: dict[str, tuple[str, list[bytes]]] = {}
        """Task → the file of packed logs that was read last, and its parts."""
        self._entries: dict[str, Entry] = {}
        """The entries of the index by name; an entry never changes, so each is read once."""
        self._index = self._read()
        self._tail: list[Tail | None] = []
        """The tail, once it has been read."""

    def reload(self) -> None:
        """Make this the recording as it is now; only what has been entered meanwhile is read."""
        self._index = self._read()
        self._tail.clear()

    def _read(self) -> Index:
        """Read the new entries of the index; the job may enter and drop epochs meanwhile."""
        for left in reversed(range(TRIES)):
            names = [name for name in self._objects.names(INDEX) if is_entry(name)]
            new = [name for name in names if name not in self._entries]
            if self._entries and not new and len(names) == len(self._entries):
                return self._index
            try:
                contents = self._objects.read_all(new)
            except Missing:
                if not left:
                    raise
                continue
            read = {
                name: read_entry(name, text, self._objects.where(name))
                for name, text in zip(new, contents, strict=True)
            }
            self._entries = {name: read.get(name) or self._entries[name] for name in names}
            return Index(self._entries.values())
        raise AssertionError

    @property
    def versions(self) -> Sequence[RecordedVersion]:
        """The versions of which something is recorded, oldest first."""
        versions = []
        for number, entry in sorted(self._index.versions.items()):
            intervals = [each for each in self._index.intervals if each.kept.version == number]
            if intervals:
                config = JobConfig.from_mapping(entry.config, self._objects.where(entry.name))
                last = max(each.end for each in intervals) - 1
                versions.append(RecordedVersion(number, config, intervals[0].first, last, entry.tasks))
        return versions

    def version_at(self, epoch: int) -> RecordedVersion:
        """Return the version that performed an epoch.

        Raises:
            PipelineError: the epoch is not recorded.
        """
        number = self._interval(epoch).kept.version
        return next(each for each in self.versions if each.number == number)

    def version_from(self, checkpoint: int) -> RecordedVersion:
        """Return the version whose state a kept checkpoint has; it performed the epoch after it, if that is recorded.

        Raises:
            PipelineError: this checkpoint was not kept.
        """
        kept = self._kept(checkpoint)
        return next(each for each in self.versions if each.number == kept.version)

    def archive(self, version: RecordedVersion) -> Archive:
        """Return the code of a version.

        Raises:
            CorruptData: the archive is missing or damaged.
        """
        self._fetch(archive_name(version.config.code))
        return Archive.load(self.directory, version.config.code)

    def stretches(self) -> Sequence[range]:
        """Return the epochs that can be replayed, in groups; nothing can be replayed across the border of two."""
        groups = self._index.stretches()
        return [range(each[0].first, each[-1].end) for each in groups if each[-1].end > each[0].first]

    def epochs(self) -> range:
        """Return the epochs that can be replayed, of the latest group of `stretches`."""
        stretches = self.stretches()
        return stretches[-1] if stretches else range(0)

    def replayable(self) -> range:
        """Return the epochs of the latest group of `stretches`, and after them those of `tail`."""
        tail = self.tail()
        if tail is None:
            return self.epochs()
        return range(self._index.latest_stretch()[0].first, tail.epochs.stop)

    def run_of(self, epoch: int) -> range:
        """Return the epochs that one replay can perform together with this one, because one version performed them.

        Raises:
            PipelineError: the epoch is not recorded.
        """
        within = self._interval(epoch)
        run = [within]
        intervals = self._index.intervals
        place = intervals.index(within)
        while place and _continues(intervals[place - 1], run[0]):
            place -= 1
            run.insert(0, intervals[place])
        for following in intervals[intervals.index(within) + 1 :]:
            if not _continues(run[-1], following):
                break
            run.append(following)
        tail = self.tail() if run[-1] is self._index.last else None
        return range(run[0].first, run[-1].end if tail is None else tail.epochs.stop)

    def tail(self) -> Tail | None:
        """Return what the tasks performed after the last of `epochs`; None while the job runs, and if it was killed.

        It is replayed like epochs: `version_at`, `start_of` and `log` accept its numbers. A task that did not come as
        far as an epoch has no log of it.
        """
        if not self._tail:
            last = self._index.last
            version = self._index.versions[last.kept.version] if last is not None else None
            tail = None if last is None or version is None else tail_of(self._objects, version, last.end)
            self._tail.append(tail)
        return self._tail[0]

    def checkpoints(self) -> Sequence[int]:
        """Return the epochs of the kept checkpoints, ascending; that of the beginning of the job is 0."""
        return sorted({each.first for each in self._index.intervals})

    def start_of(self, epoch: int) -> int:
        """Return the kept checkpoint from which a replay of an epoch begins, which belongs to the same version.

        Raises:
            PipelineError: the epoch is not recorded.
        """
        return self._interval(epoch).first

    def time_ns(self, epoch: int) -> int:
        """Return the wall-clock time at which the checkpoint of barrier `epoch` completed.

        Raises:
            PipelineError: the barrier is not recorded.
        """
        for interval in reversed(self._index.intervals):
            if interval.first == epoch:
                return interval.kept.at_ns
            if interval.first < epoch <= interval.end:
                return interval.epochs[epoch - interval.first - 1].at_ns
        raise PipelineError(self._lacks(f"checkpoint {epoch}"))

    def epoch_at(self, at_ns: int) -> int:
        """Return the epoch that was performed at a wall-clock time.

        Raises:
            PipelineError: nothing of that time is recorded.
        """
        for interval in self._index.intervals:
            since_ns = interval.kept.at_ns
            for entry in interval.epochs:
                if since_ns <= at_ns <= entry.at_ns:
                    return entry.epoch
                since_ns = entry.at_ns
        last, tail = self._index.last, self.tail()
        if last is not None and tail is not None and last.at_ns <= at_ns <= tail.ended_ns:
            return tail.epochs.start
        raise PipelineError(self._lacks(f"nothing of {shown_time(at_ns)}", contains=False))

    def snapshot(self, epoch: int) -> Mapping[str, Sequence[SnapshotFile]]:
        """Return the files of each task in a kept checkpoint, oldest first; they are readable under `directory`.

        A job began with no files, at checkpoint 0. At the checkpoint where a version begins, the files are that one's.

        Raises:
            PipelineError: this checkpoint was not kept.
            CorruptData: a file is missing.
        """
        kept = self._kept(epoch)
        files: dict[str, Files] = dict.fromkeys(self._index.versions[kept.version].tasks, ())
        files.update(kept.files)
        for path in (path for each in files.values() for path, _, _ in each):
            self._fetch(path)
        return files

    def entry(self, epoch: int) -> EpochEntry:
        """Return the entry of an epoch in the index.

        Raises:
            PipelineError: the epoch is not recorded, or the job did not finish it.
        """
        interval = self._interval(epoch)
        if epoch >= interval.end:
            raise PipelineError(
                f"the job {self._name} did not finish epoch {epoch}, and this needs a finished one; "
                "`causal replay` performs it"
            )
        return interval.epochs[epoch - interval.first]

    def reader(self, source: str, partition: int) -> PartitionReader | None:
        """Return a reader of the input that this recording itself contains; None if it is read from the source."""
        return None

    def log(self, task: str, epoch: int) -> EpochLog:
        """Return the log of a task in an epoch, and the cut that the task reached at its end.

        Raises:
            PipelineError: the epoch is not recorded, or there was no such task.
            CorruptData: the file is damaged.
        """
        if not self._is_complete(epoch) and (tail := self.tail()) is not None and epoch in tail.epochs:
            if (task, epoch) not in tail.logs:
                raise PipelineError(f"{task} has no log of epoch {epoch}, which the job did not finish")
            return tail.logs[task, epoch]
        try:
            content, where = self._log_file(task, epoch)
        except Missing:  # the interval has ended since the index was read, or has left the window
            self._index = self._read()
            content, where = self._log_file(task, epoch)
        return EpochLog.of(list(parts_of(content, where)), where)

    def _log_file(self, task: str, epoch: int) -> tuple[bytes, str]:
        """Return the content of the log of an epoch, and its place, as shown in errors."""
        interval = self._interval(epoch)
        entry = interval.epochs[epoch - interval.first]
        if task not in entry.logs:
            raise PipelineError(f"there was no task {task} in epoch {epoch}; there were {', '.join(entry.logs)}")
        if interval.entry is None or task not in interval.entry.packed:
            name = log_name(task, epoch, entry.logs[task][0])
            return self._objects.read(name), self._objects.where(name)
        name = pack_name(task, interval.first, interval.kept.version)
        where = self._objects.where(name)
        if task not in self._packs or self._packs[task][0] != name:
            self._packs[task] = name, list(parts_of(self._objects.read(name), where))
        _, logs = self._packs[task]
        if len(logs) != len(interval.epochs):
            raise CorruptData(f"{where} has {len(logs)} logs and not {len(interval.epochs)}; restore it from a copy")
        return logs[epoch - interval.first], f"{where}, epoch {epoch}"

    def failures(self, detected: range | None = None) -> Sequence[RecordedFailure]:
        """Return the failures of tasks, oldest first; `detected` limits them to those detected in these epochs."""
        failures = [
            self._failure(interval, entry, failure)
            for interval in self._index.intervals
            for entry in interval.epochs
            if entry.failures and (detected is None or entry.epoch in detected)
            for failure in entry.failures
        ]
        tail = self.tail()
        for end, log in [] if tail is None else tail.failed():
            if detected is None or end.epoch in detected:
                facts = end.task, end.epoch, log.ended_ns, end.incarnation, EXCEPTION, -1, len(log.log), log.failure
                failures.append(RecordedFailure(*facts))
        return failures

    def intervals(self) -> Sequence[Interval]:
        """Return the kept checkpoints, oldest first, each with the epochs up to the next one; the same until `reload`
        reads something new.
        """
        return self._index.intervals

    def entries_of_versions(self) -> Mapping[int, VersionEntry]:
        """Return what the index has of each version, by its number."""
        return self._index.versions

    def _failure(self, interval: Interval, entry: EpochEntry, failure: FailureEntry) -> RecordedFailure:
        """Return a failure that was detected during an epoch.

        The task may already have passed the barrier at the end of that epoch when it died, so it died in the last epoch
        of whose log its next incarnation replayed something.
        """
        epoch, log_bytes = entry.epoch, 0
        after = self._index.interval_at(entry.epoch + 1) or interval
        for each in (entry, *after.epochs[entry.epoch + 1 - after.first :][:1]):
            incarnation, _ = each.logs.get(failure.task, (0, 0))
            replayed = self.log(failure.task, each.epoch).replayed if incarnation == failure.incarnation else 0
            if replayed:
                epoch, log_bytes = each.epoch, replayed
        return RecordedFailure(
            failure.task, epoch, failure.at_ns, failure.incarnation, failure.mode, failure.replayed, log_bytes,
            failure.cause,
        )  # fmt: skip

    def bytes(self) -> int:
        """Return the size of the recording in bytes, without the input of sources."""
        return self._index.bytes()

    def _kept(self, checkpoint: int) -> KeptEntry:
        kept = next((each.kept for each in reversed(self._index.intervals) if each.first == checkpoint), None)
        if kept is None:
            raise PipelineError(self._lacks(f"checkpoint {checkpoint}"))
        return kept

    def _interval(self, epoch: int) -> Interval:
        interval = self._index.interval_at(epoch)
        if interval is None or epoch >= interval.end:
            last, tail = self._index.last, self.tail()
            if last is not None and tail is not None and epoch in tail.epochs:
                return last
            raise PipelineError(self._lacks(f"epoch {epoch}"))
        return interval

    def _is_complete(self, epoch: int) -> bool:
        """Return whether an epoch has an entry in the index."""
        interval = self._index.interval_at(epoch)
        return interval is not None and epoch < interval.end

    def _lacks(self, wanted: str, contains: bool = True) -> str:
        """Return a line that says what is not recorded, and what is."""
        stretches = self.stretches()
        if not stretches:
            if (tail := self.tail()) is not None:
                return f"the recording of {self._name} has only the unfinished epoch {tail.epochs.start}"
            return f"the recording of {self._name} has no epoch yet; it has one after the next checkpoint"
        there = " and ".join(
            f"epochs {each.start} to {each.stop - 1} ({shown_time(self.time_ns(each.start))} to "
            f"{shown_time(self.time_ns(each.stop))})"
            for each in stretches[-3:]
        )
        if (tail := self.tail()) is not None:
            there += f", and the unfinished epoch {tail.epochs.start}"
        return f"the recording of {self._name} contains {'no ' if contains else ''}{wanted}; it has {there}"

    def _fetch(self, name: str) -> None:
        """Copy a file from the store to `directory`, if it is not there yet."""
        path = self.directory / name
        if self._fetched and not path.exists():
            content = self._objects.read(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def open_recording(job: Path, scratch: Path | None = None) -> Recording:
    """Open the recording of the job in a directory.

    Args:
        scratch: a directory for files of a recording in a shared store; by default, one that this process creates.

    Raises:
        PipelineError: there is no job, or it has no recording.
        CorruptData: the index is damaged, or was written by another version.
        Unavailable: the store does not answer.
    """
    recording = recording_of(job, scratch)
    if recording is None:
        pipeline = JobConfig.load(job).pipeline
        raise PipelineError(
            f"the job in {job} has no recording; record it with: causal run {pipeline} --resume --record"
        )
    return recording


def recording_of(job: Path, scratch: Path | None = None) -> Recording | None:
    """Return the recording of a job as `open_recording` does; None if the job has none."""
    config = JobConfig.load(job)
    objects: Objects
    directory = job / DIRECTORY
    if config.store:
        objects = Depot(config.store, f"{config.place_in_store}/{DIRECTORY}", proof="")
        directory = scratch or Path(tempfile.mkdtemp(prefix="causal-recording-"))
    else:
        objects = Directory(directory)
    recording = Recording(objects, config.name, directory, bool(config.store)) if _exists(objects) else None
    return None if recording is None or not recording.checkpoints() else recording


def _continues(interval: Interval, following: Interval) -> bool:
    return interval.is_followed_by(following) and interval.kept.version == following.kept.version


def _exists(objects: Objects) -> bool:
    return any(is_entry(name) for name in objects.names(INDEX))


def shown_time(at_ns: int) -> str:
    """Return a wall-clock time as people read it, in the zone of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds_of(at_ns)))
