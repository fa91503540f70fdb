"""Tables of keyed state and their snapshots, which are incremental, divided by key group, and copy-on-write.

A table remembers the keys that were touched since the last snapshot, batch by batch. At a barrier, these keys become
*pending*. While the task runs, a job encodes them step by step, and a pending key is also encoded before a batch
touches it. The job therefore writes the state as it was at the barrier.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Protocol

from causal.errors import OperatorFailed, invariant
from causal.records.values import NotCarried, encode, encode_loosely, place_of_refused
from operators.records.keys import key_groups_of
from operators.records.ownership import SCALARS
from operators.state.fragments import Entry, packed, unpacked
from operators.state.merge_rules import BY_PAIR, WHOLE
from operators.state.pending_keys import ListedKeys, PendingKeys
from operators.state.slot_index import SlotIndex
from operators.state.spool import Fragment, Spool

UNDIVIDED = -2
"""The value that replaces a fragment's key group if its entries may belong to any group."""
CORRECT = "correct the pipeline and resume with --code new"
"""The remedy for state that cannot be stored; the job then continues from the previous checkpoint."""
ABSENT: Any = object()
"""The result of `KeyedTable.packed` for a key without a value."""
_LASTING = SCALARS | {type(ABSENT)}
NUMERIC = frozenset((int, float, bool, type(None), type(ABSENT)))
"""The types of values that take almost no time to encode, and of missing values."""
WAITING_MAX, UNDIVIDED_MAX = 64, 1024
"""The maximum number of values that wait to be encoded together: in one key group, and in undivided fragments."""
CLAIMED_MIN, CLAIMED_NUMERIC_MIN = 8, 64
"""The minimum number of keys, if that many remain, to encode before one of them changes.

The second number applies to numeric values."""
KEYS_AT_ONCE = 1000
"""The number of keys per step when a job must be completed."""
LARGE_BYTES = 1 << 20
"""The size above which the job's log names a value; after any change, the next checkpoint writes the whole value."""
NAMED = -1
"""The value that replaces a table's count of large fragments once the log has named a large value."""
_log = logging.getLogger("causal.state")


class Cold(Protocol):
    """A dict that keeps only part of its content in memory."""

    def touch(self, keys: Collection[Any]) -> None:
        """Load into memory the values of those keys that have a value."""
        ...

    def read(self, keys: Collection[Any]) -> dict[Any, Any]:
        """Return the values of those keys that have a value, without loading them."""
        ...

    def shrink(self) -> None:
        """Move values that exceed the memory budget to disk; called only between two events."""
        ...

    def pending(self) -> PendingKeys:
        """Return all keys at this moment, for a snapshot."""
        ...

    def spool(self) -> Spool:
        """Return a new file for the data that a snapshot encodes."""
        ...


class FragmentJob(Protocol):
    """The share of one table in a snapshot."""

    name: str

    @property
    def fragments(self) -> Mapping[int, Sequence[Fragment]]:
        """The encoded fragments by key group, which may be read after the last step."""
        ...

    def step(self, keys_max: int) -> int:
        """Encode up to `keys_max` more keys; return the number encoded, which is smaller only if no more remain."""
        ...


