"""The disk as a peer: one thread performs requests and returns the answers as events, so the task never waits.

Snapshots and stable determinants are kept. In-flight segments need not outlive the process, so they are compressed and
stored in a separate directory that is removed when the process ends.
"""

from __future__ import annotations

import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import lz4.block

from causal.effects import (
    AppendStable,
    BeginStable,
    Effect,
    MergeSnapshots,
    ReadSegment,
    ReadStable,
    RemoveSegments,
    SpillSegment,
    TruncateStable,
    WriteEpochLog,
    WriteRecording,
    WriteSnapshot,
)
from causal.errors import CorruptData, Unavailable, invariant
from causal.events import (
    Event,
    SegmentFailed,
    SegmentRead,
    SegmentWritten,
    SnapshotsMerged,
    SnapshotWritten,
    StableFailed,
    StableRead,
    StableWritten,
)
from causal.recorded_files import DIRECTORY as RECORDED
from causal.recorded_files import EpochLog, log_name
from causal.snapshot_files import SNAPSHOT_SUFFIX, written_name
from causal.storage.files import read_parts, remove, write_parts
from causal.storage.merges import Merges
from causal.storage.shared import Depot
from causal.storage.stable import StableLogs, StableStorage
from causal.storage.stored_logs import StoredLogs
from causal.storage.uploads import Uploads

RECORDING_SUFFIX = ".rec"
SNAPSHOT_TRIES_MAX = 5
CLOSE_WITHIN_S = 5
_STRUCT_BYTES = 8

_log = logging.getLogger("causal.disk")

Written = TypeVar("Written")


def _tried(write: Callable[[], Written]) -> Written:
    """Retry a write without which the task cannot continue, because a disk may be full only temporarily."""
    for tried in range(1, SNAPSHOT_TRIES_MAX):
        try:
            return write()
        except Unavailable:
            threading.Event().wait(0.2 * tried)
    return write()


