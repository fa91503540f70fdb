"""Records by key in the order of event time; the oldest are dropped together when event time has passed them.

Each key has one list of entries, so a batch looks up each key once. An entry is *over* when event time has passed it
far enough. No data is kept per entry to detect this: an index contains the keys of each *span* of time, and a span is
dropped as a whole once all of its entries are over. Entries are never changed, only replaced, so a snapshot does not
have to copy them before a change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import chain
from operator import itemgetter
from typing import Any

from operators.state.due_index import DueIndex, Pair
from operators.state.fragments import unpacked
from operators.state.keyed_tables import KeyedTable, TableJob
from operators.state.pending_keys import ListedKeys

Entry = tuple[int, int, Any, bool]
"""(time in ns, number, record, whether it has been matched); the pair of time and number is unique per key."""
STEP_NS = 1000
"""The granularity of times, which are whole microseconds."""
_SPANS = 16
"""The number of spans into which the lifetime of an entry is divided; an entry is kept at most one span too long."""
_LEAST_NS = 1_000_000
_SLACK = 1024


class Timelines(KeyedTable):
    """The entries of all keys; snapshots contain them as (record, matched) by (key, (time, number)).

    Attributes:
        values: key -> its entries in ascending order; the owner changes them only through methods.
    """

    __slots__ = (
        "_after_ns", "_waiting", "_span_ns", "_keys_in", "_spans", "_floor_ns", "_count", "_fresh_keys", "_fresh",
    )  # fmt: skip

    merges = ""  # a snapshot does not list the entries that are over

    def __init__(self, name: str, operator: str, key_groups: int, after_ns: int, kept_ns: int, unmatched: bool) -> None:
        """
        Args:
            after_ns: an entry is over when the watermark has passed the entry's time by this duration.
            kept_ns: the approximate event-time duration for which an entry is kept.
            unmatched: whether `take_unmatched` will be called.
        """
        super().__init__(name, operator, key_groups, group_of=itemgetter(0))
        self._after_ns = after_ns
        self._span_ns = max(kept_ns // _SPANS, _LEAST_NS) // STEP_NS * STEP_NS
        self._waiting = DueIndex() if unmatched else None
        """The entries that were unmatched when they were added and are not over."""
        self._keys_in: dict[int, list[Any]] = {}
        """Span number -> the keys of the entries in that span."""
        self._spans: list[int] = []
        """A heap of span numbers."""
        self._floor_ns: int | None = None
        """The time below which all entries have been dropped."""
        self._count = 0
        self._fresh_keys: list[Any] = []
        self._fresh: list[Entry] = []
        """The entries that no snapshot contains yet; some of them may have been dropped."""

    # Records.

    def extend(self, keys: Sequence[Any], entries: Sequence[Entry]) -> None:
        """Add entries that are not over; their numbers must exceed those of all existing entries with the same time."""
        self._fresh_keys += keys
        self._fresh += entries
        self._insert(keys, entries)

    def _insert(self, keys: Sequence[Any], entries: Sequence[Entry]) -> None:
        values, span_ns, waiting = self.values, self._span_ns, self._waiting
        get = values.get
        span, append = None, list[Any]().append
        for key, entry in zip(keys, entries, strict=True):
            time_ns = entry[0]
            known = get(key)
            if known is None:
                values[key] = [entry]
            elif known[-1][0] < time_ns:
                known.append(entry)
            else:
                known.insert(bisect_left(known, entry[:2]), entry)
            if time_ns // span_ns != span:
                span = time_ns // span_ns
                append = self._keys_of(span).append
            append(key)
            if waiting is not None and not entry[3]:
                waiting.add((key, entry[:2]), time_ns + self._after_ns)
        self._count += len(entries)

    def _keys_of(self, span: int) -> list[Any]:
        keys = self._keys_in.get(span)
        if keys is None:
            keys = self._keys_in[span] = []
            heappush(self._spans, span)
        return keys

    def match(self, key: Any, entry: Entry) -> None:
        """Record that an entry has been matched."""
        entries = self.values[key]
        entries[bisect_left(entries, entry[:2])] = matched = (*entry[:3], True)
        self._fresh_keys.append(key)
        self._fresh.append(matched)

    # Event time.

    def take_unmatched(self, mark_ns: int) -> list[tuple[Any, Any]]:
        """Return (key, record) of each unmatched entry that has become over since the last call.

        They are sorted by the time at which they are over, then by key order, time and number.
        """
        taken: list[tuple[Any, Any]] = []
        for key, slot in self._waiting.pop(mark_ns) if self._waiting is not None else ():
            entries = self.values[key]
            entry = entries[bisect_left(entries, slot)]
            if not entry[3]:
                taken.append((key, entry[2]))
        return taken

    def drop(self, mark_ns: int) -> None:
        """Drop the spans in which all entries are over at the watermark."""
        first = (mark_ns - self._after_ns + STEP_NS) // self._span_ns
        if not self._spans or self._spans[0] >= first:
            return
        over: list[list[Any]] = []
        while self._spans and self._spans[0] < first:
            over.append(self._keys_in.pop(heappop(self._spans)))
        self._floor_ns = first * self._span_ns
        values, floor = self.values, (self._floor_ns,)
        for key in dict.fromkeys(chain.from_iterable(over)):
            entries = values.get(key, ())
            place = bisect_left(entries, floor)
            self._count -= place
            if place < len(entries):
                del values[key][:place]
            elif entries:
                del values[key]
        if len(self._fresh) > 2 * self._count + _SLACK:
            kept = [place for place, entry in enumerate(self._fresh) if entry[0] >= self._floor_ns]
            self._fresh_keys = [self._fresh_keys[place] for place in kept]
            self._fresh = [self._fresh[place] for place in kept]

    # Snapshots.

    def snapshot(self, full: bool) -> TableJob:
        """Freeze all entries, or those that were added or matched since the last snapshot.

        Dropped entries are not listed, because they are over at the watermark that the same snapshot contains.
        """
        keys, entries = self._fresh_keys, self._fresh
        self._fresh_keys, self._fresh = [], []
        if full:
            keys = [key for key, known in self.values.items() for _ in known]
            entries = list(chain.from_iterable(self.values.values()))
        return _EntriesJob(self, keys, entries, self._floor_ns, full)

    def load(self, fragment: bytes) -> None:
        """Load a fragment that a job encoded, or one of an older version, which also listed dropped entries."""
        pairs, values, gone = unpacked(fragment)
        for key, slot in gone:
            self._remove(key, slot)
        for (key, slot), (record, matched) in zip(pairs, values, strict=True):
            entry = (*slot, record, matched)
            known = self.values.get(key, [])
            place = bisect_left(known, slot)
            if place < len(known) and known[place][:2] == slot:
                known[place] = entry
            else:
                self._insert((key,), (entry,))

    def _remove(self, key: Any, slot: tuple[int, int]) -> None:
        entries = self.values.get(key, [])
        place = bisect_left(entries, slot)
        if place < len(entries) and entries[place][:2] == slot:
            if self._waiting is not None and not entries[place][3]:
                self._waiting.remove((key, slot), slot[0] + self._after_ns)
            del entries[place]
            self._count -= 1
            if not entries:
                del self.values[key]

    def settle(self, mark_ns: int) -> None:
        """Mark loaded entries that are over at the snapshot's watermark as matched, and drop their spans.

        Marking these entries prevents a task whose event time is less advanced from emitting them a second time.
        """
        for key, slot in self._waiting.pop(mark_ns) if self._waiting is not None else ():
            entries = self.values[key]
            place = bisect_left(entries, slot)
            entries[place] = (*entries[place][:3], True)
        self.drop(mark_ns)

    def clear(self) -> None:
        super().clear()
        self._keys_in, self._spans, self._floor_ns, self._count = {}, [], None, 0
        self._fresh_keys, self._fresh = [], []
        if self._waiting is not None:
            self._waiting = DueIndex()

    def inspect(self, key: Any) -> Any:
        """Return [[time, number], [record, matched]] of each entry of the key, in ascending order."""
        return [[entry[:2], [*entry[2:]]] for entry in self.values.get(key, ())] or None

    def kept_keys(self) -> Iterable[Any]:
        """Return the keys that have entries."""
        return (key for key, entries in self.values.items() if entries)


class _EntriesJob(TableJob):
    """A job that encodes entries in order; if two have the same time and number, only the later one counts."""

    __slots__ = ("_keys", "_entries", "_floor_ns", "_place")

    def __init__(
        self, table: Timelines, keys: list[Any], entries: list[Entry], floor_ns: int | None, full: bool
    ) -> None:
        super().__init__(table, ListedKeys(set()), {}, full)
        self._keys = keys
        self._entries = entries
        self._floor_ns = floor_ns
        self._place = 0

    def step(self, keys_max: int) -> int:
        place, self._place = self._place, min(self._place + keys_max, len(self._entries))
        pairs: dict[Pair, tuple[Any, bool]] = {}
        floor_ns = self._floor_ns
        for key, entry in zip(self._keys[place : self._place], self._entries[place : self._place], strict=True):
            if floor_ns is None or entry[0] >= floor_ns:
                pairs[key, entry[:2]] = entry[2:]
        self._encode(list(pairs), list(pairs.values()))
        return self._place - place