class KeyedTable:
    """A table of one operator's values by key; `touch` must be called before every change.

    Attributes:
        dirty: the keys touched since the last snapshot.
        since: dirty key -> the part of its value that earlier snapshots contain; there is no entry if they contain no
            part.
        of_one_group: whether the base of increments may be missing, because only one key group is loaded.
        defined: a clause for error messages with the file:line of the table's operator; empty if it is not known.
        slot_index: the slots of each key, in a process that only loads snapshots of a table by (key, slot); else None.
        numeric: whether the most recently encoded values were numbers, which take almost no time to encode.
    """

    __slots__ = (
        "name", "operator", "key_groups", "values", "dirty", "since", "group_of", "cold", "of_one_group",
        "large_fragments", "numeric", "defined", "slot_index", "_job",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        operator: str,
        key_groups: int,
        values: dict[Any, Any] | None = None,
        group_of: Callable[[Any], Any] | None = None,
    ) -> None:
        """
        Args:
            values: the initial values, which belong to the table from then on.
            group_of: returns the part of a key that decides its key group; by default, the whole key.
        """
        self.name = name
        self.operator = operator
        self.key_groups = key_groups
        self.values: dict[Any, Any] = {} if values is None else values
        self.dirty: set[Any] = set()
        self.since: dict[Any, Any] = {}
        self.group_of = group_of
        self.cold: Cold | None = None
        self.of_one_group = False
        self.large_fragments = 0
        self.numeric = False
        self.defined = ""
        self.slot_index: SlotIndex | None = None
        self._job: TableJob | None = None

    merges = WHOLE
    """The rule by which values in two snapshots are merged (`operators.state.merge_rules`); empty for none."""

    @property
    def merge_rule(self) -> str:
        """The rule by which two snapshots of the table are merged; empty if they cannot be."""
        if self.group_of is None or not self.merges:
            return self.merges
        return self.merges + BY_PAIR if type(self.group_of) is itemgetter and self.group_of((True, False)) else ""

    def keep(self, values: dict[Any, Any], cold: Cold) -> None:
        """Store all further values in `values`, which is also `cold`; the table must still be empty."""
        invariant(not self.values, "a table is cold from the beginning", table=self.name)
        self.values, self.cold = values, cold

    def lookup(self, keys: Collection[Any]) -> dict[Any, Any]:
        """Return a dict that contains the values of these keys, and possibly the values of other keys."""
        return self.values if self.cold is None else self.cold.read(keys)

    def shrink(self) -> None:
        """Move values that exceed the memory budget to disk; called between two events."""
        if self.cold is not None:
            try:
                self.cold.shrink()
            except NotCarried as problem:
                raise OperatorFailed(
                    f"operator {self.operator!r}: its state cannot be moved to disk: {problem}{self.defined}; {CORRECT}"
                ) from problem

    def claim(self, keys: Collection[Any]) -> None:
        """Encode together those keys that the running snapshot still lacks, before they change one by one."""
        if self._job is not None:
            self._job.before(keys)

    def touch(self, keys: Collection[Any]) -> None:
        """Record that these keys are about to change, so the next snapshot writes their whole values."""
        if self._job is not None:
            self._job.before(keys)
        self.dirty.update(keys)
        if self.since:
            for key in keys:
                self.since.pop(key, None)

    def snapshot(self, full: bool) -> TableJob:
        """Freeze all values, or only the values touched since the last snapshot."""
        while self._job is not None:
            self._job.step(KEYS_AT_ONCE)
        pending = self._all() if full else ListedKeys(self.dirty)
        since = {} if full else self.since
        self.dirty, self.since = set(), {}
        self._job = TableJob(self, pending, since, full)
        return self._job

    def _all(self) -> PendingKeys:
        return ListedKeys(set(self.values)) if self.cold is None else self.cold.pending()

    def packed(self, keys: Collection[Any], since: dict[Any, Any]) -> Iterable[Any]:
        """Return the encoded value of each of these keys, or `ABSENT` for a key without a value.

        Args:
            since: the attribute `since` as it was at the barrier.
        """
        return map(self.lookup(keys).get, keys, repeat(ABSENT))

    def done(self) -> None:
        """Record that the job has encoded everything."""
        self._job = None

    def clear(self) -> None:
        self.values.clear()
        self.dirty = set()
        self.since.clear()
        if self.slot_index is not None:
            self.slot_index = SlotIndex()

    def index_slots(self) -> None:
        """Find the slots of a key by an index from now on; the table then changes only when snapshots are loaded."""
        if self.group_of is not None:
            self.slot_index = SlotIndex(self.values)

    def inspect(self, key: Any) -> Any:
        """Return the value of a key in a form for display, or None if there is none."""
        return self.values.get(key)

    def kept_keys(self) -> Iterable[Any]:
        """Return the record keys that have values; a key may occur more than once."""
        return self.values if self.group_of is None else map(self.group_of, self.values)

    def groups_of(self, keys: list[Any]) -> list[int]:
        """Return the key group of each key."""
        return key_groups_of(keys if self.group_of is None else list(map(self.group_of, keys)), self.key_groups)

    def load(self, fragment: bytes) -> None:
        """Load a fragment that a job encoded."""
        keys, values, gone = unpacked(fragment)
        for key in gone:
            self.values.pop(key, None)
        self.values.update(zip(keys, values, strict=True))
        if self.slot_index is not None:
            self.slot_index.loaded(keys, gone)
        self.shrink()

    def renumber(self, next: Callable[[], int]) -> None:
        """Use `next` to assign new numbers to values with numbers from the chain's counter; most tables have none."""


