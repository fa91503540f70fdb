"""`suppress`, which merges a key's revisions into one and sends it when its window closes or after a delay.

The state of a key consists of its first old value and its last new value; if these are the same, nothing is sent.  The
state of an unsettled row has a third item: the values that were sent for the row.

By the wall clock, a batch whose revisions begin to wait reads the clock once, and a timer sends them; both are logged.
The watermark stays at the lowest at which a waiting revision was first held back, so it is never late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from causal.ports import Services
from operators.graph import Node
from operators.kinds.tables.revisions import Revision, end_ns
from operators.kinds.tables.sameness import same
from operators.stage.scope import Scope
from operators.stage.stages import Due, ServedStage, Stage
from operators.stage.watermark_merge import END_NS, IDLE_NS, least, over_until
from operators.state.due_index import DueIndex, Pair
from operators.state.keyed_tables import KeyedTable
from operators.state.slots import Slots


class SuppressStage(Stage):
    """One task of `suppress`; its state is [old, new] or [old, new, sent] by (key, time at which it will be sent)."""

    traces = False

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._after_ns: int | None = node.options["after_ns"]
        """The delay of a key's revision, counted from the watermark at which the key was first held back (from the
        first watermark, if it was held back before that); None to send the revision when its window ends."""
        self._keys_max: int | None = node.options["keys_max"]
        """The maximum number of held keys; beyond it, the keys that are due first are sent immediately."""
        self._slots = Slots(f"{node.name}:held", node.name, scope.config.key_groups, self._sent_at_ns, by_key=True)
        self._mark_ns: int | None = None
        self._after_was_ns = self._after_ns
        """The delay on which the slots' times are based; until `changed` is called, it is the delay in the snapshot."""

    def run(self, records: list[Revision], keys: list[Any] | None) -> list[Revision]:
        slots, values, out, folded = self._slots, self._slots.values, list[Revision](), 0
        for revision in records:
            key, old, new, *sent = revision
            slots_of_key = slots.of(key)
            if slots_of_key:
                pair = (key, slots_of_key[0])
                slots.touch((pair,))
                values[pair][1] = new
                if sent:
                    values[pair][2:] = [{**sent[0], **dict(*values[pair][2:])}]
                folded += 1
                continue
            if sent:
                old = sent[0].get(self.name, old)
            self._hold(key, [old, new, *sent])
            while self._keys_max is not None and len(values) > self._keys_max:
                self._send(slots.take_first(), out)
        self.count("held_back", folded)
        return out

    @staticmethod
    def _sent_at_ns(slot: Any) -> int:
        """Return the time at which the revision in a slot will be sent."""
        return int(slot)

    def _hold(self, key: Any, value: list[Any]) -> None:
        self._slots.add({(key, self._due_ns(key)): value})

    def _due_ns(self, key: Any) -> int:
        if self._after_ns is None:
            return end_ns(key)
        return END_NS if self._mark_ns is None else self._later_ns(self._mark_ns)

    def _later_ns(self, mark_ns: int) -> int:
        return min(mark_ns + (self._after_ns or 0), END_NS)

    def _send(self, taken: list[tuple[Pair, Any]], out: list[Revision]) -> None:
        for (key, _), (old, new, *sent) in taken:
            if sent or not same(old, new):
                out.append((key, old, new, *sent))

    def advance(self, mark_ns: int) -> list[Revision]:
        first = self._mark_ns is None
        self._mark_ns = mark_ns if self._mark_ns is None else max(self._mark_ns, mark_ns)
        if first and self._after_ns is not None:
            self._count_from(mark_ns)
        out: list[Revision] = []
        self._send(self._slots.take(over_until(mark_ns)), out)
        return out

    def _count_from(self, mark_ns: int) -> None:
        """Start the delay of keys that were held back before the first watermark."""
        waiting = self._slots.take(END_NS)
        self._slots.add({(key, self._later_ns(mark_ns)): value for (key, _), value in waiting})

    def passes(self, mark_ns: int) -> int | None:
        """Hold the watermark back, because a held revision keeps the event time at which it arrived."""
        return mark_ns if self._after_ns is None or mark_ns in (END_NS, IDLE_NS) else mark_ns - self._after_ns

    @property
    def waiting(self) -> dict[Pair, list[Any]]:
        """The waiting revisions by (key, slot)."""
        return self._slots.values

    # Snapshots.

    def tables(self) -> list[KeyedTable]:
        return [self._slots.table]

    def header(self) -> dict[str, Any]:
        return {"mark": self._mark_ns, "after_ns": self._after_was_ns}

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._mark_ns = header.get("mark")
        self._after_was_ns = header.get("after_ns", self._after_ns)

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Adopt the highest watermark of the tasks."""
        marks_ns = [header["mark"] for header in headers if header["mark"] is not None]
        return {**headers[0], "mark": max(marks_ns, default=None)}

    def changed(self, epoch: int) -> None:
        """Make held revisions due as the current options require; delays run from when they were first held."""
        was_ns, self._after_was_ns = self._after_was_ns, self._after_ns
        waiting = self._slots.take(over_until(END_NS))
        self._slots.add({(key, self._slot_again(key, slot, was_ns)): value for (key, slot), value in waiting})

    def _slot_again(self, key: Any, due_ns: Any, was_ns: int | None) -> Any:
        """Return a key's new due time, given its due time under the former delay (None with until="closed")."""
        if was_ns is None and self._after_ns is None:
            return due_ns
        if was_ns is None or self._after_ns is None or due_ns == END_NS:  # END_NS: held before the first watermark
            return self._due_ns(key)
        return min(due_ns - was_ns + self._after_ns, END_NS)


