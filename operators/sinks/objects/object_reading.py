"""The reader of a sink's output in a shared store: objects of rows, followed by the rows still in journals.

Reading blocks no writer and changes nothing. Journals are read before the objects are listed, so rows that are moved in
the meantime appear in both places rather than in neither.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from causal.errors import CorruptData, PipelineError
from causal.storage.object_journal import JournalObjects
from causal.storage.shared import Depot
from operators.sinks.journaled.ledger import Entry, Ledger, covered
from operators.sinks.objects.object_place import journals, known_runs, rows_in, stem_of

LINES_AT_ONCE = 5000
Piece = tuple[Any, Any]
"""Positions, and the rows there; see `operators.outputs.output`."""


class ObjectOutput(ABC):
    """A reader of one sink's place in a shared store; it never reads the same part of a journal twice."""

    def __init__(self, depot: Depot) -> None:
        self.run = ""
        self._depot = depot
        self._journals: dict[str, JournalObjects] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._objects: dict[str, list[tuple[int, int, str]]] = {}

    @property
    def ended(self) -> bool:
        """See `operators.outputs.output.Output.ended`."""
        return bool(self._ledgers) and all(ledger.account.ended for ledger in self._ledgers.values())

    def look(self) -> None:
        """See `operators.outputs.output.Output.look`."""
        runs = known_runs(self._depot)
        if not runs:
            raise PipelineError(f"{self._depot.url} has no rows of a sink; use the URL of a sink whose job has started")
        self.run = runs[-1]
        self._journals = {
            folder: self._journals.get(folder) or JournalObjects(self._depot, folder)
            for folder in journals(self._depot)
        }
        self._ledgers = {}
        for folder, journal in self._journals.items():
            records = journal.read()
            ledger = Ledger.of(records, f"{self._depot.url}: {folder}") if records else None
            if ledger is not None and ledger.account.run == self.run:
                self._ledgers[ledger.account.task] = ledger
        objects = rows_in(self._depot, self.run)
        self._objects = {task: objects.get(stem_of(task), []) for task in self._ledgers}
        for task, ledger in self._ledgers.items():
            ledger.publish(self._end_of_objects(task))

    def ends(self, uncovered: bool) -> dict[str, int]:
        """See `operators.outputs.output.Output.ends`."""
        ends = {}
        for task, ledger in self._ledgers.items():
            end = ledger.account.next if uncovered else covered(ledger.account)
            ends[task] = max(end, self._end_of_objects(task))
        return ends

    def withdrawn(self) -> dict[str, int]:
        """See `operators.outputs.output.Output.withdrawn`."""
        return {task: ledger.account.withdrawn for task, ledger in self._ledgers.items()}

    def hint(self, task: str, position: int) -> Any:
        """Return None: no hint is needed, because objects are named after positions."""
        return None

    def rows(self, task: str, start: int, stop: int, hint: Any = None) -> Iterator[Piece]:
        """See `operators.outputs.output.Output.rows`."""
        for first, next_, name in self._objects.get(task, []):
            if first < stop and start < next_:
                yield from self._of_object(self._depot.read(name), name, first, next_, start, stop)
        for entry in self._ledgers[task].entries if task in self._ledgers else ():
            if entry.first < stop and start < entry.next:
                yield from self._of_bundle(entry, start, stop)

    def _end_of_objects(self, task: str) -> int:
        ranges = self._objects.get(task)
        return ranges[-1][1] if ranges else 0

    @abstractmethod
    def _of_object(self, stored: bytes, name: str, first: int, next_: int, start: int, stop: int) -> Iterator[Piece]:
        """Return the rows of an object from position `start` up to `stop`."""

    @abstractmethod
    def _of_bundle(self, entry: Entry, start: int, stop: int) -> Iterator[Piece]:
        """Return the rows of a bundle from position `start` up to `stop`."""


class ObjectLinesOutput(ObjectOutput):
    """A reader of objects of JSON lines."""

    def _of_object(self, stored: bytes, name: str, first: int, next_: int, start: int, stop: int) -> Iterator[Piece]:
        lines = stored.split(b"\n")
        if len(lines) != next_ - first + 1:
            raise CorruptData(f"{self._depot.url}: {name} has {len(lines) - 1} lines, not {next_ - first}; restore it")
        yield from _within(lines[:-1], first, start, stop)

    def _of_bundle(self, entry: Entry, start: int, stop: int) -> Iterator[Piece]:
        yield from _within(entry.bundle.rows.split(b"\n")[:-1], entry.first, start, stop)


def _within(lines: Sequence[bytes], first: int, start: int, stop: int) -> Iterator[Piece]:
    begin, end = max(start, first), min(stop, first + len(lines))
    for place in range(begin, end, LINES_AT_ONCE):
        texts = [line + b"\n" for line in lines[place - first : min(end, place + LINES_AT_ONCE) - first]]
        yield range(place, place + len(texts)), texts
