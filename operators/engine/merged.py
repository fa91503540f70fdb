"""The merge of consecutive snapshots of one task, which performs one subtask or, as a cell, several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from causal.errors import CorruptData
from operators.engine.cell_chain import subtasks_of_cell
from operators.state.merging import merged_parts, part_count
from operators.state.snapshot_parts import cell_part


class MergedParts(Iterable[bytes]):
    """The parts of a merged snapshot, each of which is made when it is reached; they can be iterated once.

    The first part, the cut, is that of the newest snapshot.
    """

    def __init__(
        self,
        sources: Sequence[Iterable[bytes]],
        rules: Mapping[str, Mapping[str, str]],
        key_groups: int,
        complete: bool,
    ) -> None:
        """
        Args:
            sources: the parts of each snapshot, oldest first.
            rules: subtask -> table -> how its values are merged; the subtask is "" unless the task is a cell.
            complete: whether the oldest snapshot is complete.
        """
        self._sources = sources
        self._rules = rules
        self._key_groups = key_groups
        self._complete = complete
        self._counts = {subtask: part_count(tables, key_groups) for subtask, tables in rules.items()}
        self._cell = "" not in rules

    def __len__(self) -> int:
        return 1 + self._cell + sum(self._counts.values())

    def __iter__(self) -> Iterator[bytes]:
        """Yield the parts.

        Raises:
            CorruptData: a snapshot cannot be read, or does not fit the others.
        """
        sources = list(map(iter, self._sources))
        cuts = [next(source, b"") for source in sources]
        yield cuts[-1]
        if not self._cell:
            yield from merged_parts(sources, self._rules[""], self._key_groups, self._complete)
            return
        cells = [subtasks_of_cell(source) for source in sources]
        if any([name for name, _, _ in cell] != list(self._rules) for cell in cells):
            raise CorruptData("the snapshots of a cell contain other subtasks than the cell")
        yield cell_part({"subtasks": [[name, self._counts[name], list(then)] for name, _, then in cells[-1]]})
        for place, tables in enumerate(self._rules.values()):
            own = [islice(source, cell[place][1]) for source, cell in zip(sources, cells, strict=True)]
            yield from merged_parts(own, tables, self._key_groups, self._complete)