class States(dict[Any, dict[Any, Any]]):
    """A dict key -> state; a key without state receives an empty dict, which the next snapshot removes."""

    __slots__ = ()

    def __missing__(self, key: Any) -> dict[Any, Any]:
        fresh: dict[Any, Any] = {}
        self[key] = fresh
        return fresh


class StateTable(KeyedTable):
    """A table of `ctx.state` by key, in which an empty dict is equivalent to a missing one."""

    __slots__ = ()

    def packed(self, keys: Collection[Any], since: dict[Any, Any]) -> Iterable[Any]:
        for key, state in zip(keys, super().packed(keys, since), strict=True):
            if state:
                yield state
            else:
                if state is not ABSENT:
                    del self.values[key]
                yield ABSENT


class TableJob:
    """A job that encodes the pending keys of one table into fragments, separately for each key group if `divided`."""

    __slots__ = ("name", "_table", "_pending", "_since", "_divided", "_fragments", "_waiting", "_spool")

    def __init__(self, table: KeyedTable, pending: PendingKeys, since: dict[Any, Any], divided: bool) -> None:
        self.name = table.name
        self._table = table
        self._pending = pending
        self._since = since
        self._divided = divided
        self._fragments: dict[int, list[Fragment]] = {}
        self._spool: Spool | None = None
        """The file that stores the fragments, if the table's values are on disk."""
        self._waiting: dict[int, Entry] = {}
        """Immutable values, which need not be encoded immediately; encoding many of them together is cheaper."""

    @property
    def fragments(self) -> Mapping[int, Sequence[Fragment]]:
        """The encoded fragments by key group, which are complete once no key is pending.

        Raises:
            OperatorFailed: a value cannot be carried.
        """
        self._write(self._waiting, 0)
        return self._fragments

    def step(self, keys_max: int) -> int:
        pending = self._pending
        keys = pending.take(keys_max)
        self._encode(keys, self._packed(keys))
        self._table.shrink()
        if not pending:
            self._table.done()
        return len(keys)

    def before(self, keys: Collection[Any]) -> None:
        """Encode those of `keys` that are pending, because they are about to change.

        If these keys are few, some keys of the next step are encoded with them, at hardly any extra cost. If the
        pending values are numbers and there are no more of them than `keys`, encoding all of them is faster than
        selecting the keys that are about to change.
        """
        claimed = self._pending.claim(keys, self._table.numeric)
        if claimed:
            least = CLAIMED_NUMERIC_MIN if self._table.numeric else CLAIMED_MIN
            if len(claimed) < least:
                claimed += self._pending.take(least - len(claimed))
            self._encode(claimed, self._packed(claimed))

    def _encode(self, keys: list[Any], values: list[Any]) -> None:
        if not keys:
            return
        kinds = set(map(type, values))
        lasting, self._table.numeric = kinds <= _LASTING, kinds <= NUMERIC
        self._add(keys, values, lasting, type(ABSENT) in kinds)

    def _add(self, keys: list[Any], values: list[Any], lasting: bool, absent: bool) -> None:
        """Add keys and values to the fragments; lasting values wait until there are more of them."""
        groups: dict[int, Entry] = self._waiting if lasting else {}
        if self._divided or absent:
            self._sort(keys, values, groups)
        else:
            kept, contents, _ = groups.setdefault(UNDIVIDED, ([], [], []))
            kept += keys
            contents += values
        self._write(groups, 0 if not lasting else WAITING_MAX if self._divided else UNDIVIDED_MAX)

    def _sort(self, keys: list[Any], values: list[Any], groups: dict[int, Entry]) -> None:
        """Add keys and their values to the entries of their groups."""
        for group, key, value in zip(self._groups_of(keys), keys, values):
            entry = groups.get(group)
            if entry is None:
                entry = groups[group] = ([], [], [])
            if value is ABSENT:
                entry[2].append(key)
            else:
                entry[0].append(key)
                entry[1].append(value)

    def _packed(self, keys: Collection[Any]) -> list[Any]:
        values: list[Any] = []
        try:
            values.extend(self._table.packed(keys, self._since))
        except NotCarried as problem:
            raise _blamed(self._table, list(keys)[len(values)], problem) from problem
        return values

    def _groups_of(self, keys: list[Any]) -> Iterable[int]:
        """Return the key group of each key, or `UNDIVIDED` for each key if the job does not divide by group."""
        return self._table.groups_of(keys) if self._divided else repeat(UNDIVIDED)

    def _write(self, groups: dict[int, Entry], least: int) -> None:
        """Encode and remove the entries that have at least `least` keys."""
        for group in [group for group, (kept, _, gone) in groups.items() if len(kept) + len(gone) >= least]:
            self._fragments.setdefault(group, []).append(self._kept(self._encoded(groups.pop(group))))

    def _encoded(self, entry: Entry) -> bytes:
        return _encoded(self._table, entry, encode)

    def _kept(self, fragment: bytes) -> Fragment:
        cold = self._table.cold
        if cold is None:
            return fragment
        if self._spool is None:
            self._spool = cold.spool()
        return self._spool.append(fragment)


