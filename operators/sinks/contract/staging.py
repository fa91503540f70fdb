"""The part of a store of staged rows that does not depend on where they are kept (guarantee `epoch`).

It puts our own rows in front of any sink's store: `write` keeps a bundle, `commit` writes the rows of covered epochs to
the real store by the ordinary protocol and then forgets them. It may be interrupted anywhere and done again: the real
store reports its progress.

At half of `bytes_max` the task asks for a checkpoint, and sources hold back records until it is complete; rows of
records that were under way by then may come on top.  With `OVER_BYTES_MAX` more than `bytes_max`, which only rows of a
few events can be that no checkpoint divides, the job ends with a line about it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager

from xxhash import xxh3_128_digest

from causal.errors import CausalError, CorruptData, PipelineError, fenced, invariant
from causal.ports import Bundle, LastingStore, SinkStore, StoreState
from causal.records.values import decode, encode
from operators.sinks.contract.account import check_newest

OVER_BYTES_MAX = 1 << 30
"""The bytes that may be staged beyond `staged_bytes_max`, of records that were under way when sources began to wait."""
COMMIT_BYTES = 4 << 20
"""The bytes of rows, about, that become visible in one step."""


class StagedRows(ABC):
    """A causal.ports.StagingStore around the store of one sink task.  One thread at a time.

    Args:
        inner: where rows go when they are covered.
        bytes_max: what should be staged at most.

    State: what is in memory is read again after any failure (`_forget`).
    """

    def __init__(self, inner: SinkStore, bytes_max: int) -> None:
        self._inner = inner
        self._bytes_max = bytes_max
        self._task = ""
        self._place = ""
        self._incarnation = -1
        self._sizes: dict[int, int] | None = None
        """The sound bytes per epoch that is staged; None: to be read again."""
        self._next = self._digest = 0
        self._last = b""
        """The mark of the last bundle."""
        self._visible = 0
        self._visible_digest = 0
        self._due: Iterator[Bundle] | None = None
        self._due_below = 0
        self._pending: Bundle | None = None

    # -- causal.ports.SinkStore ------------------------------------------------------------------------

    def open(self, task: str, run: str, incarnation: int) -> StoreState:
        """See `causal.ports.SinkStore.open`: here first, then in the real store."""
        self.close()
        self._task, self._incarnation = task, incarnation
        self._claim(run)
        state = self._inner.open(task, run, incarnation)
        self._visible, self._visible_digest = state.next, state.digest
        self._place = state.place
        return self.last_bundle()

    def expect(self, counted: bool) -> None:
        """See `causal.ports.LastingStore.expect`: the real store exists, staged rows may not."""
        if isinstance(self._inner, LastingStore):
            self._inner.expect(counted)

    @property
    def refused(self) -> int:
        """The number of committed rows that the real store would not take."""
        return int(getattr(self._inner, "refused", 0))

    def last_bundle(self) -> StoreState:
        """See `causal.ports.SinkStore.last_bundle`: of the staged rows, which are behind the visible ones."""
        with self._owned():
            self._read()
        return StoreState(self._next, self._digest, (), place=self._place)

    def write(self, bundle: Bundle) -> None:
        """Stage the bundle.

        Raises: as `causal.ports.SinkStore.write`; PipelineError where too much is staged.
        """
        invariant(bundle.incarnation == self._incarnation, "a bundle is its writer's own", task=self._task)
        invariant(not bundle.logs and bundle.depends is None, "staged rows depend on nothing", task=self._task)
        if bundle.ended:
            invariant(bundle.first == self._visible, "a job ends when all is visible", task=self._task)
            self._inner.write(bundle)
            return
        body = encode([bundle.first, bundle.count, bundle.rows, bundle.digest, bundle.epoch])
        mark = xxh3_128_digest(body)
        with self._owned():
            sizes = self._read()
            if mark == self._last and bundle.first + bundle.count == self._next:
                return
            facts = {"task": self._task, "first": bundle.first, "next": self._next, "epoch": bundle.epoch}
            invariant(bundle.first == self._next, "a bundle begins where the last one ended", **facts)
            invariant(bundle.epoch >= max(sizes, default=0), "epochs rise", **facts)
            staged_bytes = sum(sizes.values()) + len(body)
            if staged_bytes > self._bytes_max + OVER_BYTES_MAX:
                raise PipelineError(
                    f"{self._task}: {staged_bytes} bytes of rows wait for a checkpoint, staged_bytes_max is "
                    f"{self._bytes_max}, and {OVER_BYTES_MAX} more are let in; emit less per record or window, "
                    "or set staged_bytes_max higher"
                )
            size = self._keep(bundle, body)
            sizes[bundle.epoch] = sizes.get(bundle.epoch, 0) + size
            self._next, self._digest, self._last = bundle.first + bundle.count, bundle.digest, mark

    def truncate(self, epoch: int) -> None:
        """Do nothing: staged rows have no determinants, and the commit truncates the real store."""

    def close(self) -> None:
        """Release what is open; what was staged for a checkpoint stays."""
        self._inner.close()
        self._release()
        self._forget()
        self._pending = None

    # -- causal.ports.StagingStore ------------------------------------------------------------------------

    @abstractmethod
    def stage(self, epoch: int) -> None:
        """See `causal.ports.StagingStore.stage`."""

    def commit(self, epoch: int) -> bool:
        """See `causal.ports.StagingStore.commit`."""
        if self._due is None or self._due_below != epoch:
            with self._owned():
                epochs = [each for each in sorted(self._read()) if each < epoch]
            self._due, self._due_below, self._pending = self._bundles(epochs), epoch, None
        if self._pending is None:
            with self._guarded():
                self._pending = next(self._due, None)
        bundle = self._pending
        if bundle is None:
            self._inner.truncate(epoch)
            self._remove([each for each in self._sizes or () if each < epoch])
            self._due = None
            return False
        self._inner.write(bundle)  # which may be retried with the same one
        self._visible, self._visible_digest = bundle.first + bundle.count, bundle.digest
        self._pending = None
        return True

    def staged(self) -> tuple[int, int]:
        """See `causal.ports.StagingStore.staged`."""
        return self._next - self._visible, sum((self._sizes or {}).values())

    def discard(self, epoch: int) -> StoreState:
        """See `causal.ports.StagingStore.discard`."""
        with self._owned():
            known = self._epochs()
        self._remove([each for each in known if each >= epoch])
        self._sizes = None
        return self.last_bundle()

    # -- where they are ------------------------------------------------------------------------------------

    @abstractmethod
    def _claim(self, run: str) -> None:
        """Fence every lower incarnation from what is staged."""

    @abstractmethod
    def _owned(self) -> AbstractContextManager[None]:
        """Raise `Fenced` where a younger process is known to be the owner; forget what is in memory after an error."""

    @abstractmethod
    def _guarded(self) -> AbstractContextManager[None]:
        """Forget what is in memory after an error."""

    @abstractmethod
    def _read(self) -> dict[int, int]:
        """Return the bytes staged per epoch; read where they are not known, with the position and digest of the
        last.
        """

    @abstractmethod
    def _epochs(self) -> list[int]:
        """Return the epochs of which anything is kept."""

    @abstractmethod
    def _keep(self, bundle: Bundle, body: bytes) -> int:
        """Keep a bundle, of which `body` is the record; returns its bytes."""

    @abstractmethod
    def _bundles(self, epochs: list[int]) -> Iterator[Bundle]:
        """Return the rows of these epochs that are not visible yet, as few bundles as their size allows."""

    @abstractmethod
    def _remove(self, epochs: list[int]) -> None:
        """Forget the staged rows of these epochs permanently."""

    @abstractmethod
    def _release(self) -> None:
        """Close what is open."""

    def _forget(self) -> None:
        """Make the next step read the staged rows again."""
        self._sizes = self._due = None

    def _check_owner(self, body: bytes, run: str, where: object) -> None:
        """Raise unless this process may follow the owner that `body` names."""
        try:
            task, owner, incarnation = decode(body)[:3]
            task, owner, incarnation = str(task), str(owner), int(incarnation)
        except (CausalError, TypeError, ValueError) as problem:
            raise CorruptData(f"{where} does not name an owner ({problem}); restore it") from None
        check_newest(where, run, owner)
        if (task, owner) != (self._task, run):
            raise PipelineError(
                f"{where} holds staged rows of another job or run; resume that one "
                "(causal run PIPELINE.py --resume), or give another --state-dir"
            )
        if incarnation > self._incarnation:
            raise fenced(self._task, self._incarnation)
