"""Tumbling and sliding windows: one pane per key and window, emitted when the watermark reaches the window's end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from operators.graph import Node
from operators.kinds.windows.assigners import Tumbling
from operators.kinds.windows.window_stage import AssignedStage, window_of
from operators.records.ownership import copy_containers
from operators.stage.scope import Scope
from operators.state.due_index import Pair
from operators.state.keyed_tables import KeyedTable
from operators.state.slots import PairTable

UNSEEN = 0
"""The index, in a pane's trigger entry, of the flag that records have arrived since the pane was emitted."""


class PaneStage(AssignedStage):
    """`window(name, Assigner, contents)`; a slot is the start of a window in ns.

    A pane is emitted when the watermark reaches its end. It is kept until the watermark has passed its end by the
    lateness, and each record that arrives in between causes it to be emitted again.

    `<name>:triggers` has an entry for each pane that was emitted by a trigger which has since been removed from the
    pipeline. The entry remains until a record arrives; without a new record, the pane is not emitted again.
    """

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._table = PairTable(f"{node.name}:triggers", node.name, scope.config.key_groups)
        self._entries: dict[Pair, Any] = self._table.values

    def _take(self, rows: Sequence[Any], named: Sequence[Any], times: Sequence[int], out: list[Any]) -> None:
        places: Sequence[int]
        if isinstance(self._assigner, Tumbling):
            starts = self._assigner.starts(times)
            places = range(len(rows))
            pairs = list(zip(named, starts, strict=True))
            earliest = min(starts)
        else:
            panes = self._assigner.panes(times)
            places = [place for place, starts_of in enumerate(panes) for _ in starts_of]
            pairs = [(key, at) for key, starts_of in zip(named, panes, strict=True) for at in starts_of]
            earliest = min([starts_of[0] for starts_of in panes])
        is_late = self.mark_ns is not None and self._assigner.end_ns(earliest) + self._lateness_ns <= self.mark_ns
        if is_late or self._floors.of_group:
            pairs, places = self._open_ones(rows, pairs, places)
        records = rows if len(places) == len(rows) and type(places) is range else [rows[place] for place in places]
        self._absorb(pairs, records, places, out)

    def _open_ones(
        self, rows: Sequence[Any], pairs: Sequence[Pair], places: Sequence[int]
    ) -> tuple[list[Pair], list[int]]:
        """Return the pairs whose windows are not closed, and their places; records without an open window are late."""
        closed, end_ns = self._closed, self._assigner.end_ns
        kept = [
            (pair, place) for pair, place in zip(pairs, places, strict=True) if not closed(pair[0], end_ns(pair[1]))
        ]
        taken = frozenset([place for _, place in kept])
        self._late([row for place, row in enumerate(rows) if place not in taken])
        return [pair for pair, _ in kept], [place for _, place in kept]

    def _absorb(self, pairs: Sequence[Pair], rows: Sequence[Any], places: Sequence[int], out: list[Any]) -> None:
        """Add rows to their panes; emit the changed panes that have already been emitted once more."""
        contents, end_ns, mark_ns = self._contents, self._assigner.end_ns, self.mark_ns
        if contents.shares and not contents.refuses and not isinstance(self._assigner, Tumbling):
            rows = list(map(copy_containers, rows))  # each window may keep and change its rows
        opened: dict[int, list[Pair]] = {}
        for pair in contents.add(pairs, rows, self._failed_in(places, rows), places):
            opened.setdefault(pair[1], []).append(pair)
        if self._entries:
            self._forget(pairs)
        for start_ns, pairs_of in opened.items():
            if self._floors.of_group:
                for pair in pairs_of:
                    self._wakes.set(pair, self._due_ns(pair))
            else:
                self._wakes.add(pairs_of, self._due_ns((None, start_ns)))
        if self._lateness_ns and (mark_ns is not None or self._floors.of_group):
            for pair in dict.fromkeys(pairs):
                if self._ended(pair[0], end_ns(pair[1])) and pair in contents.values:
                    contents.emit(pair, self._window_of(pair), out, keeps=True)

    def _forget(self, pairs: Iterable[Pair]) -> None:
        """Remove the trigger entries of these panes."""
        known = [pair for pair in dict.fromkeys(pairs) if pair in self._entries]
        self._table.touch(known)
        for pair in known:
            del self._entries[pair]

    def _due_ns(self, pair: Pair) -> int:
        """Return the time at which a pane is due: its end or, once it has ended, the end of its lateness."""
        end_ns = self._assigner.end_ns(pair[1])
        return end_ns + self._lateness_ns if self._ended(pair[0], end_ns) else end_ns

    def _window_of(self, pair: Pair) -> Any:
        return window_of(pair[1], self._assigner.end_ns(pair[1]))

    def _close(self, due: Sequence[Pair], before_ns: int | None, mark_ns: int, out: list[Any]) -> None:
        contents, gone = self._contents, list[Pair]()
        if not self._lateness_ns:
            if self._entries:
                said = [pair for pair in due if pair in self._entries]
                due = [pair for pair in due if pair not in self._entries]
                contents.drop(said)
                self._forget(said)
            for start_ns, pairs in groupby(due, key=itemgetter(1)):
                contents.emit_last(list(pairs), self._window_of((None, start_ns)), out)
            return
        for pair in due:
            end_ns = self._assigner.end_ns(pair[1])
            over = end_ns + self._lateness_ns <= mark_ns
            known_ns = self._mark_of(pair[0], before_ns)
            if (known_ns is None or end_ns > known_ns) and pair not in self._entries:
                contents.emit(pair, self._window_of(pair), out, keeps=not over)
            if over:
                gone.append(pair)
            else:
                self._wakes.set(pair, end_ns + self._lateness_ns)
        contents.drop(gone)
        if self._entries:
            self._forget(due)

    # State.

    def tables(self) -> list[KeyedTable]:
        return [*super().tables(), self._table]

    def changed(self, epoch: int) -> None:
        """Drop panes that a shorter lateness has closed, and trigger entries of panes that no trigger has emitted."""
        contents, end_ns = self._contents.values, self._assigner.end_ns
        self._contents.drop([pair for pair in contents if self._closed(pair[0], end_ns(pair[1]))])
        self._table.touch(self._entries)
        self._forget(
            pair
            for pair, entry in list(self._entries.items())
            if pair not in contents or entry[UNSEEN] or self._ended(pair[0], end_ns(pair[1]))
        )
        # Replace the entries of any former trigger.
        self._entries.update({pair: [False, None, 0, 0, {}] for pair in self._entries})

    def _rebuild(self) -> None:
        for pair in self._contents.values:
            self._wakes.set(pair, self._due_ns(pair))
