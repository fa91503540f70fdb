"""Rules of stable determinants (design 0012), broken one at a time; see `sabotage.py`."""

from __future__ import annotations

from typing import Any

from causal.effects import AppendStable, BeginStable
from causal.logs.dissemination import Holdings
from causal.logs.log import DeterminantLog
from causal.task.flushing import Flushing
from operators.testing.stable_files import StableFiles
from tests.simulation.breaking import Patches, found_by


@found_by(9)
def _stable_before_it_is_written() -> Patches:
    """A write counts as done once the disk has been asked for it."""
    due = Flushing.due

    def hasty(self: Flushing, now_ns: int) -> Any:
        effects = due(self, now_ns)
        for effect in effects:
            if isinstance(effect, AppendStable):
                for delta in effect.logs:
                    self._holdings.own.written(delta.epoch, delta.offset + len(delta.bytes))
        return effects

    return {(Flushing, "due"): hasty}


@found_by(48)
def _the_prefix_is_not_read() -> Patches:
    """A task that collects takes what holders have let go of for what never was."""

    def nothing(self: Flushing) -> Any:
        for epoch in list(self._holdings.own.begins):
            self._holdings.own.fill(epoch, b"", 0)
        return []

    return {(Flushing, "request_read"): nothing}


@found_by(39)
def _files_of_the_dead_count() -> Patches:
    """A task that begins leaves older files where they are, and the oldest is read."""
    begin = StableFiles.begin

    def keeping(self: StableFiles, task: int, incarnation: int, logs: Any) -> None:
        older = {key: dict(files) for key, files in self.begun.items() if key[0] == task}
        begin(self, task, incarnation, logs)
        self.begun.update(older)

    def oldest(self: StableFiles, task: int, up_to: int) -> Any:
        incarnations = [incarnation for owner, incarnation in self.begun if owner == task]
        return self.begun[task, min(incarnations)] if incarnations else {}

    return {(StableFiles, "begin"): keeping, (StableFiles, "youngest"): oldest}


@found_by(48)
def _performed_before_it_is_begun() -> Patches:
    """The task does not wait for its own file: what an older one says may be read although it happened otherwise."""
    init = Flushing.__init__

    def eager(self: Flushing, name: str, holdings: Holdings) -> None:
        init(self, name, holdings)
        self.begun = True

    def begin_later(self: Flushing, now_ns: int) -> Any:
        if self._asked or self.__dict__.get("late"):
            return due(self, now_ns)
        self.__dict__["late"] = True
        self._asked = True
        return [BeginStable(self._holdings.own.whole())]

    due = Flushing.due
    return {(Flushing, "__init__"): eager, (Flushing, "due"): begin_later}


@found_by(9)
def _released_but_not_said() -> Patches:
    """A neighbour learns that bytes are stable, and not how far the log has come."""
    deltas = DeterminantLog.deltas

    def silent(self: DeterminantLog, beyond: Any, limits: Any = None) -> Any:
        all_deltas = deltas(self, beyond, limits)
        marks = {delta.epoch for delta in all_deltas if not delta.bytes}
        return [delta for delta in all_deltas if delta.epoch not in marks]

    return {(DeterminantLog, "deltas"): silent}
