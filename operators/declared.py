"""State that an operator declares on its class: a value, a list, a map or a fold per key, typed, with a time to live.

    class Profile(Operator):
        pages = ListState[str]()
        total = ValueState(Totals, ttl_s=86_400)

Each task's own instance of the operator is given bound copies, which stand for the state of `ctx.key`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, Generic, Literal, NoReturn, TypeVar, get_args, overload

from operators.keyed.lists import ListTable
from operators.keyed.maps import MapTable
from operators.keyed.schema import Codec, codec_of
from operators.keyed.ttl import ClockExpiry, EventExpiry, Expiry
from operators.keyed.values import ValueTable
from operators.ownership import SCALARS, own
from operators.seconds import ns_of_seconds
from operators.undo import Undo, UndoneLists, UndoneMaps, UndoneValues

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

Clock = Literal["event", "processing"]
_ABSENT: Any = object()
_BUILT_IN = (int, float, bool, str, bytes, list, tuple, dict)


class NoKey:
    """Stands for the current key where there is none, and says so when it is used."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __hash__(self) -> NoReturn:
        raise RuntimeError(self._why)


class _Unbound:
    """Stands for the table and for `ctx` until an operator's task has bound the state."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(
            "state is declared on the class of an operator, and used as self.<name> in process, on_timer and finish"
        )


_UNBOUND = _Unbound()


class State:
    """Base of all declared states.

    Attributes:
        ttl_ns: how long something lives after it was last written; 0 for ever.
        clock: what that time is counted by.
        name: of the attribute.
    """

    word: ClassVar[str] = ""
    """What kind of state it is, in snapshots and messages."""
    use: ClassVar[str] = ""
    """How it is changed, in the words of an operator."""

    def __init__(self, kind: Any, ttl_s: float | None, clock: Clock) -> None:
        if ttl_s is not None and not (isinstance(ttl_s, (int, float)) and 0 < ttl_s < 9e9):
            raise ValueError(f"ttl_s is {ttl_s!r}; give seconds above 0, or None to keep state for ever")
        if clock not in ("event", "processing"):
            raise ValueError(f"clock is {clock!r}; give 'event' or 'processing'")
        self.ttl_ns = 0 if ttl_s is None else max(1000, ns_of_seconds(ttl_s))
        self.clock = clock
        self.name = ""
        self._kind = kind
        self._ctx: Any = _UNBOUND
        self._table: Any = _UNBOUND
        self._codec = Codec()
        self._aging: EventExpiry | None = None
        """By event time each read finds out by itself what is too old."""
        self.renewed = 0
        """How many places that were too old have been written again, each of which began anew."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, operator: Any, value: State) -> None:
        # Without __get__, so that reading it is reading an attribute.
        if not isinstance(value, State):
            raise TypeError(f"state {self.name!r} was assigned to; change what it holds: self.{self.name}{self.use}")
        vars(operator)[value.name or self.name] = value

    def codec(self) -> Codec:
        """How its values are written: by the type it was given, or that in square brackets.

        Raises:
            TypeError: they cannot be carried.
        """
        return codec_of(self._type())

    def _type(self) -> Any:
        if self._kind is not None:
            return self._kind
        told = get_args(getattr(self, "__orig_class__", None))[-1:]
        return told[0] if told else Any

    def bound(
        self,
        name: str,
        operator: str,
        ctx: Any,
        key_groups: int,
        now: Callable[[], int],
        event_ns: Callable[[], int | None],
        undo: Undo | None = None,
    ) -> State:
        """A copy that stands for the state of `ctx.key`.

        Args:
            undo: what takes back changes of a record that fails; None where nothing is taken back.
            now: the wall clock as a determinant, in ns.
            event_ns: event time, as `EventExpiry` asks for it.

        Raises:
            TypeError: its type cannot be carried.
        """
        made = copy.copy(self)
        made.name, made._ctx, made._codec = name, ctx, self.codec()
        expiry: Expiry | None = None
        if self.ttl_ns and self.clock == "event":
            expiry = made._aging = EventExpiry(self.ttl_ns, event_ns)
        elif self.ttl_ns:
            expiry = ClockExpiry(self.ttl_ns, now)
        made._table = made._new_table(f"{operator}:{name}", operator, key_groups, expiry, undo)
        return made

    def _new_table(self, name: str, operator: str, key_groups: int, expiry: Expiry | None, undo: Undo | None) -> Any:
        raise NotImplementedError

    @property
    def table(self) -> Any:
        """What is checkpointed: a `ValueTable`, `ListTable` or `MapTable`."""
        return self._table

    def expire(self, place: Any) -> None:
        """Remove what has become too old."""
        self._table.drop(place)

    def _renew(self, place: Any) -> None:
        """The place, which is there, is about to be written: what is too old begins anew."""
        if self._aging is not None and self._aging.gone(place):
            self.expire(place)
            self.renewed += 1

    def shown(self, key: Any) -> Any:
        """What is kept for a key, as dicts, lists and scalars; None where nothing is."""
        value = self._table.values.get(key)
        return None if value is None else own(self._codec.shown(value))

    def clear(self) -> None:
        """Forget what is kept for the current key."""
        self._table.drop(self._ctx.key)


