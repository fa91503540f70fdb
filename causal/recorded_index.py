"""The index of a recording: which epochs can be replayed, from which checkpoints, and what its window drops next.

A recording consists of intervals. Each begins with a kept checkpoint, and continues with the consecutive epochs after
it that one version of the job performed. What its window no longer covers is dropped by whole intervals, oldest first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from causal.recorded_files import Entry, EpochEntry, IntervalEntry, KeptEntry, VersionEntry, log_name, pack_name
from causal.recording_window import Window

FILE_BYTES = 4096
"""The size that a file has at least, because it occupies a block."""


@dataclass(slots=True)
class Interval:
    """A kept checkpoint and the epochs after it, up to the next one."""

    kept: KeptEntry
    epochs: list[EpochEntry] = field(default_factory=list)
    entry: IntervalEntry | None = None
    """The entry that has replaced those of the checkpoint and the epochs; None while the interval is the latest one."""
    _log_bytes: int = -1

    @property
    def first(self) -> int:
        """The epoch of the checkpoint."""
        return self.kept.epoch

    @property
    def end(self) -> int:
        """The barrier that its last epoch reached; that of the checkpoint if it has no epoch."""
        return self.kept.epoch + len(self.epochs)

    @property
    def at_ns(self) -> int:
        """The time at which that barrier's checkpoint completed."""
        return self.epochs[-1].at_ns if self.epochs else self.kept.at_ns

    def continues(self, epoch: int, version: int) -> bool:
        """Return whether an epoch follows directly on this interval."""
        return epoch == self.end and version == self.kept.version

    def is_followed_by(self, other: Interval) -> bool:
        """Return whether a replay can continue from the end of this interval with another."""
        return other.first == self.end and other.kept.version >= self.kept.version

    def log_bytes(self) -> int:
        """Return the size of the logs and index entries of its epochs."""
        if self._log_bytes < 0:
            logs = sum(each.bytes for each in self.epochs)
            files = len(self.log_names()) + (0 if self.entry is not None else len(self.epochs))
            self._log_bytes = logs + FILE_BYTES * files
        return self._log_bytes

    def enter(self, epoch: EpochEntry) -> None:
        """Add the next epoch."""
        self.epochs.append(epoch)
        self._log_bytes = -1

    def close(self, entry: IntervalEntry) -> None:
        """Replace the entries of the checkpoint and the epochs."""
        self.entry = entry
        self._log_bytes = -1

    def log_names(self) -> list[str]:
        """Return the names of the files with its logs."""
        packed = self.entry.packed if self.entry is not None else frozenset[str]()
        single = [
            log_name(task, each.epoch, incarnation)
            for each in self.epochs
            for task, (incarnation, _) in each.logs.items()
            if task not in packed
        ]
        return [*single, *(pack_name(task, self.first, self.kept.version) for task in sorted(packed))]

    def entry_names(self) -> list[str]:
        """Return the names of its entries in the index, that of the checkpoint first."""
        if self.entry is not None:
            return [self.entry.name]
        return [self.kept.name, *(each.name for each in self.epochs)]


