"""A dict that keeps only its hot part in memory; the rest is in a `ColdStore`, and is loaded on access.

When the values in memory exceed their budget, those that were not touched recently are stored between two events. A
value in memory is current, whereas the store may contain an older value for the same key. A change of a value therefore
does not write to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, filterfalse, islice
from typing import Any

from causal.records.values import NotCarried, decode, encode, place_of_refused
from operators.records.keys import canonical_key
from operators.state.cold_store import ColdStore
from operators.state.spool import Spool

_ABSENT: Any = object()
_GONE_MAX = 10_000
_BYTES_PER_VALUE = 400
_BYTES_PER_ENCODED = 6
"""The estimated bytes of memory per encoded byte of a value; small dicts and their keys are mostly overhead."""
_SAMPLE, _EVERY = 8, 64
_AT_ONCE = 1000
_KEPT = 0.75


def cold_key(key: Any) -> bytes:
    """Return bytes that are equal for two keys if and only if a dict treats the keys as the same."""
    return encode(key if type(key) in (str, int, bytes) else canonical_key(key))


def _original(key: Any) -> bytes | None:
    """Return the encoded key if `cold_key` does not determine it, otherwise None."""
    return None if type(key) in (str, int, bytes) else encode(key)


@dataclass(frozen=True, slots=True)
class Disk:
    """The directory for the cold part of an operator's state, and the memory budget for the hot part."""

    directory: str
    memory_bytes_max: int

    def values(
        self,
        pack: Callable[[Any], Any],
        unpack: Callable[[Any], Any],
        tables: int,
        fresh: Callable[[], Any] | None = None,
    ) -> ColdValues:
        """Return the dict for one of `tables` tables; for the other arguments, see `ColdValues`."""
        return ColdValues(ColdStore(self.directory), self.memory_bytes_max // tables, pack, unpack, fresh)


class ColdValues(dict[Any, Any]):
    """An unordered dict that keeps part of its content on disk.

    `touch` loads many values together; `shrink`, which is called between events, limits the memory that the dict uses.
    """

    def __init__(
        self,
        store: ColdStore,
        memory_bytes_max: int,
        pack: Callable[[Any], Any],
        unpack: Callable[[Any], Any],
        fresh: Callable[[], Any] | None = None,
    ) -> None:
        """
        Args:
            pack, unpack: convert between a value and its encodable form.
            fresh: returns the empty value for a missing key; with None, a missing key raises KeyError.
        """
        super().__init__()
        self._store = store
        self._memory_bytes_max = memory_bytes_max
        self._pack, self._unpack, self._fresh = pack, unpack, fresh
        self._recent: dict[Any, None] = {}
        self._gone: dict[bytes, None] = {}
        self._bytes_per_value = 0
        self._shrinks = 0

    # Between memory and the store.

    def touch(self, keys: Collection[Any]) -> None:
        """Load into memory the values of those keys that have a value."""
        self._recent.update(dict.fromkeys(keys))
        for key, value in self.read(keys, hot=False).items():
            dict.__setitem__(self, key, value)

    def read(self, keys: Iterable[Any], hot: bool = True) -> dict[Any, Any]:
        """Return the values of those keys that have one, without loading them; `hot` includes the values in memory."""
        in_memory = super().__contains__
        away = {cold_key(key): key for key in filterfalse(in_memory, keys)}
        values = {away[name]: self._opened(body) for name, body in self._store.get_many(self._there(away)).items()}
        if hot:
            values.update({key: dict.__getitem__(self, key) for key in filter(in_memory, keys)})
        return values

    def _there(self, keys: Iterable[bytes]) -> list[bytes]:
        return list(filterfalse(self._gone.__contains__, keys))

    def _opened(self, body: bytes) -> Any:
        return self._unpack(decode(body))

    def existing(self, keys: Collection[Any]) -> set[Any]:
        """Return those keys that have a value, without loading the values."""
        in_memory, looked_up = super().__contains__, self._recent
        existing = set(filter(in_memory, keys))
        return existing.union(self.read([key for key in keys if key not in existing and key not in looked_up]))

    def pending(self) -> KeysOfCold:
        """Return the keys that currently have a value, for a snapshot."""
        return KeysOfCold(self)

    def spool(self) -> Spool:
        """Return a new file in the store's directory, for the data that a snapshot encodes."""
        return Spool(self._store.directory)

    def shrink(self) -> None:
        """If memory is over budget, store values that were not touched recently; called only between two events."""
        if self._shrinks % _EVERY == 0:
            self._measure()
            self._recent.clear()
        self._shrinks += 1
        room = self._memory_bytes_max // max(1, self._bytes_per_value)
        if super().__len__() > room:
            self._put_away(super().__len__() - int(room * _KEPT))
        if len(self._gone) > _GONE_MAX:
            self._store.delete_many(list(self._gone))
            self._gone.clear()

    def _measure(self) -> None:
        """Estimate the size of a value from a sample of recently touched values or, during loading, of other values."""
        recent = filter(super().__contains__, self._recent)
        keys = islice(chain(recent, super().__iter__()), _SAMPLE)
        sample = [(key, dict.__getitem__(self, key)) for key in keys]
        if sample:
            size = sum(len(self._encoded(key, value)) for key, value in sample) // len(sample)
            now = _BYTES_PER_VALUE + _BYTES_PER_ENCODED * size
            self._bytes_per_value = (now + 3 * self._bytes_per_value) // 4 if self._bytes_per_value else now

    def _put_away(self, count: int) -> None:
        keys = list(islice(filterfalse(self._recent.__contains__, super().__iter__()), count))
        if len(keys) < count:
            keys += islice(filter(self._recent.__contains__, super().__iter__()), count - len(keys))
        self._recent.clear()
        away = keys if self._fresh is None else list(filter(super().__getitem__, keys))
        rows = [(cold_key(key), self._encoded(key, dict.__getitem__(self, key)), _original(key)) for key in away]
        if rows:
            self._store.put_many(rows)
        if len(away) < len(keys):  # an empty value is equivalent to a missing one
            self._gone.update(dict.fromkeys(map(cold_key, keys)))
        for key in keys:
            dict.__delitem__(self, key)
        for name, _, _ in rows:
            self._gone.pop(name, None)

    def _encoded(self, key: Any, value: Any) -> bytes:
        packed = None
        try:
            packed = self._pack(value)
            return encode(packed)
        except NotCarried as problem:
            # A list is an internal layout, whose places mean nothing to users.
            place = place_of_refused(packed, problem) if type(packed) is dict else ""
            raise NotCarried(f"key {key!r:.200}{f', in {place}' if place else ''}: {problem}") from problem

    # The methods of a dict.

    def __missing__(self, key: Any) -> Any:
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            if self._fresh is None:
                raise KeyError(key)
            value = self[key] = self._fresh()
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of the key, or the default; load the value if necessary."""
        value = super().get(key, _ABSENT)
        if value is not _ABSENT:
            return value
        if key in self._recent:  # the store has already been read for this key
            return default
        self.touch((key,))
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of the key, which is first set to `default` if the key has none."""
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            value = self[key] = default
        return value

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove the key and return its value, or return the default if it has none."""
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            if not default:
                raise KeyError(key)
            return default[0]
        del self[key]
        return value

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        super().__delitem__(key)
        self._gone[cold_key(key)] = None

    def __iter__(self) -> Iterator[Any]:
        yield from list(super().__iter__())
        in_memory, gone = super().__contains__, self._gone
        for name, original in self._store.names():
            if name not in gone:
                key = decode(original)
                if not in_memory(key):
                    yield key

    def keys(self) -> Any:
        """Return all keys."""
        return iter(self)

    def items(self) -> Any:
        """Yield (key, value) for every key; values in the store are not loaded into memory."""
        keys = iter(list(self))
        while part := list(islice(keys, _AT_ONCE)):
            yield from self.read(part).items()

    def values(self) -> Any:
        """Return all values."""
        return (value for _, value in self.items())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), _ABSENT) is not _ABSENT

    def clear(self) -> None:
        """Remove all values and close the store."""
        super().clear()
        self._store.close()
        self._recent.clear()
        self._gone.clear()


class KeysOfCold:
    """The keys that `ColdValues` had when this object was created, except those taken or claimed since.

    Only the keys that were in memory at that time are listed. The others are read from the store, in its order, as they
    are taken. Keys that are claimed before they are read are remembered until the whole store has been read.
    """

    __slots__ = ("_values", "_listed", "_passed", "_last", "_read_out")

    def __init__(self, values: ColdValues) -> None:
        self._values = values
        self._listed = set(dict.__iter__(values))
        self._passed = set(self._listed)
        """Keys that the store may contain, but that must not be taken from it."""
        self._last = b""
        self._read_out = False

    def __bool__(self) -> bool:
        return bool(self._listed) or not self._read_out

    def take(self, keys_max: int) -> list[Any]:
        """Remove and return up to `keys_max` keys; return fewer only if no more remain."""
        listed, passed, gone = self._listed, self._passed, self._values._gone
        keys = [listed.pop() for _ in range(min(keys_max, len(listed)))]
        while len(keys) < keys_max and not self._read_out:
            names = self._values._store.names_behind(self._last, keys_max - len(keys))
            if names:
                self._last = names[-1][0]
                fresh = [decode(original) for name, original in names if name not in gone]
                keys += [key for key in fresh if key not in passed]
            else:
                self._read_out = True
                passed.clear()
        return keys

    def claim(self, keys: Collection[Any], or_all: bool = False) -> list[Any]:
        """Remove and return those of `keys` that remain; ensure that no key in `keys` is returned again later."""
        claimed = self._listed.intersection(keys)
        self._listed -= claimed
        if self._read_out:
            return list(claimed)
        stored = [key for key in keys if key not in self._passed and cold_key(key) > self._last]
        self._passed.update(keys)
        return [*claimed, *self._values.existing(stored)]
