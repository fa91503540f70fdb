"""The agenda of one event: what is due by the wall clock in all stages of a task, the earliest first."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from operators.stage.stages import Due, Stage


class Agenda:
    """All that is due in one event, in order; true while it is not empty."""

    def __init__(self, stages: Sequence[Stage], due_ns: int) -> None:
        self._stages = stages
        self._due_ns = due_ns
        self._heap: list[tuple[int, int, int, int, int, Due]] = []
        self._number = 0
        for place in range(len(stages)):
            self.look(place)

    def look(self, place: int) -> None:
        """Adds what is due now in a stage."""
        for entry in self._stages[place].due(self._due_ns):
            # Numbered, so that the last item of an entry is never compared.
            heappush(self._heap, (*entry[:3], self._number, place, entry))
            self._number += 1

    def __bool__(self) -> bool:
        return bool(self._heap)

    def taken(self) -> tuple[int, list[Due]]:
        """Removes and returns (place of a stage, its entries that come before those of any other stage)."""
        place, entries = self._heap[0][4], list[Due]()
        while self._heap and self._heap[0][4] == place:
            entries.append(heappop(self._heap)[5])
        return place, entries