class Index:
    """The entries of a recording, in order."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.versions: dict[int, VersionEntry] = {}
        self.intervals: list[Interval] = []
        self.loose: list[Entry] = []
        """The entries to which no kept checkpoint leads; they are of no use."""
        self._files: dict[str, list[int]] = {}
        """Snapshot → its size, and the number of kept checkpoints that need it."""
        self._file_bytes = 0
        kept, epochs = list[KeptEntry](), list[EpochEntry]()
        for entry in entries:
            if isinstance(entry, VersionEntry):
                self.versions[entry.number] = entry
            elif isinstance(entry, IntervalEntry):
                self.intervals.append(Interval(entry.kept, list(entry.epochs), entry))
            elif isinstance(entry, KeptEntry):
                kept.append(entry)
            else:
                epochs.append(entry)
        replaced = {_place(each) for each in self.intervals}
        for each in kept:
            if (each.version, each.epoch) in replaced:
                self.loose.append(each)
            else:
                self.intervals.append(Interval(each))
        self.intervals.sort(key=_place)
        for interval in self.intervals:
            self._count_files(interval)
        for epoch in sorted(epochs, key=lambda each: (each.version, each.epoch)):
            self.add(epoch)

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        if isinstance(entry, VersionEntry):
            self.versions[entry.number] = entry
        elif isinstance(entry, KeptEntry):
            self.intervals.append(Interval(entry))
            self._count_files(self.intervals[-1])
        elif isinstance(entry, EpochEntry):
            interval = self._interval(entry.version, entry.epoch)
            if interval is not None and interval.continues(entry.epoch, entry.version):
                interval.enter(entry)
            else:
                self.loose.append(entry)

    def _interval(self, version: int, epoch: int) -> Interval | None:
        """Return the last interval of a version that begins at this epoch or before it."""
        place = bisect_right(self.intervals, (version, epoch), key=_place)
        interval = self.intervals[place - 1] if place else None
        return interval if interval is not None and interval.kept.version == version else None

    @property
    def last(self) -> Interval | None:
        """The latest interval."""
        return self.intervals[-1] if self.intervals else None

    def stretches(self) -> list[list[Interval]]:
        """Return the intervals that follow on each other, in groups: a replay cannot pass from one group to the next.

        Something is missing between two groups: the job ran without a recording, a log could not be written, or the
        job was rolled back to a savepoint and continued with new epochs.
        """
        groups: list[list[Interval]] = []
        for interval in self.intervals:
            if groups and groups[-1][-1].is_followed_by(interval):
                groups[-1].append(interval)
            else:
                groups.append([interval])
        return groups

    def latest_stretch(self) -> list[Interval]:
        """Return the last group of `stretches`."""
        first = max(0, len(self.intervals) - 1)
        while first and self.intervals[first - 1].is_followed_by(self.intervals[first]):
            first -= 1
        return self.intervals[first:]

    def interval_at(self, epoch: int) -> Interval | None:
        """Return the latest interval that begins at a barrier or contains it; None if none does."""
        for interval in reversed(self.intervals):
            if interval.first <= epoch < max(interval.end, interval.first + 1):
                return interval
        return None

    def needs(self, path: str) -> bool:
        """Return whether a kept checkpoint needs a snapshot."""
        return path in self._files

    def bytes(self) -> int:
        """Return the size of the recording, without code archives and the input of sources."""
        return sum(each.log_bytes() for each in self.intervals) + FILE_BYTES * len(self.intervals) + self._file_bytes

    def exceeds(self, window: Window, now_ns: int, others: int = 0) -> bool:
        """Return whether the window does not cover the oldest interval any more.

        Args:
            others: the size of what the intervals need and the index does not contain.
        """
        if not self.intervals:
            return False
        old = now_ns - self.intervals[0].at_ns > window.seconds * 1_000_000_000
        return (old and len(self.intervals) > 1) or self.bytes() + others > window.bytes

    def drop_oldest(self) -> tuple[Interval, list[str]]:
        """Drop the oldest interval; return it, and the snapshots that no kept checkpoint needs any more."""
        interval, unneeded = self.intervals.pop(0), list[str]()
        for path, _, _ in _files_of(interval.kept):
            known = self._files[path]
            known[1] -= 1
            if not known[1]:
                del self._files[path]
                self._file_bytes -= known[0]
                unneeded.append(path)
        return interval, unneeded

    def _count_files(self, interval: Interval) -> None:
        for path, size, _ in _files_of(interval.kept):
            known = self._files.setdefault(path, [max(size, FILE_BYTES), 0])
            self._file_bytes += 0 if known[1] else known[0]
            known[1] += 1


def _place(interval: Interval) -> tuple[int, int]:
    return interval.kept.version, interval.first


def _files_of(kept: KeptEntry) -> Iterator[tuple[str, int, str]]:
    return (file for each in kept.files.values() for file in each)