class Disk:
    """One writer thread, and the descriptor that wakes the task when an answer is available.

    Args:
        job_directory: the job directory; snapshots are written to `checkpoints/<task>/` inside it.
        spill_directory: the directory for in-flight segments; it is created on first use and removed by `close`.
        sync: whether snapshots and determinants must survive a power failure and are therefore synced before they are
            acknowledged.
        depot: the shared store of a multi-host job; if there is one, a snapshot is acknowledged once it is stored
            there.
        first_incarnation: the lowest incarnation of this version of the job.
        merger: (module, key groups) of the process that merges snapshots; None if no snapshots are to be merged.
    """

    def __init__(
        self,
        job_directory: Path,
        task: str,
        incarnation: int,
        spill_directory: Path,
        sync: bool = False,
        depot: Depot | None = None,
        first_incarnation: int = 0,
        merger: tuple[str, int] | None = None,
    ) -> None:
        self._job_directory = job_directory
        self._task = task
        self._incarnation = incarnation
        self.spill_directory = spill_directory
        self._sync = sync
        self._depot = depot
        self._first_incarnation = first_incarnation
        self._stable = self._stable_of(incarnation)
        self._requests: queue.SimpleQueue[Effect | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self.wake, self._waker = os.pipe()
        os.set_blocking(self.wake, False)
        self.uploads = Uploads(depot, self._answer) if depot is not None else None
        self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
        """The thread, which is started by the first request so that it does not delay a standby that takes over."""
        self._closed = False
        self._written_bytes = 0
        self._merges: Merges | None = None
        if merger is not None:
            module, key_groups = merger
            self._merges = Merges(
                module, job_directory, task, key_groups, self._answer, sync, depot, spill_directory / "merged"
            )

    def _stable_of(self, incarnation: int) -> StableStorage:
        if self._depot is not None:
            return StoredLogs(self._depot, self._task, incarnation, self._first_incarnation)
        return StableLogs(self._job_directory, self._task, incarnation, self._sync)

    def become(self, incarnation: int) -> None:
        """Record that a hot standby, which has only spilled segments so far, becomes `incarnation` of the task."""
        self._incarnation, self._stable = incarnation, self._stable_of(incarnation)

    @property
    def snapshot_bytes(self) -> int:
        """The number of bytes of the snapshots that the process has written, including merged ones."""
        return self._written_bytes + (0 if self._merges is None else self._merges.bytes)

    @property
    def failed_merges(self) -> int:
        """The number of merges of snapshots that have failed."""
        return 0 if self._merges is None else self._merges.failures

    def ask(self, effect: Effect | None) -> None:
        if isinstance(effect, MergeSnapshots):
            if self._merges is None:
                self._answer(SnapshotsMerged(effect.sources, None))
            else:
                self._merges.ask(effect, self._incarnation)
            return
        if self._thread.ident is None:
            self._thread.start()
        self._requests.put(effect)

    def answers(self) -> list[Event]:
        """Return the disk's answers since the last call of this method.

        Raises:
            Unavailable, CorruptData: the disk cannot perform a request that is necessary for the task to continue.
        """
        try:
            os.read(self.wake, 4096)
        except BlockingIOError:
            return []
        events: list[Event] = []
        while True:
            try:
                answer = self._answers.get_nowait()
            except queue.Empty:
                return events
            if isinstance(answer, BaseException):
                raise answer
            events.append(answer)

    def close(self) -> None:
        """End the thread after its last request; the descriptors stay open only if the disk hangs."""
        if self._closed:
            return
        self._closed = True
        self.ask(None)
        ended = self._merges is None or self._merges.close()
        if self.uploads is not None:
            self.uploads.close()
        self._thread.join(timeout=CLOSE_WITHIN_S)
        if ended and not self._thread.is_alive():
            os.close(self.wake)
            os.close(self._waker)
        shutil.rmtree(self.spill_directory, ignore_errors=True)

    def _work(self) -> None:
        while True:
            effect = self._requests.get()
            if effect is None:
                self._stable.close()
                return
            try:
                answer: Event | BaseException | None = self._perform(effect)
            except BaseException as problem:  # passed to the task's thread, which raises it
                answer = problem
            del effect  # release it before waiting, because a snapshot may contain a file as large as the state
            if answer is not None:
                self._answer(answer)

    def _answer(self, answer: Any) -> None:
        self._answers.put(answer)
        os.write(self._waker, b"!")

    def _perform(self, effect: Effect) -> Event | None:
        if isinstance(effect, WriteSnapshot):
            return self._write_snapshot(effect.epoch, effect.parts)
        if isinstance(effect, AppendStable | BeginStable | ReadStable | TruncateStable):
            if self.uploads is None:
                return self._keep_stable(effect)
            self.uploads.perform(partial(self._keep_stable, effect), isinstance(effect, BeginStable | ReadStable))
            return None
        if isinstance(effect, WriteRecording):
            self._write_recording(effect)
            return None
        if isinstance(effect, WriteEpochLog):
            self._write_epoch_log(effect)
            return None
        if isinstance(effect, SpillSegment):
            return self._spill(effect)
        if isinstance(effect, ReadSegment):
            return self._load(effect)
        invariant(isinstance(effect, RemoveSegments), "the disk knows this request", effect=type(effect).__name__)
        remove(self._segment(number) for number in effect.segments)  # type: ignore[union-attr]
        return None

    def _write_snapshot(self, epoch: int, parts: Sequence[bytes]) -> Event | None:
        name = written_name(self._task, epoch, self._incarnation)
        size, digest = _tried(lambda: write_parts(self._job_directory / name, parts, self._sync))
        self._written_bytes += size
        written = SnapshotWritten(epoch, (name, size, digest))
        if self.uploads is None:
            return written
        self.uploads.put(name, self._job_directory / name, written)
        return None

    def _keep_stable(self, effect: AppendStable | BeginStable | ReadStable | TruncateStable) -> Event | None:
        if isinstance(effect, ReadStable):
            return StableRead(self._stable.read())
        if isinstance(effect, BeginStable):
            logs = effect.logs
            return StableWritten(_tried(lambda: self._stable.begin(logs)))
        if isinstance(effect, TruncateStable):
            self._stable.truncate(effect.epoch)
            return None
        try:
            return StableWritten(self._stable.append(effect.logs))
        except Unavailable:
            return StableFailed()

    def _write_recording(self, effect: WriteRecording) -> None:
        """Write a recording before the snapshot at the same barrier; without a recording, the epoch is not verified."""
        name = written_name(self._task, effect.epoch, self._incarnation).removesuffix(SNAPSHOT_SUFFIX)
        name += RECORDING_SUFFIX
        try:
            write_parts(self._job_directory / name, effect.parts, durable=False)
        except Unavailable:
            return  # the standby reports the missing recording
        if self.uploads is not None:
            self.uploads.put(name, self._job_directory / name, None)

    def _write_epoch_log(self, effect: WriteEpochLog) -> None:
        """Write the log of an epoch before the snapshot at its end; without the log, the epoch is not recorded."""
        unfinished = effect.reached.epoch == effect.epoch
        name = f"{RECORDED}/{log_name(self._task, effect.epoch, self._incarnation, unfinished)}"
        ended_ns = time.time_ns() if unfinished else 0
        parts = EpochLog(effect.log, effect.reached, effect.replayed, effect.failure, ended_ns).parts()
        try:
            write_parts(self._job_directory / name, parts, durable=False)
        except Unavailable as problem:
            _log.warning("epoch %d of %s is not recorded: %s", effect.epoch, self._task, problem)
            return
        if self.uploads is not None:
            self.uploads.put(name, self._job_directory / name, None)

    def _segment(self, number: int) -> Path:
        return self.spill_directory / f"{number:08d}.seg"

    def _spill(self, effect: SpillSegment) -> Event:
        entries = effect.entries
        parts = [
            entry.first.to_bytes(_STRUCT_BYTES, "little")
            + len(entry.payload or b"").to_bytes(_STRUCT_BYTES, "little")
            + lz4.block.compress(entry.payload or b"", store_size=False)
            for entry in entries
        ]
        try:
            write_parts(self._segment(effect.segment), parts, durable=False)
        except Unavailable:
            return SegmentFailed(effect.channel, effect.segment)
        count = entries[-1].next - entries[0].first
        return SegmentWritten(effect.channel, effect.segment, entries[0].first, count)

    def _load(self, effect: ReadSegment) -> Event:
        payloads: dict[int, bytes] = {}
        for part in self._parts_of_segment(effect.segment):
            first = int.from_bytes(part[:_STRUCT_BYTES], "little")
            size = int.from_bytes(part[_STRUCT_BYTES : 2 * _STRUCT_BYTES], "little")
            try:
                payloads[first] = lz4.block.decompress(part[2 * _STRUCT_BYTES :], uncompressed_size=size)
            except lz4.block.LZ4BlockError as problem:
                raise Unavailable(f"{self._segment(effect.segment)}: {problem}; its task restarts") from None
        return SegmentRead(effect.channel, effect.segment, payloads)

    def _parts_of_segment(self, number: int) -> list[bytes]:
        """Read a segment; if it is damaged, this process fails, and its successor regenerates the elements."""
        try:
            return read_parts(self._segment(number))
        except CorruptData as problem:
            raise Unavailable(
                f"a spilled segment cannot be read: {problem.args[0].partition(';')[0]}; its task restarts"
            ) from None