class CopiedJob(TableJob):
    """A job whose keys and numbers were copied at the barrier, so the table may change without regard to it."""

    __slots__ = ("_keys", "_values", "_absent", "_place")

    def __init__(self, table: KeyedTable, keys: list[Any], values: list[Any], absent: bool, divided: bool) -> None:
        super().__init__(table, ListedKeys(set()), {}, divided)
        self._keys = keys
        self._values = values
        self._absent = absent
        self._place = 0

    def step(self, keys_max: int) -> int:
        place, self._place = self._place, min(self._place + keys_max, len(self._keys))
        step = slice(place, self._place)
        self._add(self._keys[step], self._values[step], True, self._absent)
        return self._place - place

    def _encoded(self, entry: Entry) -> bytes:
        # Neither keys, which are canonical, nor numbers have a type that only `encode` refuses.
        return _encoded(self._table, entry, encode_loosely)


def _encoded(table: KeyedTable, entry: Entry, carry: Callable[[Any], bytes]) -> bytes:
    """Return the fragment that contains an entry.

    Raises:
        OperatorFailed: a key or value of the entry cannot be carried.
    """
    try:
        fragment = packed(entry, carry)
    except NotCarried:
        _blame(table, *entry)
        raise
    if len(fragment) > LARGE_BYTES and table.large_fragments != NAMED:
        table.large_fragments += 1
        if table.large_fragments.bit_count() == 1:  # ever more rarely, because a search costs as much as encoding
            _warn_of_large(table, entry)
    return fragment


def _warn_of_large(table: KeyedTable, entry: Entry) -> None:
    """Log the largest value of a fragment if it is large; this happens only once per table."""
    size, key = max(
        ((len(encode(value)), key) for key, value in zip(entry[0], entry[1], strict=True)), key=itemgetter(0)
    )
    if size > LARGE_BYTES:
        table.large_fragments = NAMED
        _log.warning(
            "operator %r, key %s: its state has %s bytes, and every checkpoint after a change writes all of "
            "them; declare it as ListState or MapState, which write only changed entries, or keep less per key",
            table.operator, _shown(key), f"{size:,}",
        )  # fmt: skip


def _blame(table: KeyedTable, keys: Sequence[Any], values: Sequence[Any], gone: Sequence[Any]) -> None:
    for key, value in [*zip(keys, values, strict=True), *((key, None) for key in gone)]:
        try:
            encode([[key], [value]])  # nest both as deeply as in an increment
        except NotCarried as problem:
            raise _blamed(table, key, problem, value) from problem


def _blamed(table: KeyedTable, key: Any, problem: NotCarried, value: Any = None) -> OperatorFailed:
    _, _, part = table.name.partition(":")
    what = f"its state {part!r}" if part else "its state"
    # A list is an internal layout, whose places mean nothing to users.
    place = place_of_refused(value, problem) if type(value) is dict else ""
    where = f"{'ctx.state' if isinstance(table, StateTable) else 'value'}{place}: " if place else ""
    return OperatorFailed(
        f"operator {table.operator!r}, key {_shown(key)}: {what} cannot be checkpointed: {where}{problem}"
        f"{table.defined}; {CORRECT}"
    )


def _shown(value: object) -> str:
    return " ".join(repr(value)[:200].split())
