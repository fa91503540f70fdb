"""The recorder: keeps what a replay of the job needs, on a thread of the supervisor's process (0053).

The tasks write their logs themselves. Once a checkpoint is complete, the recorder enters the epoch that it ended in the
index, keeps every so-manieth checkpoint, and drops what the window does not cover any more. A recorder that is killed
leaves an index that lacks the last epoch at most; its successor continues it. Nothing waits for a recorder: what it
cannot keep is missing in the recording, which then begins again at the next checkpoint.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from msgspec.structs import replace

from causal.commands import Files
from causal.config import JobConfig
from causal.cut import Cut
from causal.errors import CorruptData, Unavailable
from causal.recorded_files import (
    CHECKPOINTS,
    INDEX,
    LOGS,
    EpochEntry,
    FailureEntry,
    IntervalEntry,
    KeptEntry,
    VersionEntry,
    archive_name,
    epoch_of_log,
    is_entry,
    log_name,
    pack_name,
    read_entry,
    unfinished_log,
)
from causal.recorded_index import Index, Interval
from causal.recording_window import Window, window_of
from causal.snapshot_files import SnapshotFile, span_of
from causal.storage.files import joined, parts_of
from causal.storage.objects import Missing
from causal.storage.recording_places import RecordingPlace
from standby.storage.recorded_sources import RecordedSources
from standby.supervision.job_view import RecordingView

FAILURES_S = 60
"""The time for which a failure is offered to the recorder, which enters it once."""

PACK_BYTES_MAX = 64 << 20
"""The size of a task's logs in an interval up to which they become one file."""

_log = logging.getLogger("standby.recorder")


class Recorder(threading.Thread):
    """The recorder of one version of a job.

    Args:
        open_place: returns the place of the recording; it is called on the recorder's thread.
        tasks: the names of the version's tasks.
        before: the recorder of the version before, which has been closed; this one begins after its end.

    Attributes:
        shown: the recording, as the view of the job shows it.
    """

    def __init__(
        self,
        open_place: Callable[[], RecordingPlace],
        config: JobConfig,
        tasks: Iterable[str],
        sources: RecordedSources,
        before: Recorder | None = None,
    ) -> None:
        super().__init__(name="recorder", daemon=True)
        self.shown = RecordingView()
        self._open_place = open_place
        self._config = config
        self._tasks = tuple(tasks)
        self._sources = sources
        self._before = before
        self._over = False
        self._requests: queue.SimpleQueue[tuple[int, Mapping[str, Files], int, Sequence[FailureEntry]] | None]
        self._requests = queue.SimpleQueue()

    def completed(self, epoch: int, files: Mapping[str, Files], at_ns: int, failures: Sequence[FailureEntry]) -> None:
        """Record that checkpoint `epoch` has completed; its files remain until the second checkpoint after it.

        Args:
            files: the files that restore each task; none at the beginning of a job.
            failures: the latest failures of tasks.
        """
        self._requests.put((epoch, files, at_ns, failures))

    def close(self, within_s: float = 0, over: bool = False) -> None:
        """End the thread after its last request, and wait for its end for this time.

        Args:
            over: whether the job continues without a recording, so that no input is kept for it any longer.
        """
        self._over = over
        self._requests.put(None)
        self.join(within_s)

    def run(self) -> None:
        """Record until `close`."""
        if self._before is not None:
            self._before.join()
            self._before = None
        window = window_of(self._config.record)
        recording: Recording | None = None
        while window is not None and (request := self._requests.get()) is not None:
            try:
                if recording is None:
                    place, config = self._open_place(), self._config
                    recording = Recording(place, config, self._tasks, self._sources, window)
                recording.completed(*request)
                self.shown = recording.shown()
            except (Unavailable, CorruptData, OSError) as failure:
                problem = str(failure)
                if problem != self.shown.problem:
                    _log.warning("checkpoint %d is not recorded: %s", request[0], problem)
                self.shown = replace(self.shown, problem=problem)
        if self._over:
            with suppress(Unavailable, OSError):  # the process that publishes releases the input when it starts again
                self._sources.forget()


