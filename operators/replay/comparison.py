"""A comparison of the rows of two performances: sink by sink, as multisets, while the rows arrive (0042).

Rows that both performances have are counted and forgotten, so only differing rows need memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from operators.replay.performance import Rows, Step

DIFFERING_BYTES_MAX = 64 << 20
"""The size of the differing rows that are kept; they may still turn out to be the same rows at another time."""
ENTRY_BYTES = 300
"""The approximate memory of a differing row in addition to its content."""
SHOWN_MAX = 5
SHOWN_CHARACTERS_MAX = 300


@dataclass(slots=True)
class Difference:
    """A row that one of the performances has more often than the other.

    Attributes:
        surplus: how much more often the later performance has it; below 0 if the earlier one has it more often.
        task: the subtask that would write the row.
        step: the step that first caused it.
    """

    surplus: int
    task: str
    step: Step
    row: str

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
    """

    rows: list[int] = field(default_factory=lambda: [0, 0])
    differing: dict[bytes, Difference] = field(default_factory=dict)

    @property
    def only_before(self) -> int:
        """The number of rows that only the earlier performance has."""
        return sum(-each.surplus for each in self.differing.values() if each.surplus < 0)

    @property
    def only_after(self) -> int:
        """The number of rows that only the later performance has."""
        return sum(each.surplus for each in self.differing.values() if each.surplus > 0)

    @property
    def same(self) -> int:
        """The number of rows that both performances have."""
        return self.rows[0] - self.only_before

    def first(self) -> Iterator[Difference]:
        """Return the first differing rows of each performance."""
        for sign in (-1, 1):
            yield from islice((each for each in self.differing.values() if each.surplus * sign > 0), SHOWN_MAX)


class Comparison:
    """A comparison of two performances of the same steps.

    Attributes:
        sinks: the comparison of each sink, by operator.
    """

    def __init__(self) -> None:
        self.sinks: dict[str, SinkComparison] = {}
        self._bytes = 0

    @property
    def differs(self) -> bool:
        """Whether the performances have different rows."""
        return any(sink.differing for sink in self.sinks.values())

    @property
    def rows(self) -> int:
        """The number of rows of both performances."""
        return sum(sum(sink.rows) for sink in self.sinks.values())

    @property
    def full(self) -> bool:
        """Whether so many rows differ that the comparison must end."""
        return self._bytes >= DIFFERING_BYTES_MAX

    def add(self, step: Step, before: Rows, after: Rows) -> None:
        """Add the rows that a step has caused in the earlier and in the later performance."""
        for place, rows in enumerate((before, after)):
            for task, own in rows.items():
                sink = self.sinks.setdefault(task.rpartition("/")[0], SinkComparison())
                sink.rows[place] += len(own)
        if before != after:
            self._compare(step, before, -1)
            self._compare(step, after, 1)

    def _compare(self, step: Step, rows: Rows, surplus: int) -> None:
        for task, own in rows.items():
            differing = self.sinks[task.rpartition("/")[0]].differing
            for row in own:
                known = differing.get(row)
                if known is None:
                    differing[row] = Difference(surplus, task, step, row.decode("utf-8", "replace"))
                    self._bytes += 2 * len(row) + ENTRY_BYTES
                    continue
                known.surplus += surplus
                if not known.surplus:
                    del differing[row]
                    self._bytes -= 2 * len(row) + ENTRY_BYTES
