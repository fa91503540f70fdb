"""The outside world of a transcript: a source's partition and a sink's store.  They outlive every task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from causal.channels.sink_channel import depended, truncated
from causal.effects import ReadSource
from causal.errors import Fenced, invariant
from causal.events import SourceRead
from causal.logs.log import DeterminantLog
from causal.ports import Bundle, StoreState, WithdrawPoint


def label(record: Any) -> str:
    """A record in a word: its label, and its size if it carries padding."""
    if isinstance(record, tuple):
        return f"{record[0]}({len(record[1]) // 1000}kB)"
    return str(record)


class Partition:
    """The input of a source: it grows by command, and can be read again from any position."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.ended = False

    def answer(self, effect: ReadSource) -> SourceRead | None:
        """The records from there on; None while there are none."""
        records = self.records[effect.position : effect.position + effect.count_max]
        ended = self.ended and effect.position + len(records) == len(self.records)
        if not records and not ended:
            return None
        return SourceRead(effect.channel, effect.position, records, 0, ended)


class Store:
    """A sink's store, in memory, that checks what it is given and forgets nothing by itself."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.withdrawn = 0
        self._digest = 0
        self._incarnation = 0
        self._logs: dict[int, DeterminantLog] = {}
        self._marks: list[WithdrawPoint] = []

    def open(self, incarnation: int) -> StoreState:
        """Fences lower incarnations and returns what is held."""
        self._refuse(incarnation)
        self._incarnation = incarnation
        return self.state()

    def _refuse(self, incarnation: int) -> None:
        if incarnation < self._incarnation:
            raise Fenced(f"the store belongs to incarnation {self._incarnation}; this is incarnation {incarnation}")

    def state(self) -> StoreState:
        logs = tuple(delta for _, log in sorted(self._logs.items()) for delta in log.deltas({}))
        return StoreState(len(self.rows), self._digest, logs, tuple(self._marks))

    def write(self, bundle: Bundle) -> None:
        """All of it or nothing."""
        self._refuse(bundle.incarnation)
        invariant(bundle.first == len(self.rows), "rows are written once, in order", first=bundle.first)
        if bundle.depends is not None:
            if not self._marks:
                self._marks.append(WithdrawPoint(bundle.first, self._digest, bundle.epoch, bundle.rollback, ()))
            end = bundle.first + bundle.count
            self._marks.append(WithdrawPoint(end, bundle.digest, bundle.epoch, bundle.rollback, bundle.depends))
        self.rows += rows_of(bundle)
        self._digest = bundle.digest
        for delta in bundle.logs:
            self._logs.setdefault(delta.task, DeterminantLog(delta.task)).merge(delta)

    def truncate(self, epoch: int) -> None:
        """A complete checkpoint covers what came before."""
        for log in self._logs.values():
            log.truncate(epoch)
        self._marks = truncated(self._marks, epoch)

    def withdraw(self, mark: WithdrawPoint) -> StoreState:
        """Withdraws the rows behind a mark, in one step."""
        place = self._marks.index(mark)
        del self._marks[place + 1 :]
        if not place:
            self._marks = [replace(mark, depends=())]
        self.withdrawn += len(self.rows) - mark.next
        del self.rows[mark.next :]
        self._digest = mark.digest
        stands = depended(self._marks)
        for log in self._logs.values():
            log.cut({epoch: extent for (task, epoch), extent in stands.items() if task == log.task})
        return self.state()


def rows_of(bundle: Bundle) -> list[str]:
    """The rows of a bundle as words."""
    return bundle.rows.decode().splitlines()