class ClockSuppressStage(ServedStage, SuppressStage):
    """One task of `suppress` by the wall clock.

    A slot is a pair: the time at which the revision will be sent, and the watermark at which the key was first held
    back (IDLE_NS before the first watermark).
    """

    withholds = True

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._now_ns: int | None = None
        """The clock reading of the current batch; None before the batch needs one."""
        self._idle = False
        """Whether the input has become idle while revisions are waiting."""
        self._marks = DueIndex()
        """The waiting pairs by watermark."""
        self._stale = False
        """Whether the table was loaded, so that `_marks` must be derived again."""

    def begin(self, services: Services) -> None:
        super().begin(services)
        if self._stale:
            self._stale, self._marks = False, DueIndex()
            for pair in self._slots.values:
                self._marks.add(pair, pair[1][1])

    def run(self, records: list[Revision], keys: list[Any] | None) -> list[Revision]:
        self._now_ns, self._idle = None, False
        return super().run(records, keys)

    @staticmethod
    def _sent_at_ns(slot: Any) -> int:
        return int(slot[0])

    def _hold(self, key: Any, value: list[Any]) -> None:
        if self._now_ns is None:
            self._now_ns = self._services.now_ns() // 1000 * 1000
        mark_ns = IDLE_NS if self._mark_ns is None else self._mark_ns
        pair = (key, (self._later_ns(self._now_ns), mark_ns))
        self._slots.add({pair: value})
        self._marks.add(pair, mark_ns)

    def _send(self, taken: list[tuple[Pair, Any]], out: list[Revision]) -> None:
        for pair, _ in taken:
            self._marks.remove(pair, pair[1][1])
        super()._send(taken, out)

    def next_ns(self) -> int | None:
        return self._slots.next_ns()

    def fire(self, entries: Sequence[Due]) -> list[Revision]:
        out: list[Revision] = []
        self._send(self._slots.take(entries[-1][3]), out)
        return out

    def advance(self, mark_ns: int) -> list[Revision]:
        """Record the watermark; the end of the input sends everything."""
        self._mark_ns = mark_ns if self._mark_ns is None else max(self._mark_ns, mark_ns)
        out: list[Revision] = []
        if mark_ns == END_NS:
            self._send(self._slots.take(over_until(END_NS)), out)
        return out

    def passes(self, mark_ns: int) -> int | None:
        if mark_ns == IDLE_NS:
            self._idle = bool(self._slots.values)
            return None if self._idle else mark_ns
        oldest_ns = self._marks.next_ns()
        if oldest_ns is None:
            return mark_ns
        return None if oldest_ns == IDLE_NS else min(mark_ns, oldest_ns)

    def rests(self) -> bool:
        rests = self._idle and not self._slots.values
        self._idle = self._idle and not rests
        return rests

    # Snapshots.

    def header(self) -> dict[str, Any]:
        return {**super().header(), "idle": self._idle}

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        super().load_header(header, full)
        self._idle = header.get("idle", False)

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Adopt the lowest watermark of the tasks, so that what will be held back is not late either."""
        return {**headers[0], "mark": least(header["mark"] for header in headers), "idle": False}

    def restored(self) -> None:
        self._stale = True

    def changed(self, epoch: int) -> None:
        super().changed(epoch)
        self._stale = True

    def _slot_again(self, key: Any, slot: Any, was_ns: int | None) -> Any:
        due_ns, mark_ns = slot
        return min(due_ns - (was_ns or 0) + (self._after_ns or 0), END_NS), mark_ns
