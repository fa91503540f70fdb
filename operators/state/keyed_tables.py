"""Tables of keyed state, and snapshots: incremental, by key group, encoded while the task runs (copy on write).

A table remembers the keys that were touched since the last snapshot, batch by batch.  At a barrier
that set becomes *pending*; a job encodes it little by little, and a batch that is about to touch a
pending key has it encoded first.  So what the job holds is the state at the barrier.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Protocol

from causal.errors import OperatorFailed, invariant
from causal.records.values import NotCarried, decode, encode
from operators.records.keys import canonical_keys, key_groups_of
from operators.records.ownership import SCALARS

UNDIVIDED = -2
"""The value in the place of a fragment's key group for entries of any group."""
_ABSENT = object()
_LASTING = SCALARS | {type(_ABSENT)}
WAITING_MAX, UNDIVIDED_MAX = 64, 1024
"""The most values that are encoded together, where they can wait: of one key group, and of any."""
MOST = 0.75
"""The part of a table's keys beyond which changed ones are not remembered singly, where keys stay."""
AT_ONCE_MAX = 1 << 14
"""The most numbers that are encoded at the barrier, all in one: that takes about a millisecond."""
LARGE_BYTES = 1 << 20
"""The size above which a value is named in the job's log: after a change the next checkpoint writes all of it."""
LARGE_SEARCHES_MAX = 16
"""The number of large fragments of a table that are searched for such a value."""
MANY = 4
"""The divisor for a batch that counts as all of a small table: to remember its keys would cost as much."""
_log = logging.getLogger("causal.state")
_NUMBERS = frozenset((int, float, bool, type(None)))

Entry = tuple[list[Any], list[Any], list[Any]]
"""A fragment: keys, what is written for each, and keys that are gone."""


class States(dict[Any, dict[Any, Any]]):
    """A dict key -> state; a key without state gets an empty one, which the next snapshot removes."""

    __slots__ = ()

    def __missing__(self, key: Any) -> dict[Any, Any]:
        fresh: dict[Any, Any] = {}
        self[key] = fresh
        return fresh


class Cold(Protocol):
    """A dict of which only a part is in memory."""

    def touch(self, keys: Collection[Any]) -> None:
        """Load the values of these keys into memory, where there are any."""
        ...

    def read(self, keys: Collection[Any]) -> dict[Any, Any]:
        """The values of those keys that have one, without taking them into memory."""
        ...

    def shrink(self) -> None:
        """Put away what is more than memory may hold; only between two events."""
        ...


class FragmentJob(Protocol):
    """The share of one table in a snapshot."""

    name: str

    @property
    def fragments(self) -> dict[int, list[bytes]]:
        """The encoded fragments, by key group; read when every step is done."""
        ...

    def step(self, keys_max: int) -> int:
        """Encode up to `keys_max` more keys; returns how many were encoded, fewer only when all are."""
        ...


