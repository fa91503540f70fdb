"""Aligned barriers and the snapshot after them: one checkpoint of one task at a time.

A barrier that was delivered blocks its channel until it has been delivered on all; then the state is
frozen, and encoded little by little while the task continues.  A file holds what changed since the
last snapshot, unless the files to restore from have grown to twice the state.
"""

from __future__ import annotations

from collections.abc import Sequence

from causal.channels.queue import InputQueue
from causal.cut import Cut
from causal.effects import Effect, ReportSnapshot, WriteSnapshot
from causal.errors import PeerViolation, invariant
from causal.ports import Chain, SnapshotJob

KEYS_PER_STEP, KEYS_PER_STEP_FREE = 1000, 500
"""The keys encoded in one step while events wait, and while none does, where no step has been timed."""
FIRST_KEYS, KEYS_MAX = 64, 1 << 17
"""The keys encoded in the first step that is timed, and the most in any; a step has at most `GROWTH` times as many as
the one before."""
GROWTH = 4
STEP_NS_MIN, STEP_NS_MAX = 1_000_000, 100_000_000
"""A step takes as long as the event before it, within these bounds: encoding gets its share of the time."""
FREE_NS = 500_000
"""The duration of a step while no event waits: an event that arrives waits for it."""
FILES_MIN, FILES_MAX = 24, 1000
BYTES_PER_FILE = 4 << 20
"""The bytes of state for which one more file may be kept: a large state is not rewritten for small changes."""
FULL_FROM_BYTES = 1 << 20
LINKED_FROM_BYTES = 16 << 20
"""The bytes of files from which a complete snapshot also holds what has changed: a standby has no need of the rest."""
LINKED_MAX_BYTES = 32 << 20
"""The bytes of the last file above which it does not: what has changed is encoded in one step, and the task waits."""


def files_max(base_bytes: int) -> int:
    """Return how many files may restore a state whose first, complete file has `base_bytes`."""
    return min(FILES_MAX, FILES_MIN + base_bytes // BYTES_PER_FILE)


SnapshotFile = tuple[str, int, str]
"""A file of a snapshot: (path relative to the job's directory, bytes, digest in hex)."""


class Checkpointing:
    """Alignment, the snapshot under way, and the files that restore the last one.

    Args:
        files: the files that the task was restored from, oldest first.
    """

    def __init__(self, chain: Chain, cut: Cut, files: list[SnapshotFile]) -> None:
        self.cuts: dict[int, Cut] = {cut.epoch: cut}
        self.files = list(files)
        self.encodes_next = False
        """The next turn encodes, as the one before performed an event: neither waits for more than one of the other."""
        self._chain = chain
        self._job: SnapshotJob | None = None
        self.withholding = False
        """Whether what is encoded is not written: a hot standby keeps it until the checkpoint is complete."""
        self._cut = cut
        self._writing = 0
        self._linked = bool(files)
        """Whether the last of the files holds the state as it was frozen last, or loaded."""
        self._full = False
        self._stepped = 0
        """Keys that the turn before encoded; 0 if it did something else."""
        self._keys_before = FIRST_KEYS // GROWTH
        self._ns_per_key = 0.0
        self._event_ns = 0

    def took(self, took_ns: int) -> None:
        """Record how long the previous turn lasted; 0 where no clock was read."""
        keys, self._stepped = self._stepped, 0
        if keys and took_ns:
            self._ns_per_key = took_ns / keys
        elif took_ns:
            self._event_ns = took_ns

    def _keys(self, busy: bool) -> int:
        """Return how many keys the next step encodes: as many as fit into its time."""
        if not self._event_ns and not self._ns_per_key:
            return KEYS_PER_STEP if busy else KEYS_PER_STEP_FREE
        budget_ns = min(max(self._event_ns, STEP_NS_MIN), STEP_NS_MAX) if busy else FREE_NS
        fitting = int(budget_ns / self._ns_per_key) if self._ns_per_key else FIRST_KEYS
        return max(1, min(fitting, GROWTH * self._keys_before, KEYS_MAX))

    def deliver(self, channel: InputQueue, epoch: int, inputs: Sequence[InputQueue], at: int) -> bool:
        """Record a barrier that was delivered on `channel`; true if it has now been delivered on all inputs.

        Raises:
            PeerViolation: it is not the barrier that must come next.
        """
        if epoch != at + 1:
            raise PeerViolation(f"channel {channel.id}: barrier {epoch} arrives in epoch {at}")
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
        self._full = not sizes or len(sizes) >= files_max(sizes[0]) or sum(sizes[1:]) > max(sizes[0], FULL_FROM_BYTES)
        self._cut = cut
        self.cuts[cut.epoch] = cut
        self._job = self._chain.snapshot(self._full, self._behind(sizes) if self._full and sizes else "")
        self._linked = False

    def _behind(self, sizes: Sequence[int]) -> str:
        """Return the digest of the file that holds the snapshot before, if this one is to hold what has changed."""
        wanted = sum(sizes) >= LINKED_FROM_BYTES and sizes[-1] <= LINKED_MAX_BYTES
        return self.files[-1][2] if wanted and self._linked and not self.withholding else ""

    @property
    def encoding(self) -> bool:
        return self._job is not None

    def step(self, busy: bool = True) -> list[Effect]:
        """Encode some more of the frozen state; `busy` if events wait meanwhile."""
        self.encodes_next = False
        if self._job is None:
            return []
        self._keys_before = self._stepped = keys = self._keys(busy)
        if not self._job.step(keys):
            return []
        self._stepped = 0  # the last step has fewer keys, and puts together what all have encoded
        parts = self._job.parts(self._cut.pack())
        self._full = self._job.full
        self._job = None
        self._writing = 0 if self.withholding else self._cut.epoch
        return [WriteSnapshot(self._cut.epoch, parts)]

    def finish_encoding(self) -> list[Effect]:
        """Encode all that is left, as the next barrier has already arrived (only in a replay)."""
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
        return [ReportSnapshot(epoch, list(self.files))]

    def resume(self, epoch: int, files: list[SnapshotFile], withheld: WriteSnapshot | None) -> None:
        """Continue as the task itself, from the complete checkpoint `epoch`.

        Args:
            withheld: the snapshot after it that is to be written now.
        """
        self.files = list(files)
        self.withholding = self._linked = False
        self._writing = 0 if withheld is None else withheld.epoch
        if self._job is not None and self._cut.epoch <= epoch:
            self._job = None  # its task has written it

    def encodes_behind(self, epoch: int) -> bool:
        """Return whether a snapshot of a later barrier than `epoch` is being encoded."""
        return self._job is not None and self._cut.epoch > epoch

    def completed(self, epoch: int) -> Cut | None:
        """Record that checkpoint `epoch` is complete; returns its cut, if this incarnation knows it."""
        for old in [e for e in self.cuts if e < epoch]:
            del self.cuts[old]
        return self.cuts.get(epoch)