class Recording:
    """The recording as its only writer sees it.

    Raises (each method):
        Unavailable: the place cannot be used now.
        CorruptData: an entry of the index is damaged.
    """

    def __init__(
        self,
        place: RecordingPlace,
        config: JobConfig,
        tasks: tuple[str, ...],
        sources: RecordedSources,
        window: Window,
    ) -> None:
        self._place = place
        self._sources = sources
        self._input_bytes = 0
        self._window = window
        objects = place.objects
        names = [name for name in objects.names(INDEX) if is_entry(name)]
        contents = objects.read_all(names)
        entries = [read_entry(name, text, objects.where(name)) for name, text in zip(names, contents, strict=True)]
        self._index = Index(entries)
        self._failures = {
            (entry.version, each.task, each.incarnation)
            for interval in self._index.intervals
            for entry in interval.epochs
            for each in entry.failures
        }
        self._incarnations: dict[str, int] = {}
        """The incarnation that wrote the last log of each task."""
        self._stale = False
        """Whether an incarnation may have written logs that do not count."""
        self._version = self._begun(config, tasks)
        self._remove_remains()

    def _begun(self, config: JobConfig, tasks: tuple[str, ...]) -> int:
        """Return the number of the version that runs now, after entering it unless it is the latest one already."""
        settings = _plain(asdict(config))
        number = max(self._index.versions, default=0)
        if number and (self._index.versions[number].config, self._index.versions[number].tasks) == (settings, tasks):
            return number
        if config.code:
            self._place.keep(archive_name(config.code))
        entry = VersionEntry(number + 1, time.time_ns(), settings, tasks)
        self._place.objects.create(entry.name, entry.text().encode(), durable=False)
        self._index.add(entry)
        return entry.number

    @property
    def bytes(self) -> int:
        """The size of the recording."""
        return self._index.bytes() + self._input_bytes

    def shown(self) -> RecordingView:
        """Return the recording as the view of the job shows it."""
        group = self._index.latest_stretch()
        if not group:
            return RecordingView(self.bytes)
        span_s = round((group[-1].at_ns - group[0].kept.at_ns) / 1e9, 3)
        return RecordingView(self.bytes, group[0].first, group[-1].end, span_s)

    def completed(self, epoch: int, files: Mapping[str, Files], at_ns: int, failures: Sequence[FailureEntry]) -> None:
        """Enter the epoch that checkpoint `epoch` ended, and keep the checkpoint if it is due."""
        last = self._index.last
        if last is not None and last.kept.version == self._version and last.end >= epoch:
            return  # an earlier supervisor has entered it
        if last is not None and last.continues(epoch - 1, self._version):
            logs = self._logs(epoch - 1, files)
            if logs is not None:
                incarnations = {task: incarnation for task, (incarnation, _) in logs.items()}
                self._stale |= incarnations != self._incarnations
                self._incarnations = incarnations
                self._enter(EpochEntry(epoch - 1, self._version, at_ns, logs, self._fresh(failures)))
        last = self._index.last
        if last is None or (last.kept.version, last.end) != (self._version, epoch) or self._is_due(last, at_ns):
            self._keep(epoch, at_ns, _as_tuples(files))
        self._close_intervals()
        self._drop(at_ns)

    def _is_due(self, last: Interval, at_ns: int) -> bool:
        """Return whether a checkpoint should be kept, because a replay from the last one would take long."""
        return bool(last.epochs) and self._window.keeps((at_ns - last.kept.at_ns) / 1e9, last.log_bytes())

    def _logs(self, epoch: int, files: Mapping[str, Files]) -> dict[str, tuple[int, int]] | None:
        """Return (incarnation, size) of each task's log; None if one is missing, so that the epoch cannot be replayed.

        The incarnation whose log counts is the one whose snapshot belongs to the complete checkpoint.
        """
        logs: dict[str, tuple[int, int]] = {}
        for task, listed in files.items():
            span = span_of(listed[-1][0]) if listed else None
            size = None if span is None else self._place.size(log_name(task, epoch, span.incarnation))
            if span is None or size is None:
                _log.warning("epoch %d cannot be replayed: the log of %s is missing", epoch, task)
                return None
            logs[task] = span.incarnation, size
        return logs

    def _fresh(self, failures: Sequence[FailureEntry]) -> tuple[FailureEntry, ...]:
        """Return the failures that the index does not contain yet."""
        fresh = [each for each in failures if (self._version, each.task, each.incarnation) not in self._failures]
        self._failures.update((self._version, each.task, each.incarnation) for each in fresh)
        return tuple(fresh)

    def _enter(self, entry: EpochEntry) -> None:
        self._place.objects.create(entry.name, entry.text().encode(), durable=False)
        self._index.add(entry)

    def _keep(self, epoch: int, at_ns: int, files: Mapping[str, tuple[SnapshotFile, ...]]) -> None:
        """Keep a checkpoint; its entry is written last, so that one with an entry is complete."""
        try:
            for path, _, _ in (file for each in files.values() for file in each):
                self._place.keep(path)
        except Missing:
            _log.info("checkpoint %d is not kept: a later one has replaced it", epoch)
            return
        inputs = self._sources.positions(lambda task: self._cut(files.get(task, ())))
        entry = KeptEntry(epoch, self._version, at_ns, files, inputs)
        self._place.objects.create(entry.name, entry.text().encode(), durable=False)
        self._index.add(entry)
        self._keep_input()

    def _cut(self, files: tuple[SnapshotFile, ...]) -> Cut:
        """Return the position of a task at a checkpoint that consists of these files."""
        if not files:
            return Cut()
        path, _, digest = files[-1]
        first, *_ = parts_of(self._place.objects.read(path), self._place.objects.where(path), digest)
        return Cut.unpack(first)

    def _keep_input(self) -> None:
        """Keep the input from the oldest interval of this version on."""
        own = [each.kept.inputs for each in self._index.intervals if each.kept.inputs]
        self._input_bytes = self._sources.keep(own[0]) if own else 0

    def _close_intervals(self) -> None:
        """Replace the entries and small logs of each interval that has ended, so that there are fewer files."""
        for interval in self._index.intervals[:-1]:
            if interval.entry is None:
                self._close(interval)

    def _close(self, interval: Interval) -> None:
        """Write one entry, and one file for the logs of each task, before those that they replace are removed."""
        objects, packed = self._place.objects, set[str]()
        before = [*interval.entry_names(), *interval.log_names()]
        for task in interval.epochs[0].logs if interval.epochs else ():
            if sum(entry.logs[task][1] for entry in interval.epochs) <= PACK_BYTES_MAX:
                names = [log_name(task, entry.epoch, entry.logs[task][0]) for entry in interval.epochs]
                name = pack_name(task, interval.first, interval.kept.version)
                objects.remove([name])  # of a recorder that was killed; it may be incomplete after a power failure
                objects.create(name, joined(objects.read_all(names)), durable=False)
                packed.add(task)
        entry = IntervalEntry(interval.kept, tuple(interval.epochs), frozenset(packed))
        objects.create(entry.name, entry.text().encode(), durable=False)
        interval.close(entry)
        still = {*interval.entry_names(), *interval.log_names()}
        objects.remove(name for name in before if name not in still)
        if self._stale:
            self._remove_stale_logs()

    def _drop(self, now_ns: int) -> None:
        """Drop what the window does not cover any more: the entry of an interval first, then what it names."""
        index, objects, dropped = self._index, self._place.objects, False
        while index.exceeds(self._window, now_ns, self._input_bytes):
            interval, unneeded = index.drop_oldest()
            objects.remove([*interval.entry_names(), *interval.log_names()])
            objects.remove(unneeded)
            if interval.kept.inputs:
                self._keep_input()
            dropped = True
        if dropped:
            self._drop_versions({each.kept.version for each in index.intervals} | {self._version})

    def _drop_versions(self, used: set[int]) -> None:
        """Drop the settings and archives of versions of which no interval is left."""
        versions = self._index.versions
        gone = [versions.pop(number) for number in sorted(versions) if number not in used]
        codes = {_code(each) for each in versions.values()}
        self._place.objects.remove(each.name for each in gone)
        self._place.objects.remove(archive_name(code) for code in sorted({_code(each) for each in gone} - codes))

    def _remove_remains(self) -> None:
        """Remove what interrupted writes and dropped intervals have left."""
        index, objects = self._index, self._place.objects
        objects.remove([each.name for each in index.loose])
        index.loose.clear()
        objects.remove(name for name in objects.names(CHECKPOINTS) if not index.needs(name))
        objects.remove(name for name in objects.names(LOGS) if unfinished_log(name) is not None)  # the job continues
        self._remove_stale_logs()

    def _remove_stale_logs(self) -> None:
        """Remove the logs that no entry names and that none will name, because later epochs have been entered."""
        index, objects = self._index, self._place.objects
        named = {name for interval in index.intervals for name in interval.log_names()}
        newest = index.last.end if index.last is not None else 0
        objects.remove(name for name in objects.names(LOGS) if name not in named and epoch_of_log(name) < newest)
        self._stale = False


def _code(entry: VersionEntry) -> str:
    return str(entry.config["code"])


def _as_tuples(files: Mapping[str, Files]) -> dict[str, tuple[tuple[str, int, str], ...]]:
    return {task: tuple((path, size, digest) for path, size, digest in each) for task, each in files.items()}


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the form in which they are read back."""
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in settings.items()}
