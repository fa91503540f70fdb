"""A comparison of the rows of two performances: sink by sink, as multisets, while the rows arrive (0042).

Rows that both performances have are counted and forgotten, so only differing rows need memory. Differing rows can be
paired by key (0056), which frees their memory as well; a row that is paired is no longer compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from operators.replay.pairing import Pairs, RowKey, Side, paired
from operators.replay.performance import Rows, Step

DIFFERING_BYTES_MAX = 64 << 20
"""The size of the differing rows that are kept; they may still turn out to be the same rows at another time."""
ENTRY_BYTES = 300
"""The approximate memory of a differing row in addition to its content."""
_NEVER = 1 << 62
SHOWN_MAX = 5
SHOWN_CHARACTERS_MAX = 300


@dataclass(slots=True)
class Difference:
    """A row that one of the performances has more often than the other.

    Attributes:
        surplus: how much more often the later performance has it; below 0 if the earlier one has it more often.
        task: the subtask that would write the row.
        step: the step that first caused it.
        number: the number of that step.
    """

    surplus: int
    task: str
    step: Step
    row: str
    number: int = 0

    def shown(self) -> str:
        """Return the row, its subtask and the input that caused it as one line."""
        step = self.step
        where = f"{self.task}, {step.source}[{step.partition}] {step.start:,}–{max(step.start, step.stop - 1):,}"
        row = self.row if len(self.row) <= SHOWN_CHARACTERS_MAX else f"{self.row[:SHOWN_CHARACTERS_MAX]}…"
        return f"{'+' if self.surplus > 0 else '-'} {row}  ({where})"


@dataclass(slots=True)
class SinkComparison:
    """The comparison of the rows of one sink.

    Attributes:
        rows: the number of rows of the earlier and of the later performance.
        differing: the differing rows that are not paired.
        pairs: the differing rows that are.
        key: how the key of a row is found; None before rows are paired.
    """

    rows: list[int] = field(default_factory=lambda: [0, 0])
    differing: dict[bytes, Difference] = field(default_factory=dict)
    pairs: Pairs = field(default_factory=Pairs)
    key: RowKey | None = None

    @property
    def differs(self) -> bool:
        """Whether the performances have different rows."""
        return bool(self.differing or self.pairs.examples)

    @property
    def only_before(self) -> int:
        """The number of rows that only the earlier performance has, without changed rows."""
        return self.pairs.only_before + sum(-each.surplus for each in self.differing.values() if each.surplus < 0)

    @property
    def only_after(self) -> int:
        """The number of rows that only the later performance has, without changed rows."""
        return self.pairs.only_after + sum(each.surplus for each in self.differing.values() if each.surplus > 0)

    @property
    def same(self) -> int:
        """The number of rows that both performances have."""
        return self.rows[0] - self.only_before - self.pairs.changed

    def first(self) -> Iterator[Difference]:
        """Return the first differing rows of each performance."""
        for sign in (-1, 1):
            yield from islice((each for each in self.differing.values() if each.surplus * sign > 0), SHOWN_MAX)


class Comparison:
    """A comparison of two performances of the same steps.

    Args:
        key_of: returns how the key of a sink's rows is found, from the sink and one row; None if nothing is paired.

    Attributes:
        sinks: the comparison of each sink, by operator.
        first: the number of the first step with a differing row among those that are paired.
        paired_early: whether rows were paired before all rows had been compared, because they needed too much memory.
    """

    def __init__(self, key_of: Callable[[str, Any], RowKey] | None = None) -> None:
        self.sinks: dict[str, SinkComparison] = {}
        self.first = _NEVER
        self.paired_early = False
        self._key_of = key_of
        self._bytes = 0

    @property
    def differs(self) -> bool:
        """Whether the performances have different rows."""
        return any(sink.differs for sink in self.sinks.values())

    @property
    def rows(self) -> int:
        """The number of rows of both performances."""
        return sum(sum(sink.rows) for sink in self.sinks.values())

    @property
    def full(self) -> bool:
        """Whether so many rows differ that the comparison must end."""
        return self._bytes >= DIFFERING_BYTES_MAX

    def count(self, task: str, before: int, after: int) -> None:
        """Count the rows of a subtask in both performances."""
        sink = self.sinks.setdefault(task.rpartition("/")[0], SinkComparison())
        sink.rows[0] += before
        sink.rows[1] += after

    def add(self, step: Step, before: Rows, after: Rows, number: int = 0) -> None:
        """Add the rows that a step has caused in the earlier and in the later performance.

        Args:
            number: the number of the step.
        """
        for task in (*before, *(task for task in after if task not in before)):
            self.count(task, len(before.get(task, ())), len(after.get(task, ())))
        if before == after:
            return
        self._compare(step, before, -1, number)
        self._compare(step, after, 1, number)
        if self._key_of is not None and self.full:
            self.paired_early = True
            self._pair(DIFFERING_BYTES_MAX // 2)

    def finish(self) -> None:
        """Pair all differing rows, after the last step."""
        self._pair(0)

    def _compare(self, step: Step, rows: Rows, surplus: int, number: int) -> None:
        for task, own in rows.items():
            differing = self.sinks[task.rpartition("/")[0]].differing
            for row in own:
                known = differing.get(row)
                if known is None:
                    differing[row] = Difference(surplus, task, step, row.decode("utf-8", "replace"), number)
                    self._bytes += 2 * len(row) + ENTRY_BYTES
                    continue
                known.surplus += surplus
                if not known.surplus:
                    del differing[row]
                    self._bytes -= 2 * len(row) + ENTRY_BYTES

    def _pair(self, bytes_left: int) -> None:
        """Pair the oldest differing rows of each sink, until the others need at most as much memory."""
        while self._bytes > bytes_left:
            for name, sink in self.sinks.items():
                taken = list(islice(sink.differing.items(), -(-len(sink.differing) // (2 if bytes_left else 1))))
                if not taken:
                    continue
                self.first = min(self.first, *(each.number for _, each in taken))
                if sink.key is None and self._key_of is not None:
                    sink.key = self._key_of(name, _content(taken[0][1].row))
                for pair in paired(_sides(taken, -1), _sides(taken, 1), sink.key or RowKey()):
                    sink.pairs.add(pair)
                for row, _ in taken:
                    del sink.differing[row]
                    self._bytes -= 2 * len(row) + ENTRY_BYTES


def _sides(differing: Sequence[tuple[bytes, Difference]], sign: int) -> list[Side]:
    return [Side(each.row, each.task, each.step) for _, each in differing for _ in range(each.surplus * sign)]


def _content(row: str) -> Any:
    try:
        return json.loads(row)
    except ValueError:
        return row
