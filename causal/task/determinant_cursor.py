"""A task's own log as its schedule (D1): existing entries are read first, and then new entries are appended.

There is no second code path for recovery. `take` and `record` are two ways to answer the same question, "what is
next?", and `replaying` determines which of them is used.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from causal.determinants import CLOCK, Clock, Determinant, DeterminantCodec, Order, Run, encode_order
from causal.errors import PeerViolation, ReplayDivergence, invariant
from causal.logs.log import DeterminantLog
from causal.records.varints import read_varint, unzigzag

Kind = TypeVar("Kind")


class DeterminantCursor:
    """A cursor that reads and extends one task's determinant log.

    If `logging` is false, as for guarantees without determinants, the cursor logs nothing.
    """

    __slots__ = (
        "log", "epoch", "task_name", "logging", "bytes_by_kind", "last_ns", "run_left", "_codec", "_place", "_ahead",
        "complete", "_ruled", "_loose", "_event",
    )  # fmt: skip

    def __init__(self, log: DeterminantLog, epoch: int, task_name: str, logging: bool = True) -> None:
        self.log = log
        self.epoch = epoch
        self.task_name = task_name
        self.logging = logging
        self.bytes_by_kind: Counter[str] = Counter()
        self.last_ns = 0
        """The task's last clock reading over all epochs; readings never decrease."""
        self._codec = DeterminantCodec()
        self._place = 0
        self._ahead: tuple[Determinant, int, int] | None = None
        self.run_left = 0
        """The number of events of an ordered task that the log contains as a run and that have not begun yet."""
        self.complete = False
        """Whether the log of this epoch is known to be complete, because later epochs have entries in a replay."""
        self._ruled = 0
        self._loose: dict[int, int] = {}
        """Input → the number of elements of its commuting events that have no entry yet."""
        self._event: tuple[int, int] | None = None
        """The event being performed, if its entry may be deferred in the same way."""

    @property
    def replaying(self) -> bool:
        """Whether the log of this epoch contains entries that have not been performed yet."""
        return self.run_left > 0 or self._place < self.log.extent(self.epoch)

    @property
    def place(self) -> int:
        """The number of bytes of this epoch's log that have been performed or appended."""
        return self._place

    def take_run(self) -> None:
        """Read a run from the log."""
        self.run_left = self.take(Run).count

    def rule(self, choice: bool) -> None:
        """Count an event that the rule of an ordered task has selected, either from a logged run or as a new event.

        Args:
            choice: whether another event (a timer, an answer, an idle input) could have occurred here instead. If so,
                the run is logged immediately, because a log that ended before this event would let a replay choose
                differently. Otherwise, the run is logged before the next entry, and a replay performs as many events as
                its inputs deliver.
        """
        if self.run_left:
            self.run_left -= 1
        elif self.logging:
            self._ruled += 1
            if choice:
                self.log_run()

    def log_run(self) -> None:
        """Log the events without entries: those selected by the rule of an ordered task, and those that commute.

        The commuting events get one entry per input, because a replay that performs them in a different order reaches
        the same state. The event being performed is logged last, because its output makes that state visible.
        """
        if self._ruled:
            self.check_incomplete()
            entry = self._codec.encode(Run(self._ruled))
            self._ruled = 0
            self._append(Run.kind, entry)
        if self._loose:
            loose, self._loose = self._loose, {}
            for input, count in loose.items():
                self._append(Order.kind, encode_order(input, count))
        if self._event is not None:
            (input, count), self._event = self._event, None
            self._append(Order.kind, encode_order(input, count))

    def defer_order(self, input: int, count: int) -> None:
        """Begin an event of a task whose events commute.

        The event is logged before the next entry of another kind, possibly merged with other commuting events.
        """
        if self.logging:
            self._event = (input, count)

    def settle_order(self) -> None:
        """End the event; if nothing has made its order visible, it is merged with the earlier events of its input."""
        if self._event is not None:
            (input, count), self._event = self._event, None
            self._loose[input] = self._loose.get(input, 0) + count

    def exhausted(self) -> bool:
        """Return whether nothing is left to replay in this epoch or in a later one."""
        return not self.replaying and not any(epoch > self.epoch for epoch in self.log.extents())

    def peek(self) -> Determinant:
        """Return the next determinant in the log without consuming it; allowed only while `replaying`."""
        return (self._ahead or self._read_ahead())[0]

    def _read_ahead(self) -> tuple[Determinant, int, int]:
        before = self._codec.last_ns
        try:
            determinant, behind = self._codec.decode(self.log.view(self.epoch), self._place)
        except PeerViolation as problem:
            raise ReplayDivergence(self.task_name, str(problem), "stops: its own log cannot be read") from problem
        self._ahead = ahead = (determinant, behind, self._codec.last_ns)
        self._codec.last_ns = before
        return ahead

    def take(self, kind: type[Kind]) -> Kind:
        """Read the next determinant, which must be of `kind`.

        Raises:
            ReplayDivergence: the log contains a different event at this place.
        """
        if self._ahead is None and not self.replaying:
            raise ReplayDivergence(
                self.task_name, f"epoch {self.epoch}: the replay asks for {kind.__name__.lower()} where the log ends"
            )
        determinant, behind, last_ns = self._ahead or self._read_ahead()
        if type(determinant) is not kind or self.run_left:
            raise ReplayDivergence(
                self.task_name,
                f"epoch {self.epoch}, byte {self._place} of its log: the replay asks for "
                f"{kind.__name__.lower()}, but the log has {determinant.kind}",
            )
        self._ahead, self._place, self._codec.last_ns = None, behind, last_ns
        if last_ns > self.last_ns:
            self.last_ns = last_ns
        return determinant

    def take_clock(self) -> int:
        """Read the next clock reading as `take` does, with few calls, because operators may take one for each record.

        Raises:
            ReplayDivergence: as for `take`.
        """
        log, place = self.log.view(self.epoch), self._place
        if self._ahead is None and not self.run_left and place < len(log) and log[place] == CLOCK:
            try:
                moved, self._place = read_varint(log, place + 1)
            except PeerViolation:
                return self.take(Clock).time_ns  # which says what is wrong
            codec = self._codec
            codec.last_ns = time_ns = codec.last_ns + unzigzag(moved)
            if time_ns > self.last_ns:
                self.last_ns = time_ns
            return time_ns
        return self.take(Clock).time_ns

    def record(self, determinant: Determinant) -> None:
        """Append the determinant of an event that has just occurred; not allowed while `replaying`."""
        if not self.logging:
            return
        invariant(not self.replaying, "a log is not appended to while it is replayed", task=self.task_name)
        self.check_incomplete()
        self.log_run()
        entry = self._codec.encode(determinant)
        self.last_ns = max(self.last_ns, self._codec.last_ns)
        self._append(determinant.kind, entry)

    def record_order(self, input: int, count: int) -> None:
        """Do the same as `record` for `Order`, the most frequent kind."""
        if self.logging:
            self.log_run()
            self._append(Order.kind, encode_order(input, count))

    def check_incomplete(self) -> None:
        """Refuse an answer, or an event, that the complete log of this epoch does not contain.

        Raises:
            ReplayDivergence: the log is complete.
        """
        if self.complete:
            raise ReplayDivergence(
                self.task_name,
                (
                    f"epoch {self.epoch}: the replay asks for an answer after the end of its log, but the "
                    "original run did not"
                ),
            )

    def _append(self, kind: str, entry: bytes) -> None:
        self.log.append(self.epoch, entry)
        self._place += len(entry)
        self.bytes_by_kind[kind] += len(entry)

    def advance(self, epoch: int) -> None:
        """Continue with the log of the next epoch, because a barrier has been passed.

        Raises:
            ReplayDivergence: the log of this epoch has unread entries.
        """
        invariant(epoch == self.epoch + 1, "epochs are consecutive", task=self.task_name, at=self.epoch, to=epoch)
        if self.replaying:
            raise ReplayDivergence(self.task_name, f"barrier {epoch} arrives before the log of epoch {self.epoch} ends")
        self.epoch = epoch
        self.complete = False
        invariant(not self._loose and self._event is None, "an event has no place in its epoch", task=self.task_name)
        self._ruled = 0  # no entry is needed, because the rule also leads a replay to the barrier
        self._codec = DeterminantCodec()
        self._place = 0
        self._ahead = None