class _One(State, Generic[T]):
    """One value."""

    def _new_table(
        self, name: str, operator: str, key_groups: int, expiry: Expiry | None, undo: Undo | None
    ) -> ValueTable:
        if undo is not None:
            return UndoneValues(name, operator, key_groups, self._codec, expiry, undo=undo)
        return ValueTable(name, operator, key_groups, self._codec, expiry)

    def _get(self) -> Any:
        """The value as it is held; what could change in place counts as written."""
        key, table = self._ctx.key, self._table
        value = table.values.get(key, _ABSENT)
        if value is _ABSENT or (self._aging is not None and self._aging.gone(key)):
            return _ABSENT
        if type(value) not in SCALARS:
            table.put(key, value)
        return value

    def _put(self, value: T) -> None:
        if self._aging is not None and self._ctx.key in self._table.values:
            self._renew(self._ctx.key)
        self._table.put(self._ctx.key, value if type(value) in SCALARS else self._codec.own(value))


class ValueState(_One[T]):
    """One value per key: `value`, and `clear()`.

    What `value` gives is the state itself: an object, a list or a dict may be changed in place.  What is assigned is
    copied.  Without a value it gives the default: that of `default`, or for a dataclass or Struct whose fields
    all have defaults a new one, otherwise None.
    """

    word = "a value"
    use = ".value = …"

    def __init__(
        self,
        kind: type[T] | None = None,
        *,
        default: T | Callable[[], T] | None = None,
        ttl_s: float | None = None,
        clock: Clock = "event",
    ) -> None:
        """
        Args:
            kind: the value's type, where it is a dataclass or a msgspec Struct.
            default: a value, or what makes one.
            ttl_s: how long it lives after it was last written, in seconds; by the wall clock up to an eighth longer.
            clock: "event" counts by the event times of the records that write and read it, "processing" by the wall
                clock.
        """
        super().__init__(kind, ttl_s, clock)
        self._default = default

    def codec(self) -> Codec:
        """As for every state.

        Raises:
            ValueError: its default has another type than its values.
        """
        kind, default = self._type(), self._default
        # Any and TypedDict are classes as well, and can be asked for no instance.
        if kind in _BUILT_IN and default is not None and not callable(default):
            if not isinstance(default, (int, float) if kind is float else kind):
                raise ValueError(f"values of type {kind.__name__} and the default {default!r:.80}")
        return super().codec()

    @property
    def value(self) -> T:
        """The current key's value."""
        value = self._get()
        if value is _ABSENT:
            default: Any = self._default
            value = self._codec.fresh() if default is None else default() if callable(default) else default
            if type(value) not in SCALARS:
                self._put(value)
                value = self._get()
        return value  # type: ignore[no-any-return]

    @value.setter
    def value(self, value: T) -> None:
        self._put(value)


class ReducingState(_One[T]):
    """One value per key into which others are folded: `add(value)`, `value` (None before the first), `clear()`."""

    word = "a fold"
    use = ".add(…)"

    def __init__(
        self,
        fn: Callable[[T, T], T],
        kind: type[T] | None = None,
        *,
        ttl_s: float | None = None,
        clock: Clock = "event",
    ) -> None:
        """
        Args:
            fn: (value so far, value added) -> value; the first one added is the first value.
            kind, ttl_s, clock: as for `ValueState`.
        """
        if not callable(fn):
            raise TypeError(f"ReducingState needs a function of two values, not a {type(fn).__name__}")
        super().__init__(kind, ttl_s, clock)
        self._fn = fn

    def add(self, value: T) -> None:
        """Fold a value in."""
        held = self._get()
        self._put(value if held is _ABSENT else self._fn(held, value))

    @property
    def value(self) -> T | None:
        """What was folded for the current key; None before the first."""
        held = self._get()
        return None if held is _ABSENT else held


