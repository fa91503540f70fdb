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

TOOK_KEPT = 1000
"""Durations kept for the report."""


class Coordinator:
    """One job's checkpoints."""

    def __init__(self, roster: Roster, interval_ns: int, enabled: bool) -> None:
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
        self.writing = False
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
            if self.final <= self.complete:
                self.final = 0  # it ended there; what goes on from it is not meant to end

    def acknowledged(self, task: str, epoch: int, files: Files, now_ns: int, outbox: Outbox) -> None:
        """The present incarnation of `task` has its state at barrier `epoch` on disk."""
        if not self.enabled or self.writing or epoch != self.complete + 1:
            return
        if not self.under_way:  # triggered by the supervisor before this one
            self.under_way, self._began_ns = epoch, now_ns
        self._acks[task] = files
        if len(self._acks) == len(self._roster.seats):
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

    def not_written(self, epoch: int) -> None:
        """The manifest failed: forget the acknowledgements, which the beats repeat, and so try again."""
        if self.writing and epoch == self.under_way:
            self.writing, self._acks = False, {}

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
        due = hurries or now_ns >= self._due_ns or self.wanted > self.complete
        if due and not self.under_way and not self.ends:
            self.under_way, self._began_ns, everybody = self.complete + 1, now_ns, True
        if self.under_way and everybody:
            for seat in self._roster.sources:
                slot = self._roster.holder(seat)
                if seat.state is SeatState.SERVED and slot is not None:
                    self.trigger(slot, now_ns, outbox)

    def trigger(self, slot: Slot, now_ns: int, outbox: Outbox) -> None:
        """Tell one source of the checkpoint under way, unless it has it or was told a moment ago."""
        epoch, told_ns = slot.triggered
        if slot.state is not SlotState.SERVING or slot.epoch >= self.under_way or slot.task in self._acks:
            return
        if epoch != self.under_way or now_ns - told_ns >= AGAIN_NS:
            slot.triggered = (self.under_way, now_ns)
            final = {"final": True} if self.under_way == self.final else {}
            outbox.send(slot.name, "checkpoint", epoch=self.under_way, **final)

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
