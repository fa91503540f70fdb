"""Undo of everything that an operator has done for a record on which it raises (docs/design/0019).

This is done only if failing records become dead letters. Each change of declared state, timers and side outputs then
records how to undo it, and `ctx.state` is copied before the operator is called. A job that stops at the first failure
records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

from operators.records.ownership import SCALARS, always_fits, copy_containers
from operators.records.storable import stored
from operators.state.lists import ListTable
from operators.state.maps import MapTable
from operators.state.timers import Timers
from operators.state.ttl import Expiry
from operators.state.values import ValueTable

_ABSENT: Any = object()
_CLOCK: Any = object()
_NEAR = 64
"""The distance from either end of a map within which an entry is searched for; beyond it, the whole map is copied."""


class Undo:
    """The steps that undo the changes of one call of an operator; they run in reverse order of the changes."""

    __slots__ = ("_steps", "_checks", "_noted", "_state", "_kept", "_out", "_out_length")

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []
        self._checks: list[Callable[[], object]] = []
        self._noted: set[Any] = set()
        self._state: dict[Any, Any] | None = None
        self._kept: dict[Any, Any] = {}
        self._out: list[Any] = []
        self._out_length = 0

    def begin(self, state: dict[Any, Any], out: list[Any]) -> None:
        """Begin to record changes, before the operator is called.

        Args:
            state: `ctx.state`, which the operator changes in place.
            out: the list to which the operator's records are added.
        """
        self._steps.clear()
        self._checks.clear()
        self._noted.clear()
        self._state, self._kept = state, copy_containers(state) if state else {}
        self._out, self._out_length = out, len(out)

    def end(self) -> None:
        """Keep the changes that the operator made.

        Raises:
            NotCarried: the operator has left a value that no state can contain; the changes can still be undone.
        """
        if self._state:
            stored(self._state, "ctx.state")
        for check in self._checks:
            check()
        self._checks.clear()
        self._steps.clear()
        self._noted.clear()
        self._state = None

    def undo(self) -> None:
        """Restore everything as it was at `begin`, unless `end` has been called since."""
        state = self._state
        if state is None:
            return
        self._state = None  # so that changes made by the steps are not recorded
        steps, self._steps = self._steps, []
        for step in reversed(steps):
            step()
        self._noted.clear()
        state.clear()
        state.update(self._kept)
        del self._out[self._out_length :]

    @property
    def active(self) -> bool:
        """Whether a call is in progress, so that changes must be recorded."""
        return self._state is not None

    def note(self, step: Callable[[], object]) -> None:
        """Record that a change is about to be made, and that `step` undoes it."""
        if self._state is not None:
            self._steps.append(step)

    def check(self, step: Callable[[], object]) -> None:
        """Record that `end` must call `step`, which raises an error if a value cannot be stored as state."""
        if self._state is not None:
            self._checks.append(step)

    def first(self, what: Any) -> bool:
        """Record a change of `what`, and return whether it is the first; return False if no call is in progress."""
        if self._state is None or what in self._noted:
            return False
        self._noted.add(what)
        return True


class UndoneValues(ValueTable):
    """A table of values whose changes can be undone."""

    __slots__ = ("_undo",)

    def __init__(self, *arguments: Any, undo: Undo) -> None:
        super().__init__(*arguments)
        self._undo = undo

    def put(self, key: Any, value: Any) -> None:
        self._note(key)
        super().put(key, value)

    def drop(self, key: Any) -> None:
        self._note(key)
        super().drop(key)

    def _note(self, key: Any) -> None:
        _note_clock(self._undo, self.name, self.expiry)
        if self._undo.first((self.name, key)):
            value = self.values.get(key, _ABSENT)
            kept = value if type(value) in SCALARS or value is _ABSENT else self.codec.own(value)
            self._undo.note(partial(self._back, key, kept, _ages(self.expiry, (key,))))
            self._undo.check(partial(self._check, key))

    def _check(self, key: Any) -> None:
        value = self.values.get(key)
        if not always_fits(value):
            stored(self.codec.pack(value), f"state {self.name!r}")

    def _back(self, key: Any, kept: Any, ages: dict[Any, Any]) -> None:
        if kept is _ABSENT:
            super().drop(key)
        else:
            super().put(key, kept)
            _aged(self.expiry, ages)


class UndoneLists(ListTable):
    """A table of lists whose changes can be undone; appended items are removed from the end again."""

    __slots__ = ("_undo",)

    def __init__(self, *arguments: Any, undo: Undo) -> None:
        super().__init__(*arguments)
        self._undo = undo

    def append(self, key: Any, item: Any) -> None:
        self._check((item,))
        self._note_length(key)
        super().append(key, item)

    def extend(self, key: Any, items: Iterable[Any]) -> None:
        more = list(items)
        self._check(more)
        self._note_length(key)
        super().extend(key, more)

    def drop(self, key: Any) -> None:
        self._note_all(key)
        super().drop(key)

    def touch(self, keys: Any) -> None:
        for key in keys:
            self._note_all(key)
        super().touch(keys)

    def _check(self, items: Iterable[Any]) -> None:
        if self._undo.active:
            for item in items:
                if not always_fits(item):
                    stored(self.codec.pack(item), f"state {self.name!r}")

    def _note_length(self, key: Any) -> None:
        _note_clock(self._undo, self.name, self.expiry)
        if self._undo.first((self.name, key)):
            length = len(self.values.get(key, ()))
            self._undo.note(partial(self._shorten, key, length, _ages(self.expiry, (key,))))

    def _note_all(self, key: Any) -> None:
        _note_clock(self._undo, self.name, self.expiry)
        if key in self.values and self._undo.first((self.name, key, "all")):
            self._undo.note(partial(self._back, key, list(self.values[key]), _ages(self.expiry, (key,))))
            self._undo.check(lambda: self._check(self.values.get(key, ())))

    def _shorten(self, key: Any, length: int, ages: dict[Any, Any]) -> None:
        if not length:
            super().drop(key)
        elif key in self.values:
            # There is no checkpoint within an event, so no checkpoint contains the removed items.
            del self.values[key][length:]
            _aged(self.expiry, ages)

    def _back(self, key: Any, kept: list[Any], ages: dict[Any, Any]) -> None:
        super().touch((key,))
        self.values[key] = kept
        _aged(self.expiry, ages)


class UndoneMaps(MapTable):
    """A table of maps whose changes can be undone; undoing also restores the order of entries."""

    __slots__ = ("_undo",)

    def __init__(self, *arguments: Any, undo: Undo) -> None:
        super().__init__(*arguments)
        self._undo = undo

    def put(self, key: Any, entry: Any, value: Any) -> None:
        _note_clock(self._undo, self.name, self.expiry)
        if self._undo.first((self.name, key, entry)):
            self._undo.check(partial(self._check, key, entry))
            previous = self.values.get(key, {}).get(entry, _ABSENT)
            if previous is _ABSENT:
                self._undo.note(partial(self._take_out, key, entry))
            else:
                kept = previous if type(previous) in SCALARS else self.codec.own(previous)
                self._undo.note(partial(self._put_back, key, entry, kept, _ages(self.expiry, ((key, entry),))))
        super().put(key, entry, value)

    def _check(self, key: Any, entry: Any) -> None:
        value = self.values.get(key, {}).get(entry)
        stored([entry, self.codec.pack(value)], f"state {self.name!r}, [entry, value]")

    def remove(self, key: Any, entry: Any) -> None:
        _note_clock(self._undo, self.name, self.expiry)
        if self._undo.active:
            mapping = self.values[key]
            place = _place(mapping, entry)
            if place is None:
                self._note_all(key)
            else:
                ages = _ages(self.expiry, ((key, entry),))
                entries = islice(mapping, place, None) if place >= 0 else islice(reversed(mapping), -place - 1, None)
                written = next(entries)  # the key as it was put, e.g. 5 for an `entry` of 5.0
                self._undo.note(partial(self._insert, key, written, mapping[entry], place, ages))
        super().remove(key, entry)

    def drop(self, key: Any) -> None:
        self._note_all(key)
        super().drop(key)

    def _note_all(self, key: Any) -> None:
        _note_clock(self._undo, self.name, self.expiry)
        mapping = self.values.get(key) if self._undo.active else None
        if mapping:
            ages = _ages(self.expiry, [(key, entry) for entry in mapping]) if self.expiry is not None else {}
            self._undo.note(partial(self._back, key, mapping.copy(), ages))

    def _take_out(self, key: Any, entry: Any) -> None:
        if entry in self.values.get(key, ()):
            super().remove(key, entry)

    def _put_back(self, key: Any, entry: Any, kept: Any, ages: dict[Any, Any]) -> None:
        super().put(key, entry, kept)
        _aged(self.expiry, ages)

    def _insert(self, key: Any, entry: Any, value: Any, place: int, ages: dict[Any, Any]) -> None:
        entries = [(each, kept) for each, kept in self.values.get(key, {}).items() if each != entry]
        entries.insert(place if place >= 0 else len(entries) + 1 + place, (entry, value))
        self._back(key, dict(entries), ages)

    def _back(self, key: Any, kept: dict[Any, Any], ages: dict[Any, Any]) -> None:
        super().touch((key,))
        for entry in self.values.get(key, ()):
            if self.expiry is not None and entry not in kept:
                self.expiry.removed((key, entry))
        self.values[key] = kept
        _aged(self.expiry, ages)


class UndoneTimers(Timers):
    """The timers of an operator; setting and clearing them can be undone."""

    __slots__ = ("_undo",)

    def __init__(self, *arguments: Any, undo: Undo) -> None:
        super().__init__(*arguments)
        self._undo = undo

    def set(self, key: Any, name: str, at_ns: int) -> None:
        self._note(key, name)
        super().set(key, name, at_ns)

    def clear(self, key: Any, name: str) -> bool:
        self._note(key, name)
        return super().clear(key, name)

    def _note(self, key: Any, name: str) -> None:
        if self._undo.first((self.table.name, key, name)):
            timer = self.table.values.get(key, {}).get(name)
            self._undo.note(partial(self._back, key, name, None if timer is None else (timer[0], timer[1])))

    def _back(self, key: Any, name: str, timer: tuple[int, int] | None) -> None:
        if timer is None:
            super().clear(key, name)
        else:
            self.put_back(key, name, *timer)


def _place(mapping: dict[Any, Any], entry: Any) -> int | None:
    """Return an entry's place in a map, counted from the back if negative, or None if it is near neither end."""
    if next(reversed(mapping)) == entry:
        return -1
    for place, each in enumerate(islice(mapping, _NEAR)):
        if each == entry:
            return place
    for place, each in enumerate(islice(reversed(mapping), _NEAR)):
        if each == entry:
            return -1 - place
    return None


def _note_clock(undo: Undo, table: str, expiry: Expiry | None) -> None:
    """Record the header of the expiry before the first change of a table's places; it is restored last."""
    if expiry is not None and undo.first((table, _CLOCK)):
        undo.note(partial(expiry.load_header, expiry.header()))


def _ages(expiry: Expiry | None, places: Iterable[Any]) -> dict[Any, Any]:
    """Return the ages of those places that have an age."""
    if expiry is None:
        return {}
    return {place: expiry.age(place) for place in places if place in expiry}


def _aged(expiry: Expiry | None, ages: dict[Any, Any]) -> None:
    """Set the ages of these places."""
    if expiry is not None:
        for place, age in ages.items():
            expiry.written_in(place, age)