class ListState(State, Sequence[T], Generic[T]):
    """A list per key, of which a checkpoint writes what was appended, however long it has grown.

    What is put in is copied, and so is what is read: to change an item, assign it (the list is then written whole).
    """

    word = "a list"
    use = ".append(…)"

    def __init__(self, kind: type[T] | None = None, *, ttl_s: float | None = None, clock: Clock = "event") -> None:
        """
        Args:
            kind: type of the items, where they are objects of a dataclass or Struct.
            ttl_s: how long the list lives after something was last appended, in seconds.
            clock: as for `ValueState`.
        """
        super().__init__(kind, ttl_s, clock)

    def _new_table(
        self, name: str, operator: str, key_groups: int, expiry: Expiry | None, undo: Undo | None
    ) -> ListTable:
        if undo is not None:
            return UndoneLists(name, operator, key_groups, codec=self._codec, expiry=expiry, undo=undo)
        return ListTable(name, operator, key_groups, codec=self._codec, expiry=expiry)

    def append(self, item: T) -> None:
        """Put an item at the end."""
        self._begin_anew()
        self._table.append(self._ctx.key, item if type(item) in SCALARS else self._codec.own(item))

    def extend(self, items: Iterable[T]) -> None:
        """Put items at the end, in their order."""
        owned = list(map(self._codec.own, items))
        if owned:
            self._begin_anew()
            self._table.extend(self._ctx.key, owned)

    def _begin_anew(self) -> None:
        if self._aging is not None and self._ctx.key in self._table.values:
            self._renew(self._ctx.key)

    def _held(self) -> list[T]:
        key = self._ctx.key
        held: list[T] = self._table.values.get(key) or []
        return [] if held and self._aging is not None and self._aging.gone(key) else held

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return self._owned(self._held()[index])
        item: T = self._codec.own(self._held()[index])
        return item

    def __setitem__(self, index: int, item: T) -> None:
        _ = self._held()[index]  # raises IndexError before anything is touched
        self._table.touch((self._ctx.key,))
        self._held()[index] = self._codec.own(item)

    def __len__(self) -> int:
        return len(self._held())

    def __iter__(self) -> Iterator[T]:
        return iter(self._owned(self._held()))

    def _owned(self, items: list[T]) -> list[T]:
        owned: list[T] = own(items) if self._codec.plain else list(map(self._codec.own, items))
        return owned

    def shown(self, key: Any) -> Any:
        held = self._table.values.get(key)
        return None if held is None else own([self._codec.shown(item) for item in held])


class MapState(State, MutableMapping[K, V], Generic[K, V]):
    """A dict per key, of which a checkpoint writes the entries that changed; it iterates as a dict does.

    What is put in is copied; what is read is the state itself, as of a dict, and may be changed in place.
    """

    word = "a map"
    use = "[…] = …"

    def __init__(self, kind: type[V] | None = None, *, ttl_s: float | None = None, clock: Clock = "event") -> None:
        """
        Args:
            kind: type of the values, where they are objects of a dataclass or Struct.
            ttl_s: how long an entry lives after it was last written, in seconds.
            clock: as for `ValueState`.
        """
        super().__init__(kind, ttl_s, clock)

    def _new_table(
        self, name: str, operator: str, key_groups: int, expiry: Expiry | None, undo: Undo | None
    ) -> MapTable:
        if undo is not None:
            return UndoneMaps(name, operator, key_groups, self._codec, expiry, undo=undo)
        return MapTable(name, operator, key_groups, self._codec, expiry)

    def expire(self, place: Any) -> None:
        self._table.remove(*place)

    def _held(self) -> dict[K, V]:
        key, aging = self._ctx.key, self._aging
        held: dict[K, V] = self._table.values.get(key) or {}
        if aging is None or not held:
            return held
        return {entry: value for entry, value in held.items() if not aging.gone((key, entry))}

    def _entry(self, entry: Any) -> Any:
        """The entry's value as it is held; `_ABSENT` where it has none."""
        key = self._ctx.key
        value = (self._table.values.get(key) or {}).get(entry, _ABSENT)
        if value is not _ABSENT and self._aging is not None and self._aging.gone((key, entry)):
            return _ABSENT
        return value

    def __getitem__(self, entry: K) -> V:
        value: Any = self._entry(entry)
        if value is _ABSENT:
            raise KeyError(entry)
        if type(value) not in SCALARS:
            self._table.put(self._ctx.key, entry, value)
        return value  # type: ignore[no-any-return]

    def __setitem__(self, entry: K, value: V) -> None:
        key = self._ctx.key
        if self._aging is not None and entry in (self._table.values.get(key) or ()):
            self._renew((key, entry))
        self._table.put(self._ctx.key, entry, value if type(value) in SCALARS else self._codec.own(value))

    def __delitem__(self, entry: K) -> None:
        if self._entry(entry) is _ABSENT:
            raise KeyError(entry)
        self._table.remove(self._ctx.key, entry)

    def __contains__(self, entry: object) -> bool:
        return self._entry(entry) is not _ABSENT

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._held()))

    def __len__(self) -> int:
        return len(self._held())

    def setdefault(self, entry: K, default: Any = None) -> V:
        """The value of an entry, `default` from now on if there is none: as it is kept, to be changed in place."""
        if entry not in self:
            self[entry] = default
        return self[entry]

    def popitem(self) -> tuple[K, V]:
        """Remove the entry that was put last, and return it.

        Raises:
            KeyError: there is none.
        """
        held = self._held()
        if not held:
            raise KeyError("popitem(): the map of this key is empty")
        entry = next(reversed(held))
        return entry, self.pop(entry)

    def clear(self) -> None:
        """Forget all entries of the current key."""
        self._table.drop(self._ctx.key)

    def shown(self, key: Any) -> Any:
        held = self._table.values.get(key)
        return None if held is None else own({entry: self._codec.shown(value) for entry, value in held.items()})
