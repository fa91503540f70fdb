"""The channel to the outside world: rows are gathered into bundles that carry the rows' determinants (D8).

The store acts as the peer. Opening it is the handshake, and `StoreState` corresponds to WELCOME. Positions count rows.
Under the guarantee `epoch`, bundles are staged and become visible when the checkpoint that covers them is complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from causal.channels.rolling import RollingDigest
from causal.errors import DeterminantsLost, ReplayDivergence, invariant
from causal.logs.dissemination import Holdings, Seen
from causal.logs.rollback import Extent, Rollback, beyond, vector_of
from causal.ports import Bundle, StoreState, WithdrawPoint
from causal.records.batch import BARRIER, ROWS, Chunk

BUNDLE_BYTES_TARGET = 256 << 10
BUNDLE_EVENTS_MAX = 64
"""The maximum number of events whose rows may wait for one atomic write while more input is waiting."""


def truncated(marks: Sequence[WithdrawPoint], epoch: int) -> list[WithdrawPoint]:
    """Return the marks from `epoch` on, preceded by the last earlier mark, at which the later marks begin.

    The checkpoint covers the rows up to that earlier mark, and they depend on nothing later. The mark may nevertheless
    name extents of later epochs, because neighbours of its writer were ahead. These extents apply to the rows after the
    mark and to the logs stored with it.
    """
    earlier = [mark for mark in marks if mark.epoch < epoch]
    if len(earlier) < 2:
        return list(marks)
    depends = vector_of(extent for mark in earlier for extent in mark.depends)
    kept = tuple((task, e, extent) for (task, e), extent in sorted(depends.items()) if e >= epoch)
    return [replace(earlier[-1], depends=kept), *marks[len(earlier) :]]


def depended(marks: Sequence[WithdrawPoint]) -> dict[tuple[int, int], int]:
    """Return the extents on which the rows up to the last mark depend, if no complete checkpoint covers them."""
    return vector_of(extent for mark in marks for extent in mark.depends)


class SinkChannel:
    """One output of a task to the outside world.

    Args:
        staging: whether rows are staged.
        requests: whether each row is the key of a request, which is sent once its bundle has been written.
    """

    def __init__(
        self, id: int, name: str, position: int, digest: int, epoch: int, staging: bool = False, requests: bool = False
    ) -> None:
        self.id = id
        self.name = name
        self.position = position
        self.epoch = epoch
        self.covered = epoch
        """The last complete checkpoint known to this task."""
        self.opened = False
        self.staging = staging
        self.requests = requests
        self.committed = epoch
        """The epoch below which all staged rows are visible."""
        self._staged_bytes: dict[int, int] = {}
        """Epoch → the size in bytes of its staged rows that are not visible yet."""
        self._visible = position
        self._barriers: dict[int, int] = {}
        """The row position at each barrier that no complete checkpoint covers, if rows are staged."""
        self.withdrawn = 0
        """The total number of rows that the store has withdrawn."""
        self.seen = Seen()
        self.bundle_delta_bytes = 0
        """The number of determinant bytes that were written in bundles."""
        self._digest = RollingDigest(digest)
        self._held_next = position
        self._held_digest = digest
        self._rows: list[bytes] = []
        self._row_bytes = 0
        self._first = position
        self._origins: list[tuple[int, int]] = []
        self._marks: list[WithdrawPoint] = []
        self._befores: list[tuple[int, int]] | None = None
        """The position and digest before each of `_rows`, in a hot standby; None in a task."""
        self._row_barriers: dict[int, int] = {}
        """The row position at each barrier that no complete checkpoint covers, in a hot standby."""

    def shadow(self) -> None:
        """Keep all rows from now on, because the store may lack them when this hot standby takes over."""
        self._befores = []

    def orphaned(self, state: StoreState, rollback: Rollback) -> WithdrawPoint | None:
        """Return the point after which visible rows depend on lost determinants and must be withdrawn, or None.

        Raises:
            DeterminantsLost: rows that a complete checkpoint covers would have to be withdrawn.
        """
        depends: dict[tuple[int, int], int] = {}
        for place, mark in enumerate(state.marks):
            depends |= vector_of(mark.depends)
            if beyond(depends, rollback.lost_since(mark.rollback)) is not None:
                back = state.marks[max(0, place - 1)]
                if back.next < self.position:
                    raise DeterminantsLost(
                        f"{self.name}: the rows from {back.next} on depend on lost determinants, but a "
                        "complete checkpoint covers them"
                    )
                return back
        return None

    @property
    def counted(self) -> bool:
        """Whether the restored checkpoint includes rows in the store."""
        return self._first > 0

    def stands(self, lost: list[Extent]) -> dict[tuple[int, int], int]:
        """Return the dependencies of the visible rows that may remain if the `lost` extents are lost."""
        stands: dict[tuple[int, int], int] = {}
        for mark in self._marks:
            depends = stands | vector_of(mark.depends)
            if beyond(depends, lost) is not None:
                break
            stands = depends
        return stands

    def untruncated(self, state: StoreState) -> bool:
        """Return whether the store still has to be informed of the checkpoint from which this task was restored."""
        return sum(mark.epoch < self.covered for mark in state.marks) > 1

    def open(self, state: StoreState, aligned: bool) -> None:
        """Adopt the position and logs that the store reports.

        Args:
            aligned: false for guarantees without determinants, where the task resumes after the store's last row.
        """
        self.opened = True
        self.withdrawn = state.withdrawn
        self._marks = list(state.marks)
        self.seen.reset((d.task, d.epoch, d.offset + len(d.bytes)) for d in state.logs)
        if self.staging and state.next != self.position:
            raise DeterminantsLost(
                f"{self.name}: {state.next} rows are visible{f' in {state.place}' if state.place else ''}, but "
                f"the checkpoint was taken at {self.position}; another program has changed the staged rows or "
                "the store: restore them, or start the job without --resume"
            )
        if not aligned:
            self.position = self._first = state.next
            self._digest = RollingDigest(state.digest)
        if state.next < (self.position if self._befores is None else self._first):
            raise DeterminantsLost(
                f"{self.name}: its store{f' {state.place}' if state.place else ''} holds rows up to "
                f"{state.next}, but the checkpoint was taken at {self.position}; the store was emptied or "
                "replaced, or is a different one (a relative path is resolved from the current directory): restore "
                "the store, or start the job without --resume"
            )
        self._held_next, self._held_digest = state.next, state.digest
        if self._befores is not None:
            self._drop_known(self._befores)
        elif self.position == state.next:
            self._compare()

    def _drop_known(self, befores: list[tuple[int, int]]) -> None:
        """Drop the rows that a hot standby has kept and the store already has."""
        self._befores = None
        places = [*befores, (self.position, self._digest.value)]
        if self._held_next < self.position and (self._held_next, self._held_digest) not in places:
            raise self._contradiction()
        known = sum(position < self._held_next for position, _ in befores)
        del self._rows[:known], self._origins[:known]
        self._row_bytes = sum(map(len, self._rows))
        self._first = min(self._held_next, self.position)
        if self.position == self._held_next:
            self._compare()

    def put(self, chunk: Chunk) -> None:
        """Accept rows; compare and drop the rows that the store already has.

        Raises:
            ReplayDivergence: the replay regenerated rows that differ from the visible rows.
        """
        if chunk.kind == BARRIER:
            self._digest.close()
            self.epoch += 1
            if self._befores is not None:
                self._row_barriers[self.epoch] = self.position
            if self.staging:
                self._barriers[self.epoch] = self.position
            return
        if chunk.kind != ROWS:
            return
        known = self.position < self._held_next
        if self._befores is not None:
            self._befores.append((self.position, self._digest.value))
        self._digest.feed(chunk.body)
        self.position += chunk.count
        if known:
            self._first = self.position
            if self.position >= self._held_next:
                self._compare()
            return
        self._rows.append(chunk.body)
        self._row_bytes += len(chunk.body)
        self._origins.append((chunk.origin_ns, chunk.count))

    def _compare(self) -> None:
        if self.position != self._held_next or self._digest.value != self._held_digest:
            raise self._contradiction()

    def _contradiction(self) -> ReplayDivergence:
        return ReplayDivergence(
            f"the sink's encoding or an operator upstream of {self.name}",
            f"replayed rows up to {self.position} differ from the rows up to {self._held_next} in its store",
        )

    @property
    def expecting(self) -> bool:
        """Whether the store has rows that have not been regenerated yet."""
        return self.position < self._held_next

    def replayed(self) -> None:
        """Record that the replay has reached the end of the determinant log.

        Raises:
            ReplayDivergence: the store has more rows than were regenerated.
        """
        if self.position < self._held_next:
            self._compare()

    def truncate(self, epoch: int) -> None:
        """Record that checkpoint `epoch` is complete, so that the rows before it stay even if determinants are lost."""
        self._marks = truncated(self._marks, epoch)
        self.covered = max(self.covered, epoch)
        through = self._row_barriers.get(epoch)
        if self._befores and through is not None:
            covered = sum(position < through for position, _ in self._befores)
            del self._befores[:covered], self._rows[:covered], self._origins[:covered]
            self._first = through
        self._row_barriers = {e: at for e, at in self._row_barriers.items() if e > epoch}

    def commit(self, epoch: int) -> bool:
        """Return whether staged rows must be made visible now that checkpoint `epoch` is complete."""
        due = epoch > self.committed
        invariant(not due or epoch in self._barriers, "a complete checkpoint was passed", sink=self.name, epoch=epoch)
        return due

    def shown(self, epoch: int) -> None:
        """Record that the staged rows of epochs below `epoch` are visible."""
        if epoch > self.committed:
            self.committed, self._visible = epoch, self._barriers[epoch]
            self._barriers = {e: at for e, at in self._barriers.items() if e > epoch}
            self._staged_bytes = {e: size for e, size in self._staged_bytes.items() if e >= epoch}

    @property
    def visible(self) -> int:
        """The position up to which rows are visible, not counting rows that wait for their bundle."""
        return self._visible if self.staging else self.position

    @property
    def staged_bytes(self) -> int:
        """The size in bytes of the rows that wait for a checkpoint; 0 if rows are not staged."""
        return sum(self._staged_bytes.values())

    @property
    def digest(self) -> int:
        """The digest after the last row."""
        return self._digest.value

    @property
    def waiting(self) -> int:
        """The number of rows that the store does not have yet."""
        return self.position - self._first if self._rows else 0

    @property
    def full(self) -> bool:
        return self._row_bytes >= BUNDLE_BYTES_TARGET or len(self._rows) >= BUNDLE_EVENTS_MAX

    def last(self, partial: bool, incarnation: int, rollback: int) -> Bundle:
        """Return a final bundle without rows or determinants, because nothing will be replayed any more."""
        depends = () if partial else None
        return Bundle(
            self.position, 0, b"", self._digest.value, self.epoch, incarnation, (), True, depends, rollback
        )  # fmt: skip

    def bundle(
        self, holdings: Holdings | None, incarnation: int, rollback: int
    ) -> tuple[Bundle, list[tuple[int, int]]]:
        """Return the waiting rows as one bundle, and (origin_ns, rows) of each event in it for latency metrics."""
        logs, extents = ([], []) if holdings is None else holdings.lacking(self.seen, store=True)
        self.bundle_delta_bytes += sum([len(delta.bytes) for delta in logs])
        first, count = self._first, self.position - self._first
        depends = tuple(extents) if holdings is not None and holdings.partial else None
        bundle = Bundle(
            first, count, b"".join(self._rows), self._digest.value, self.epoch, incarnation, tuple(logs),
            depends=depends, rollback=rollback,
        )  # fmt: skip
        if depends is not None:
            if not self._marks:
                self._marks.append(WithdrawPoint(first, self._held_digest, self.epoch, rollback, ()))
            self._marks.append(WithdrawPoint(self.position, bundle.digest, self.epoch, rollback, depends))
        if self.staging:
            self._staged_bytes[self.epoch] = self._staged_bytes.get(self.epoch, 0) + len(bundle.rows)
        origins, self._origins = self._origins, []
        self._rows = []
        self._row_bytes = 0
        self._first = self.position
        return bundle, origins
