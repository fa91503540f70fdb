"""Aligned barriers and the snapshot after them: one checkpoint of one task at a time.

A delivered barrier blocks its channel until the barrier has been delivered on all channels. The state is then frozen
and encoded in small steps while the task continues. A snapshot file contains only the changes since the last snapshot,
unless the state is small and the files needed for a restore have grown to twice its size. The files of a large state
are merged in the background (`causal.task.merging`).
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.channels.queue import InputQueue
from causal.cut import Cut
from causal.effects import Effect, ReportSnapshot, WriteSnapshot
from causal.errors import PeerViolation, invariant
from causal.ports import Chain, SnapshotJob
from causal.snapshot_files import SnapshotFile
from causal.task.merging import Merging

KEYS_PER_STEP, KEYS_PER_STEP_FREE = 1000, 500
"""The number of keys to encode per untimed step while events are waiting, and while none are waiting."""
FIRST_KEYS, KEYS_MAX = 64, 1 << 17
"""The number of keys to encode in the first timed step, and the maximum for any step. A step encodes at most `GROWTH`
times as many keys as the previous one."""
GROWTH = 4
STEP_NS_MIN, STEP_NS_MAX = 1_000_000, 100_000_000
"""The limits on a step's duration, which otherwise equals that of the previous event so that both get equal time."""
LATE_SHARE = 3
"""The duration of the steps after an event, as a multiple of that of the event, while a snapshot is *late*."""
LATE_NS_MIN, LATE_MAX = 1_000_000_000, 3
"""The minimum of the time after which a snapshot is late, otherwise one checkpoint interval; and the multiple of that
time after which it no longer is, so that events are not delayed for as long as a large state takes."""
FREE_NS = 500_000
"""The duration of a step while no event is waiting; an event that arrives meanwhile has to wait for its end."""
FILES_MIN, FILES_MAX = 24, 1000
BYTES_PER_FILE = 4 << 20
"""The number of bytes of state per additional file, which avoids rewriting a large state for small changes."""
FULL_FROM_BYTES = 1 << 20
LINKED_FROM_BYTES = 16 << 20
"""The total file size from which a complete snapshot also contains the latest changes separately, so that a standby
need not load the rest."""
LINKED_MAX_BYTES = 32 << 20
"""The size of the last file above which a complete snapshot does not contain the latest changes separately, because the
task has to wait while they are encoded in one step."""