class KeyedTable:
    """A table of one operator's values by key.

    `touch` must come before every change.  With `drop_empty`, an empty value is the same as none.  `group_of` gives
    the part of a key that decides its key group, where that is not the whole.
    """

    __slots__ = (
        "name", "operator", "key_groups", "values", "dirty", "drop_empty", "group_of", "cold",
        "large_searches", "_keys_stay", "_all_dirty", "_job",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        operator: str,
        key_groups: int,
        values: dict[Any, Any],
        drop_empty: bool = True,
        group_of: Callable[[Any], Any] | None = None,
        keys_stay: bool = False,
    ) -> None:
        """
        Args:
            group_of: the part of a key that decides its key group; the key itself by default.
            keys_stay: no key is ever removed, so where most have changed they need not be remembered singly.
        """
        self.name = name
        self.operator = operator
        self.key_groups = key_groups
        self.values = values
        self.dirty: set[Any] = set()
        self.drop_empty = drop_empty
        self.group_of = group_of
        self.cold: Cold | None = None
        self.large_searches = 0
        self._keys_stay = keys_stay
        self._all_dirty = False
        """Whether most keys have changed since the last snapshot: the next one has all of them, `dirty` none."""
        self._job: TableJob | None = None

    def keep(self, values: dict[Any, Any], cold: Cold) -> None:
        """Hold the values in `values` from now on, which is `cold`; nothing may be there yet."""
        invariant(not self.values, "a table is cold from the beginning", table=self.name)
        self.values, self.cold = values, cold

    def lookup(self, keys: Collection[Any]) -> dict[Any, Any]:
        """A dict in which the values of these keys can be looked up, and perhaps those of others."""
        return self.values if self.cold is None else self.cold.read(keys)

    def shrink(self) -> None:
        """Put away what is more than memory may hold, between two events."""
        if self.cold is not None:
            try:
                self.cold.shrink()
            except NotCarried as problem:
                raise OperatorFailed(f"operator {self.operator!r}: its state cannot go to disk: {problem}") from problem

    def touch(self, keys: Collection[Any]) -> None:
        """Note that these keys are about to change."""
        job = self._job
        if job is not None:
            job.before(keys)
        if self._all_dirty:
            return
        if not self._keys_stay:
            self.dirty.update(keys)
            return
        count = len(self.values)
        if not (count <= AT_ONCE_MAX and len(keys) * MANY >= count and self._begins_with_a_number()):
            self.dirty.update(keys)
            if len(self.dirty) <= count * MOST:
                return
        self._all_dirty, self.dirty = True, set()

    def _begins_with_a_number(self) -> bool:
        """Whether the first value is a number, which shows cheaply whether values of one kind are small."""
        return self.cold is None and type(next(iter(self.values.values()), "")) in _NUMBERS

    def snapshot(self, full: bool) -> FragmentJob:
        """Freeze the values now: all of them, or those touched since the last snapshot."""
        if self._job is not None:
            self._job.step(self._job.left)
        all_dirty, dirty = self._all_dirty, self.dirty
        self._all_dirty, self.dirty = False, set()
        if all_dirty and not full:
            values = self._numbers()
            if values is not None:
                return Encoded(self, values)
        self._job = TableJob(self, set(self.values) if full or all_dirty else dirty, full)
        return self._job

    def _numbers(self) -> list[Any] | None:
        """The values, if they are few and small."""
        if self.cold is not None or self.drop_empty or len(self.values) > AT_ONCE_MAX:
            return None
        values = list(self.values.values())
        return values if _NUMBERS.issuperset(map(type, values)) else None

    def done(self, job: TableJob) -> None:
        if self._job is job:
            self._job = None

    def clear(self) -> None:
        self.values.clear()
        self.dirty.clear()
        self._all_dirty = False

    def inspect(self, key: Any) -> Any:
        """The value of a key, as it can be shown; None when there is none."""
        return self.values.get(key)

    def load(self, fragment: bytes) -> None:
        """Take over a fragment that a job encoded."""
        keys, values, gone = unpacked(fragment)
        for key in gone:
            self.values.pop(key, None)
        self.values.update(zip(keys, values, strict=True))
        self.shrink()

    def renumber(self, next: Callable[[], int]) -> None:
        """Give values that hold numbers of the chain's one order new ones from `next`; most hold none."""


def unpacked(fragment: bytes) -> Entry:
    """The entry of a fragment, with canonical keys: older versions kept the keys that came."""
    keys, values, gone = decode(fragment)
    return canonical_keys(keys), values, gone


