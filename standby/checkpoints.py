"""The checkpoint coordinator: triggers, collects, completes; never aborts.

Checkpoint e = last complete + 1 is the only one that can be under way, so its number needs no
journal: a restarted supervisor triggers it again, and sources that have it already say so in their
beats.  A task that is promoted has to acknowledge for itself, because the barrier of a source that
died before anybody saw it may fall elsewhere the second time.  Therefore `completed` is sent only when
no living task would still replay from below it, and no promotion happens while a manifest is written.
"""

from __future__ import annotations

from collections.abc import Mapping

from standby.effects import Files, Outbox, Record, RemoveFiles, WriteManifest
from standby.roster import Roster, SeatState, Slot, SlotState

AGAIN_NS = 500_000_000
"""How long a source may take to report a barrier before it is told again."""

MANIFEST_AGAIN_NS, MANIFEST_AGAIN_NS_MAX = 500_000_000, 30_000_000_000
"""How long after a manifest that could not be written the next try comes: twice as long each time, up to the last."""

LOOK_AGAIN_NS = 50_000_000
"""Between two looks whether all tasks have standbys."""

TOOK_KEPT = 1000
"""Durations kept for the report."""


class Coordinator:
    """One job's checkpoints."""

    def __init__(self, roster: Roster, interval_ns: int, enabled: bool, checked: bool = False) -> None:
        """
        Args:
            checked: standbys perform each epoch again, so the first one ends once every task has a standby.
        """
        self._checked = checked
        self._roster = roster
        self._interval_ns = interval_ns
        self.enabled = enabled
        self.complete = 0
        """Epoch of the last complete checkpoint; 0 for none."""
        self.count = 0
        self.files: dict[str, Files] = {}
        self.took_ms: list[float] = []
        self.under_way = 0
        """Epoch under way; 0 for none."""
        self.wanted = 0
        """Epoch of the last savepoint that was asked for: it begins as soon as it can."""
        self.final = 0
        """Epoch of a savepoint at which the job ends; 0 for none."""
        self.holding = False
        """Sources hold back records until the checkpoint under way is complete, because a task keeps too much."""
        self.writing = False
        self._failures = 0
        """Of the manifest under way, one after the other."""
        self._again_ns = 0
        self._before: dict[str, Files] = {}
        self._acks: dict[str, Files] = {}
        self._began_ns = 0
        self._due_ns = 0

    def apply(self, record: Record) -> None:
        """Change by one decision; kinds that do not concern it are left alone."""
        if record["kind"] == "checkpoint":
            self._before, self.files = self.files, as_files(record["files"])
            self.complete = record["epoch"]
            self.count = record["count"]
            self.took_ms = [*self.took_ms[-TOOK_KEPT:], record["took_ms"]]
            self.under_way, self.writing, self._acks = 0, False, {}
            self.holding = False
            self._failures = self._again_ns = 0
        elif record["kind"] == "added":  # a task begins at the last complete checkpoint
            self.files = {**self.files, **as_files({record["task"]: record["files"]})}
        elif record["kind"] == "savepoint":
            self.wanted = record["epoch"]
            self.final = record["epoch"] if record["final"] else self.final
        elif record["kind"] == "promoted":
            self._acks.pop(record["task"], None)
        elif record["kind"] == "rolled_back":
            for task in record["tasks"]:
                self._acks.pop(task, None)
        elif record["kind"] == "resumed":
            self.under_way, self.writing, self._acks, self._due_ns = 0, False, {}, 0
            self.holding = False
            if self.final <= self.complete:
                self.final = 0  # it ended there; what goes on from it is not meant to end

    def acknowledged(self, task: str, epoch: int, files: Files, now_ns: int, outbox: Outbox) -> None:
        """The present incarnation of `task` has its state at barrier `epoch` on disk."""
        if not self.enabled or self.writing or epoch != self.complete + 1:
            return
        if not self.under_way:  # triggered by the supervisor before this one
            self.under_way, self._began_ns = epoch, now_ns
        self._acks[task] = files
        if len(self._acks) == len(self._roster.seats) and now_ns >= self._again_ns:
            self.writing = True
            outbox.add(WriteManifest(epoch, dict(self._acks)))

    def written(self, epoch: int, now_ns: int, outbox: Outbox) -> None:
        """The manifest is durable: the checkpoint is complete."""
        if not self.writing or epoch != self.under_way:
            return
        files = {task: [list(file) for file in acked] for task, acked in self._acks.items()}
        outbox.decide(
            "checkpoint", count=self.count + 1, epoch=epoch, files=files, took_ms=(now_ns - self._began_ns) / 1e6
        )
        self._due_ns = max(now_ns, self._began_ns + self._interval_ns)
        for slot in self._roster.slots.values():
            if slot.state in (SlotState.SERVING, SlotState.ASSIGNED) and slot.seen_ns:
                outbox.send(slot.name, "completed", epoch=epoch)
        keep = frozenset(path for told in (self.files, self._before) for files in told.values() for path, _, _ in files)
        outbox.add(RemoveFiles(keep, epoch, epoch - 1))

    @property
    def began_ns(self) -> int | None:
        """When the checkpoint under way began, as this supervisor knows; None while there is none."""
        return self._began_ns if self.under_way else None

    @property
    def awaited(self) -> list[str]:
        """Tasks that have not acknowledged the checkpoint under way, in the order of the graph."""
        return [name for name in self._roster.seats if name not in self._acks] if self.under_way else []

    def not_written(self, epoch: int, now_ns: int) -> None:
        """The manifest failed: forget the acknowledgements, which the beats repeat, and try again after a pause."""
        if self.writing and epoch == self.under_way:
            self.writing, self._acks = False, {}
            self._again_ns = now_ns + min(MANIFEST_AGAIN_NS << min(self._failures, 16), MANIFEST_AGAIN_NS_MAX)
            self._failures += 1

    def adopt(self, epoch: int, files: Mapping[str, Files], outbox: Outbox) -> None:
        """A manifest that was on disk before its checkpoint was journaled: it is complete all the same."""
        if self.enabled and epoch == self.complete + 1:
            told = {task: [list(file) for file in acked] for task, acked in files.items()}
            outbox.decide("checkpoint", count=self.count + 1, epoch=epoch, files=told, took_ms=0.0)

    def remind(self, slot: Slot, outbox: Outbox) -> None:
        """A process that may have missed `completed` while no supervisor lived hears it again."""
        if self.complete:
            outbox.send(slot.name, "completed", epoch=self.complete)

    @property
    def ends(self) -> bool:
        """The checkpoint at which the job ends is complete."""
        return 0 < self.final <= self.complete

    def settle(self, now_ns: int, outbox: Outbox, everybody: bool = True, hurries: bool = False) -> None:
        """Begin the next checkpoint when it is due, and tell sources that do not have it yet.

        Args:
            hurries: it is due now.
            everybody: look at all sources also when none begins; otherwise their own beats have them told.
        """
        if not self.enabled or self.writing or not self._roster.up:
            return
        if not self._due_ns:
            self._due_ns = now_ns + self._interval_ns
        pressed = self._pressed()
        due = hurries or pressed or now_ns >= self._due_ns or self.wanted > self.complete
        if due and not self.under_way and self._checked and not self.complete and not self._all_have_standbys():
            self._due_ns, due = now_ns + LOOK_AGAIN_NS, False
        if due and not self.under_way and not self.ends:
            self.under_way, self._began_ns, everybody = self.complete + 1, now_ns, True
        if self.under_way and pressed and not self.holding:
            self.holding = everybody = True
        if self.under_way and everybody:
            for seat in self._roster.sources:
                slot = self._roster.holder(seat)
                if seat.state is SeatState.SERVED and slot is not None:
                    self.trigger(slot, now_ns, outbox)

    def _pressed(self) -> bool:
        """Whether a task keeps so much that the next checkpoint should complete before sources go on."""
        slots = self._roster.slots.values()
        return any(slot.wanted_epoch > self.complete and slot.state is SlotState.SERVING for slot in slots)

    def _all_have_standbys(self) -> bool:
        return all(self._roster.idle(name) is not None for name in self._roster.seats)

    def trigger(self, slot: Slot, now_ns: int, outbox: Outbox) -> None:
        """Tell one source of the checkpoint under way, unless it has it or was told a moment ago.

        One that is to hold back records is told again also after its barrier: it may be a new incarnation.
        """
        epoch, told_ns = slot.triggered
        has_it = slot.epoch >= self.under_way or slot.task in self._acks
        if slot.state is not SlotState.SERVING or (has_it and not self.holding):
            return
        news = epoch != self.under_way or (self.holding and slot.held_epoch != self.under_way)
        if news or now_ns - told_ns >= AGAIN_NS:
            slot.triggered = (self.under_way, now_ns)
            final = {"final": True} if self.under_way == self.final else {}
            hold = {"hold": True} if self.holding else {}
            slot.held_epoch = self.under_way if self.holding else slot.held_epoch
            outbox.send(slot.name, "checkpoint", epoch=self.under_way, **final, **hold)

    def want(self, final: bool, outbox: Outbox) -> int:
        """Decide on a savepoint: the next checkpoint that has not begun.  Returns its epoch."""
        if self.final > self.complete:
            return self.final
        epoch = self.complete + 1 + bool(self.under_way)
        if self.wanted < epoch or final:
            outbox.decide("savepoint", epoch=epoch, final=final)
        return epoch

    def deadline_ns(self) -> int | None:
        """When `settle` has something to do by itself."""
        if not self.enabled or self.writing or self.under_way or not self._due_ns:
            return None
        return self._due_ns


def as_files(told: Mapping[str, object]) -> dict[str, Files]:
    """Files per task as the journal and manifests hold them (lists), in their proper type."""
    return {task: tuple((path, size, digest) for path, size, digest in files) for task, files in told.items()}  # type: ignore[attr-defined]
