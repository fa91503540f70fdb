"""What takes back everything that an operator has done for a record on which it raises (docs/design/0019).

Only where failing records become dead letters: then each change of declared state, timers and side outputs notes how it
is taken back, and `ctx.state` is copied before the operator is called.  A job that stops at the first failure notes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

from operators.keyed.lists import ListTable
from operators.keyed.maps import MapTable
from operators.keyed.ttl import Expiry
from operators.keyed.values import ValueTable
from operators.ownership import SCALARS, own
from operators.timers import Timers

_ABSENT: Any = object()
_NEAR = 64
"""How far from either end of a map an entry is looked for before the map is copied instead."""


class Undo:
    """How the changes of one call of an operator are taken back, the latest first."""

    __slots__ = ("_steps", "_noted", "_state", "_kept", "_out", "_given")

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []
        self._noted: set[Any] = set()
        self._state: dict[Any, Any] | None = None
        self._kept: dict[Any, Any] = {}
        self._out: list[Any] = []
        self._given = 0

    def begin(self, state: dict[Any, Any], out: list[Any]) -> None:
        """The operator is about to be called.

        Args:
            state: `ctx.state`, which it changes in place.
            out: what its records are added to.
        """
        self._steps.clear()
        self._noted.clear()
        self._state, self._kept = state, own(state) if state else {}
        self._out, self._given = out, len(out)

    def end(self) -> None:
        """What it has done stands."""
        self._steps.clear()
        self._noted.clear()
        self._state = None

    def undo(self) -> None:
        """All is as it was at `begin`, if `end` was not called since."""
        state = self._state
        if state is None:
            return
        self._state = None  # what the steps do is not noted again
        steps, self._steps = self._steps, []
        for step in reversed(steps):
            step()
        self._noted.clear()
        state.clear()
        state.update(self._kept)
        del self._out[self._given :]

    @property
    def active(self) -> bool:
        """Whether a call is under way, so that changes are to be noted."""
        return self._state is not None

    def note(self, step: Callable[[], object]) -> None:
        """A change is about to be made; `step` takes it back."""
        if self._state is not None:
            self._steps.append(step)

    def first(self, what: Any) -> bool:
        """Whether `what` is about to change for the first time in this call; false where nothing is noted."""
        if self._state is None or what in self._noted:
            return False
        self._noted.add(what)
        return True


class UndoneValues(ValueTable):
    """Values whose changes can be taken back."""

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
        if self._undo.first((self.name, key)):
            held = self.values.get(key, _ABSENT)
            kept = held if type(held) in SCALARS or held is _ABSENT else self.codec.own(held)
            self._undo.note(partial(self._back, key, kept, _ages(self.expiry, (key,))))

    def _back(self, key: Any, kept: Any, ages: dict[Any, Any]) -> None:
        if kept is _ABSENT:
            super().drop(key)
        else:
            super().put(key, kept)
            _aged(self.expiry, ages)


class UndoneLists(ListTable):
    """Lists whose changes can be taken back: what was appended is cut off again."""

    __slots__ = ("_undo",)

    def __init__(self, *arguments: Any, undo: Undo, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._undo = undo

    def append(self, key: Any, item: Any) -> None:
        self._note_length(key)
        super().append(key, item)

    def extend(self, key: Any, items: Iterable[Any]) -> None:
        more = list(items)
        self._note_length(key)
        super().extend(key, more)

    def drop(self, key: Any) -> None:
        self._note_all(key)
        super().drop(key)

    def touch(self, keys: Any) -> None:
        for key in keys:
            self._note_all(key)
        super().touch(keys)

    def _note_length(self, key: Any) -> None:
        if self._undo.first((self.name, key)):
            length = len(self.values.get(key, ()))
            self._undo.note(partial(self._shorten, key, length, _ages(self.expiry, (key,))))

    def _note_all(self, key: Any) -> None:
        if key in self.values and self._undo.first((self.name, key, "all")):
            self._undo.note(partial(self._back, key, list(self.values[key]), _ages(self.expiry, (key,))))

    def _shorten(self, key: Any, length: int, ages: dict[Any, Any]) -> None:
        if not length:
            super().drop(key)
        elif key in self.values:
            # No checkpoint lies within an event, so what is cut off is in none.
            del self.values[key][length:]
            _aged(self.expiry, ages)

    def _back(self, key: Any, kept: list[Any], ages: dict[Any, Any]) -> None:
        super().touch((key,))
        self.values[key] = kept
        _aged(self.expiry, ages)


class UndoneMaps(MapTable):
    """Maps whose changes can be taken back, to the same order of entries."""

    __slots__ = ("_undo",)

    def __init__(self, *arguments: Any, undo: Undo) -> None:
        super().__init__(*arguments)
        self._undo = undo

    def put(self, key: Any, entry: Any, value: Any) -> None:
        if self._undo.first((self.name, key, entry)):
            held = self.values.get(key, {}).get(entry, _ABSENT)
            if held is _ABSENT:
                self._undo.note(partial(self._take_out, key, entry))
            else:
                kept = held if type(held) in SCALARS else self.codec.own(held)
                self._undo.note(partial(self._put_back, key, entry, kept, _ages(self.expiry, ((key, entry),))))
        super().put(key, entry, value)

    def remove(self, key: Any, entry: Any) -> None:
        if self._undo.active:
            held = self.values[key]
            place = _place(held, entry)
            if place is None:
                self._note_all(key)
            else:
                ages = _ages(self.expiry, ((key, entry),))
                entries = islice(held, place, None) if place >= 0 else islice(reversed(held), -place - 1, None)
                written = next(entries)  # equal to `entry`, as it was put: 5 where 5.0 is removed
                self._undo.note(partial(self._insert, key, written, held[entry], place, ages))
        super().remove(key, entry)

    def drop(self, key: Any) -> None:
        self._note_all(key)
        super().drop(key)

    def _note_all(self, key: Any) -> None:
        held = self.values.get(key) if self._undo.active else None
        if held:
            ages = _ages(self.expiry, [(key, entry) for entry in held]) if self.expiry is not None else {}
            self._undo.note(partial(self._back, key, held.copy(), ages))

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
    """Timers whose setting and clearing can be taken back."""

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
            told = self.table.values.get(key, {}).get(name)
            self._undo.note(partial(self._back, key, name, None if told is None else (told[0], told[1])))

    def _back(self, key: Any, name: str, told: tuple[int, int] | None) -> None:
        if told is None:
            super().clear(key, name)
        else:
            self.put_back(key, name, *told)


def _place(held: dict[Any, Any], entry: Any) -> int | None:
    """Where an entry is in the order of a map, from the front or (below 0) from the back; None where it is far off."""
    if next(reversed(held)) == entry:
        return -1
    for place, each in enumerate(islice(held, _NEAR)):
        if each == entry:
            return place
    for place, each in enumerate(islice(reversed(held), _NEAR)):
        if each == entry:
            return -1 - place
    return None


def _ages(expiry: Expiry | None, places: Iterable[Any]) -> dict[Any, Any]:
    """When these places were last written, those of them that were."""
    if expiry is None:
        return {}
    return {place: expiry.age(place) for place in places if place in expiry}


def _aged(expiry: Expiry | None, ages: dict[Any, Any]) -> None:
    """These places were last written then, whatever has been written since."""
    if expiry is not None:
        for place, age in ages.items():
            expiry.written_in(place, age)