def files_max(base_bytes: int) -> int:
    """Return the maximum number of files for a restore if the first, complete file has `base_bytes` bytes."""
    return min(FILES_MAX, FILES_MIN + base_bytes // BYTES_PER_FILE)


class Checkpointing:
    """Barrier alignment, the snapshot in progress, and the files needed to restore the last snapshot.

    Args:
        files: the files from which the task was restored, oldest first.
        interval_ns: the time between two checkpoints.
    """

    def __init__(self, chain: Chain, cut: Cut, files: list[SnapshotFile], interval_ns: int = LATE_NS_MIN) -> None:
        self.cuts: dict[int, Cut] = {cut.epoch: cut}
        self.files = list(files)
        self.encodes_next = False
        """Whether the next turn encodes, because the last turn performed an event, or because the snapshot is late."""
        self._chain = chain
        self._merging: Merging | None = None
        self._job: SnapshotJob | None = None
        self.withholding = False
        """Whether snapshots are kept unwritten, because a hot standby keeps each until its checkpoint is complete."""
        self._cut = cut
        self._writing = 0
        self._linked = bool(files)
        """Whether the last file contains the state as it was last frozen or loaded."""
        self._full = False
        self._stepped = 0
        """The number of keys that the previous turn encoded; 0 if that turn did something else."""
        self._keys_before = FIRST_KEYS // GROWTH
        self._ns_per_key = 0.0
        self._event_ns = 0
        self._late_ns = max(interval_ns, LATE_NS_MIN)
        self._age_ns = 0
        """The duration of all turns since the state was frozen."""
        self._owed_ns = 0
        """The time for which a late snapshot may still be encoded before the next event."""

    def took(self, took_ns: int) -> None:
        """Record the duration of the previous turn, or 0 if no clock was read."""
        keys, self._stepped = self._stepped, 0
        if not took_ns:
            return
        self._age_ns += took_ns
        if not keys:
            self._event_ns, self._owed_ns = took_ns, LATE_SHARE * took_ns
            return
        self._ns_per_key = took_ns / keys
        self._owed_ns -= took_ns
        late = self._late_ns < self._age_ns < LATE_MAX * self._late_ns
        self.encodes_next = self.encoding and late and self._owed_ns > 0

    def _keys(self, busy: bool) -> int:
        """Return the number of keys that the next step encodes, which is the number that fits into its time budget."""
        if not self._event_ns and not self._ns_per_key:
            return KEYS_PER_STEP if busy else KEYS_PER_STEP_FREE
        budget_ns = min(max(self._event_ns, STEP_NS_MIN), STEP_NS_MAX) if busy else FREE_NS
        fitting = int(budget_ns / self._ns_per_key) if self._ns_per_key else FIRST_KEYS
        return max(1, min(fitting, GROWTH * self._keys_before, KEYS_MAX))

    def deliver(self, channel: InputQueue, epoch: int, inputs: Sequence[InputQueue], at: int) -> bool:
        """Record that a barrier was delivered on `channel`; return whether all inputs have now delivered it.

        Raises:
            PeerViolation: the barrier is not the next one in order.
        """
        if epoch != at + 1:
            raise PeerViolation(f"channel {channel.id}: barrier {epoch} arrived in epoch {at}")
        channel.blocked = True
        if not all(each.blocked for each in inputs):
            return False
        for each in inputs:
            each.blocked = False
        return True

    def freeze(self, cut: Cut) -> None:
        """Freeze the current state as the state at barrier `cut.epoch`."""
        invariant(self._job is None and not self._writing, "one snapshot at a time", epoch=cut.epoch)
        sizes = [size for _, size, _ in self.files]
        self._full = not sizes or self._too_many(sizes)
        self._cut = cut
        self.cuts[cut.epoch] = cut
        self._job = self._chain.snapshot(self._full, self._behind(sizes) if self._full and sizes else "")
        self._linked = False
        self._age_ns = 0

    def _too_many(self, sizes: Sequence[int]) -> bool:
        """Return whether a restore would have to read so many files that a complete snapshot is due."""
        if self.merging.takes_over(self.files):
            return len(sizes) >= FILES_MAX
        return len(sizes) >= files_max(sizes[0]) or sum(sizes[1:]) > max(sizes[0], FULL_FROM_BYTES)

    @property
    def merging(self) -> Merging:
        """The merges of the task's snapshot files."""
        if self._merging is None:
            self._merging = Merging(self._chain.merge_rules())
        return self._merging

    def _behind(self, sizes: Sequence[int]) -> str:
        """Return the digest of the previous snapshot's file if the new snapshot should contain the changes since it."""
        wanted = sum(sizes) >= LINKED_FROM_BYTES and sizes[-1] <= LINKED_MAX_BYTES
        return self.files[-1][2] if wanted and self._linked and not self.withholding else ""

    @property
    def encoding(self) -> bool:
        return self._job is not None

    def step(self, busy: bool = True) -> list[Effect]:
        """Encode another part of the frozen state; `busy` states whether events are waiting meanwhile."""
        self.encodes_next = False
        if self._job is None:
            return []
        self._keys_before = self._stepped = keys = self._keys(busy)
        if not self._job.step(keys):
            return []
        self._stepped = 0  # not timed, because the last step encodes fewer keys and also joins the output of all steps
        parts = self._job.parts(self._cut.pack())
        self._full = self._job.full
        self._job = None
        self._writing = 0 if self.withholding else self._cut.epoch
        return [WriteSnapshot(self._cut.epoch, parts)]

    def finish_encoding(self) -> list[Effect]:
        """Encode the rest of the state, because the next barrier has already arrived (only in a replay)."""
        effects: list[Effect] = []
        while self._job is not None:
            effects += self.step()
        self._stepped = 0
        return effects

    def written(self, epoch: int, file: SnapshotFile) -> list[Effect]:
        if epoch != self._writing:
            return []
        self._writing = 0
        self._linked = True
        self.files = [file] if self._full else [*self.files, file]
        return [ReportSnapshot(epoch, list(self.files)), *self.merging.written(self.files)]

    def merged(self, sources: Sequence[SnapshotFile], file: SnapshotFile | None) -> list[Effect]:
        """Name the merged file instead of its sources from the next snapshot on; return the next merge, if one is due.

        Args:
            file: the merged file; None if the merge has failed.
        """
        return [*self.merging.merged(sources, file, self.files)]

    def resume(self, epoch: int, files: list[SnapshotFile], withheld: WriteSnapshot | None) -> None:
        """Turn a hot standby's checkpointing into that of the task, continuing from complete checkpoint `epoch`.

        Args:
            withheld: the snapshot of a later barrier, which must be written now.
        """
        self.files = list(files)
        self.withholding = self._linked = False
        self._writing = 0 if withheld is None else withheld.epoch
        if self._job is not None and self._cut.epoch <= epoch:
            self._job = None  # the previous incarnation has already written this snapshot
            self.encodes_next = False

    def encodes_behind(self, epoch: int) -> bool:
        """Return whether a snapshot for a barrier later than `epoch` is being encoded."""
        return self._job is not None and self._cut.epoch > epoch

    def completed(self, epoch: int) -> Cut | None:
        """Record that checkpoint `epoch` is complete; return its cut, or None if this incarnation does not know it."""
        for old in [e for e in self.cuts if e < epoch]:
            del self.cuts[old]
        return self.cuts.get(epoch)
