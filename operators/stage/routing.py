"""Routing of each output record to a task: by key group, in turn, or to the only task.

A route collects the output of an event. The route is drained at the end of the event, when the records for each output
channel are encoded together. A keyed route costs one dict lookup and one append per record.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from operator import call
from typing import Any, Protocol

from causal.errors import OperatorFailed
from causal.records.rows import Counted, joined, listed
from causal.records.values import NotCarried
from operators.records.item_keys import item_of, keys_in
from operators.records.keys import Unroutable, canonical_keys, key_group, task_of_group
from operators.stage.failures import NO_KEY
from operators.stage.stages import apply, last_index, without

KEYS_CACHED_MAX = 1 << 17
"""The maximum number of keys whose targets a route caches; when it is reached, the whole cache is cleared."""

Failed = Callable[[int, Any, Exception], None]
"""A function of (index, key or NO_KEY, exception) that writes a dead letter or raises an error to stop the job."""

Buckets = list[tuple[int, Any]]
"""Pairs (ordinal of an output channel, nonempty batch for that channel)."""


class Route(Protocol):
    """A route for the output of one operator along one pipeline edge."""

    target: str

    def add(self, records: Any, failed: Failed) -> None:
        """Assign records to output channels."""
        ...

    def drain(self) -> Buckets:
        """Remove and return the records that were added since the last call."""
        ...


def together(pieces: Sequence[Any], target: str) -> Any:
    """Return the records that one event sends to one channel, as one batch."""
    try:
        return joined(pieces)
    except NotCarried as problem:
        raise OperatorFailed(f"the rows for {target!r} cannot form one batch: {problem}") from None


class DirectRoute:
    """A route that sends all records to one channel."""

    def __init__(self, target: str, ordinal: int) -> None:
        self.target = target
        self._ordinal = ordinal
        self._batches: list[Any] = []

    def add(self, records: Any, failed: Failed) -> None:
        self._batches.append(records)

    def drain(self) -> Buckets:
        batches, self._batches = self._batches, []
        return [(self._ordinal, together(batches, self.target))] if batches else []


class BroadcastRoute(DirectRoute):
    """A route that sends all records to every channel."""

    def __init__(self, target: str, ordinals: Sequence[int]) -> None:
        super().__init__(target, ordinals[0])
        self._ordinals = ordinals

    def drain(self) -> Buckets:
        return [(ordinal, records) for _, records in super().drain() for ordinal in self._ordinals]


class TurnRoute:
    """A route that sends each record to the next channel in turn.

    Attributes:
        turn: the index of the next channel, which is part of the task's snapshot.
    """

    def __init__(self, target: str, ordinals: Sequence[int]) -> None:
        self.target = target
        self.turn = 0
        self._ordinals = ordinals
        self._buckets: list[list[Any]] = [[] for _ in ordinals]

    def add(self, records: Any, failed: Failed) -> None:
        count, records = len(self._ordinals), listed(records)
        for index, bucket in enumerate(self._buckets):
            bucket += records[(index - self.turn) % count :: count]
        self.turn = (self.turn + len(records)) % count

    def drain(self) -> Buckets:
        buckets, self._buckets = self._buckets, [[] for _ in self._ordinals]
        return [(ordinal, bucket) for ordinal, bucket in zip(self._ordinals, buckets, strict=True) if bucket]


class _Appends(dict[Any, Callable[[Any], None]]):
    """A cache that maps a key to the `append` method of the bucket for the task that owns the key."""

    __slots__ = ("_key_groups", "_per_task")

    def __init__(self, buckets: Sequence[list[Any]], key_groups: int) -> None:
        super().__init__()
        # Each method is bound only once per bucket, because one bound method per key would overflow the processor's
        # cache.
        self._per_task = [bucket.append for bucket in buckets]
        self._key_groups = key_groups

    def __missing__(self, key: Any) -> Callable[[Any], None]:
        if len(self) >= KEYS_CACHED_MAX:
            self.clear()
        task = task_of_group(key_group(key, self._key_groups), len(self._per_task), self._key_groups)
        append = self[key] = self._per_task[task]
        return append


class KeyedRoute:
    """A route that sends each record to the task that owns its key."""

    def __init__(self, target: str, ordinals: Sequence[int], key_of: Callable[[Any], Any], key_groups: int) -> None:
        self.target = target
        self._ordinals = ordinals
        self._key_of = key_of
        self._item = item_of(key_of)
        self._buckets: list[list[Any]] = [[] for _ in ordinals]
        self._appends = _Appends(self._buckets, key_groups)

    def add(self, records: Any, failed: Failed) -> None:
        self._sort(listed(records), keys_in(records, self._item), failed)

    def _sort(self, records: list[Any], keys: list[Any] | Exception, failed: Failed) -> None:
        lost: list[int] = []
        if isinstance(keys, Exception):  # call the function, so that it raises for each record without a key
            keys, lost = apply(self._key_of, records, lambda index, problem: failed(index, NO_KEY, problem))
        places: Sequence[int] = range(len(records))
        if lost:
            places = without(places, lost)
            records = without(records, lost)
        rows = iter(records)
        appended = map(call, map(self._appends.__getitem__, keys), rows)
        while True:
            try:
                deque(appended, maxlen=0)
                return
            except (TypeError, Unroutable) as problem:
                index = last_index(records, rows) + 1
                next(rows)  # the key has been consumed, but its record has not
                failed(places[index], keys[index], _remedied(problem))

    def drain(self) -> Buckets:
        buckets = []
        for ordinal, bucket in zip(self._ordinals, self._buckets, strict=True):
            if bucket:
                buckets.append((ordinal, bucket.copy()))
                bucket.clear()
        return buckets


class CountedRoute(KeyedRoute):
    """A keyed route to a reader that only counts records; each key is sent only once per event, with its count."""

    def __init__(self, target: str, ordinals: Sequence[int], key_of: Callable[[Any], Any], key_groups: int) -> None:
        super().__init__(target, ordinals, key_of, key_groups)
        self._counts: Counter[Any] = Counter()

    def add(self, records: Any, failed: Failed) -> None:
        keys = keys_in(records, self._item)
        places: Sequence[int] = range(len(records))
        if isinstance(keys, Exception):  # call the function, so that it raises for each record without a key
            keys, lost = apply(self._key_of, listed(records), lambda index, problem: failed(index, NO_KEY, problem))
            places = without(places, lost) if lost else places
        try:
            counts = Counter(keys)
            deque(map(self._appends.__getitem__, counts), maxlen=0)
        except (TypeError, Unroutable):  # some key has no route: check and report each key separately
            counts = Counter(self._routable(keys, places, failed))
        if self._counts:
            self._counts.update(counts)
        else:
            self._counts = counts

    def _routable(self, keys: Sequence[Any], places: Sequence[int], failed: Failed) -> Iterator[Any]:
        for place, key in zip(places, keys, strict=True):
            try:
                self._appends[key]
            except (TypeError, Unroutable) as problem:
                failed(place, key, _remedied(problem))
            else:
                yield key

    def drain(self) -> Buckets:
        counts, self._counts = self._counts, Counter()
        for key, append in zip(counts, map(self._appends.__getitem__, counts), strict=True):
            append(key)
        return [
            (ordinal, Counted(canonical_keys(keys), list(map(counts.__getitem__, keys))))
            for ordinal, keys in super().drain()
        ]


def _remedied(problem: TypeError | Unroutable) -> Unroutable:
    if isinstance(problem, Unroutable):
        return problem
    return Unroutable(f"{problem}; key by a str, a number or a tuple of these")


class StraightRoute(KeyedRoute):
    """A keyed route to the only task, which owns all keys; it checks the keys and passes the records on unchanged.

    The records may also be `Rows`, which are not converted to a list.
    """

    def __init__(self, target: str, ordinals: Sequence[int], key_of: Callable[[Any], Any], key_groups: int) -> None:
        super().__init__(target, ordinals, key_of, key_groups)
        self._direct = DirectRoute(target, ordinals[0])

    def add(self, records: Any, failed: Failed) -> None:
        keys = keys_in(records, self._item)
        try:
            if type(keys) is list:
                deque(map(self._appends.__getitem__, keys), maxlen=0)
                self._direct.add(records, failed)
                return
        except (TypeError, Unroutable):
            pass  # some key has no route: check and report each record separately below
        self._sort(listed(records), keys, failed)
        if self._buckets[0]:
            self._direct.add(self._buckets[0].copy(), failed)
            self._buckets[0].clear()

    def drain(self) -> Buckets:
        return self._direct.drain()
