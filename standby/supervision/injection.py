"""Requested failures: kills from `--kill TASK@SECONDS`, and deaths that do not count as failures of their task.

The seconds are counted from the first record that entered after the job was started or resumed.  If the task has no
process when a kill is due, the kill waits until the task has one.
"""

from __future__ import annotations

from standby.supervision.effects import Record
from standby.supervision.reconciler import ROLLBACK


class Injection:
    """The kills that remain, and the slots whose death was requested."""

    def __init__(self, kills: tuple[tuple[str, float], ...]) -> None:
        self._kills = kills
        self._done: set[int] = set()
        self._requested: set[str] = set()

    def apply(self, record: Record) -> None:
        """Apply one decision; a decision that does not concern kills has no effect."""
        if record["kind"] == "injected":
            self._done.add(record["index"])
        elif record["kind"] == "killing" and record["why"] in ("on request", ROLLBACK):
            self._requested.add(record["slot"])
        elif record["kind"] == "gone":
            self._requested.discard(record["slot"])
        elif record["kind"] == "resumed":
            self._done.clear()
            self._requested.clear()

    def requested(self, slot: str) -> bool:
        """Return whether the death of this slot was requested."""
        return slot in self._requested

    def due(self, first_record_ns: int | None, now_ns: int) -> list[tuple[int, str]]:
        """Return the (index, task) of each kill that is due; at most one per task."""
        if first_record_ns is None:
            return []
        ripe: dict[str, int] = {}
        for index, (task, seconds) in enumerate(self._kills):
            if index not in self._done and now_ns >= first_record_ns + int(seconds * 1e9):
                ripe.setdefault(task, index)
        return [(index, task) for task, index in ripe.items()]

    def left(self) -> list[str]:
        """Return the kills that remain, written as they were requested."""
        return [f"{task}@{at:g}" for index, (task, at) in enumerate(self._kills) if index not in self._done]

    def deadline_ns(self, first_record_ns: int | None) -> int | None:
        """Return when the next kill is due; None if no kill remains or no record has entered yet."""
        left = [seconds for index, (_, seconds) in enumerate(self._kills) if index not in self._done]
        if first_record_ns is None or not left:
            return None
        return first_record_ns + int(min(left) * 1e9)