class TableJob:
    """A job that encodes the pending keys of one table into fragments, per key group if they are to be `divided`."""

    __slots__ = ("name", "pending", "_table", "_divided", "_fragments", "_waiting")

    def __init__(self, table: KeyedTable, pending: set[Any], divided: bool) -> None:
        self.name = table.name
        self.pending = pending
        self._table = table
        self._divided = divided
        self._fragments: dict[int, list[bytes]] = {}
        self._waiting: dict[int, Entry] = {}
        """The values that can never change: they are as good as encoded, and many at a time cost less."""
        if not pending:
            table.done(self)

    @property
    def fragments(self) -> dict[int, list[bytes]]:
        """The encoded fragments, by key group; all of them once no key is left.

        Raises:
            OperatorFailed: a value that cannot be carried.
        """
        waiting, self._waiting = self._waiting, {}
        for group, entry in waiting.items():
            self._write(group, entry)
        return self._fragments

    @property
    def left(self) -> int:
        """The number of keys that are not encoded yet."""
        return len(self.pending)

    def step(self, keys_max: int) -> int:
        pending = self.pending
        taken = [pending.pop() for _ in range(min(keys_max, len(pending)))]
        self._encode(taken)
        self._table.shrink()
        if not pending:
            self._table.done(self)
        return len(taken)

    def before(self, keys: Iterable[Any]) -> None:
        """Encode those of `keys` that are pending: they are about to change."""
        touched = self.pending.intersection(keys)
        if touched:
            self.pending -= touched
            self._encode(touched)

    def _encode(self, keys: Collection[Any]) -> None:
        keys = list(keys)
        if not keys:
            return
        values = self._values_of(keys)
        kinds = set(map(type, values))
        lasting = kinds <= _LASTING
        groups: dict[int, Entry] = self._waiting if lasting else {}
        present = type(_ABSENT) not in kinds
        if self._divided:
            self._gather(keys, values, groups, present)
        else:
            self._add(keys, values, groups.setdefault(UNDIVIDED, ([], [], [])), present)
        most = (WAITING_MAX if self._divided else UNDIVIDED_MAX) if lasting else 0
        for group in [group for group, (kept, _, gone) in groups.items() if len(kept) + len(gone) >= most]:
            self._write(group, groups.pop(group))

    def _write(self, group: int, entry: Entry) -> None:
        self._fragments.setdefault(group, []).append(_encoded(self._table, entry))

    def _values_of(self, keys: Collection[Any]) -> list[Any]:
        """The value that is written of each key; `_ABSENT` where there is none."""
        find = self._finder(keys)
        values: list[Any] = []
        try:
            values.extend(map(find, keys, repeat(_ABSENT)))
        except NotCarried as problem:
            raise _blamed(self._table, list(keys)[len(values)], problem) from problem
        return values

    def _gather(self, keys: list[Any], values: list[Any], groups: dict[int, Entry], present: bool) -> None:
        """Add what there is to write of these keys, by key group; `present` as for `_add`."""
        group_of = self._table.group_of
        numbers = key_groups_of(keys if group_of is None else list(map(group_of, keys)), self._table.key_groups)
        by_group: dict[int, tuple[list[Any], list[Any]]] = {}
        for key, value, group in zip(keys, values, numbers, strict=True):
            pair = by_group.get(group)
            if pair is None:
                pair = by_group[group] = ([], [])
            pair[0].append(key)
            pair[1].append(value)
        for group, (of_group, its_values) in by_group.items():
            self._add(of_group, its_values, groups.setdefault(group, ([], [], [])), present)

    def _add(self, keys: Sequence[Any], values: Sequence[Any], entry: Entry, present: bool) -> None:
        """Add what there is to write of these keys.

        Args:
            present: each of them has a value.
        """
        table = self._table
        if present and not table.drop_empty:
            entry[0].extend(keys)
            entry[1].extend(values)
            return
        for key, value in zip(keys, values, strict=True):
            if value is _ABSENT:
                entry[2].append(key)
            elif table.drop_empty and not value:
                entry[2].append(key)
                del table.values[key]
            else:
                entry[0].append(key)
                entry[1].append(value)

    def _finder(self, keys: Collection[Any]) -> Callable[[Any, Any], Any]:
        """A function of (key, absent) that returns what is written of the key's value; `absent` where there is none."""
        return self._table.lookup(keys).get


class Encoded:
    """An increment that has every key of a table, encoded at the barrier: nothing is left to do, or kept in memory.

    Memory that is kept while batches continue leaves holes, and objects made there later are slower to reach.
    """

    __slots__ = ("name", "fragments")

    def __init__(self, table: KeyedTable, values: list[Any]) -> None:
        self.name = table.name
        entry: Entry = (list(table.values), values, [])
        self.fragments = {UNDIVIDED: [_encoded(table, entry)]} if values else {}

    def step(self, keys_max: int) -> int:
        """Do nothing: all is encoded already."""
        return 0


def _encoded(table: KeyedTable, entry: Entry) -> bytes:
    """The fragment of an entry.

    Raises:
        OperatorFailed: something in it cannot be carried.
    """
    try:
        fragment = encode(list(entry))
    except NotCarried:
        _blame(table, *entry)
        raise
    if len(fragment) > LARGE_BYTES and table.large_searches < LARGE_SEARCHES_MAX:
        _warn_of_large(table, entry)
    return fragment


def _warn_of_large(table: KeyedTable, entry: Entry) -> None:
    """Name the largest value of a fragment in the log, once per table, if it is large by itself."""
    table.large_searches += 1
    size, key = max(
        ((len(encode(value)), key) for key, value in zip(entry[0], entry[1], strict=True)), key=itemgetter(0)
    )
    if size > LARGE_BYTES:
        table.large_searches = LARGE_SEARCHES_MAX
        _log.warning(
            "operator %r, key %s: its state takes %s bytes, and every checkpoint after a change writes all of them; "
            "declare it as ListState or MapState, of which only what has changed is written, or keep less per key",
            table.operator, _shown(key), f"{size:,}",
        )  # fmt: skip


def _blame(table: KeyedTable, keys: Sequence[Any], values: Sequence[Any], gone: Sequence[Any]) -> None:
    for key, value in [*zip(keys, values, strict=True), *((key, None) for key in gone)]:
        try:
            encode([[key], [value]])  # as deep as in an increment
        except NotCarried as problem:
            raise _blamed(table, key, problem) from problem


def _blamed(table: KeyedTable, key: Any, problem: NotCarried) -> OperatorFailed:
    _, _, part = table.name.partition(":")
    what = f"its state {part!r}" if part else "its state"
    return OperatorFailed(f"operator {table.operator!r}, key {_shown(key)}: {what} cannot be checkpointed: {problem}")


def _shown(value: object) -> str:
    return " ".join(repr(value)[:200].split())
