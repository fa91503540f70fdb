"""State that an operator declares on its class: a typed value, list, map or fold per key, with a time to live.

    class Profile(Operator):
        pages = ListState[str]()
        total = ValueState(Totals, ttl_s=86_400)

The operator instance in each task receives bound copies of these states, which represent the state of `ctx.key`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
from operator import delitem, setitem
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, TypeVar, get_args, overload

from operators.functions import check_function
from operators.graph import caller
from operators.records.ownership import SCALARS, copy_containers
from operators.records.seconds import ns_of_seconds
from operators.state.lists import ListTable
from operators.state.maps import MapTable
from operators.state.schema import Codec, codec_of
from operators.state.ttl import ClockExpiry, EventExpiry, Expiry
from operators.state.undo import Undo, UndoneLists, UndoneMaps, UndoneValues
from operators.state.values import TypedTable, ValueTable

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

Clock = Literal["event", "processing"]
_ABSENT: Any = object()
_BUILT_IN = (int, float, bool, str, bytes, list, tuple, dict)


class NoKey:
    """A placeholder for the current key when there is none; any use of it raises an error."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __hash__(self) -> NoReturn:
        raise RuntimeError(self._why)


class _Unbound:
    """A placeholder for the table and `ctx` of a state that is not bound to a task; any use of it raises an error."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(
            "state must be declared on the class of an operator and used as self.<name> in process, on_timer and finish"
        )


_UNBOUND = _Unbound()


class State:
    """The base class of all declared states.

    Attributes:
        ttl_ns: the time to live after the last write; 0 if state is kept forever.
        clock: the clock that measures the time to live.
        name: the name of the operator's attribute.
    """

    label: ClassVar[str] = ""
    """The kind of the state in snapshots and messages."""
    use: ClassVar[str] = ""
    """The expression that changes the state, for error messages."""
    _tables: ClassVar[tuple[type[TypedTable], Callable[..., TypedTable]]]
    """The class of the state's table if changes cannot be undone, and its class if they can."""

    def __init__(self, kind: Any, ttl_s: float | None, clock: Clock) -> None:
        if ttl_s is not None and not (isinstance(ttl_s, (int, float)) and 0 < ttl_s < 9e9):
            raise ValueError(f"ttl_s is {ttl_s!r}; use seconds above 0, or None to keep state forever")
        if clock not in ("event", "processing"):
            raise ValueError(f"clock is {clock!r}; use 'event' or 'processing'")
        self.ttl_ns = 0 if ttl_s is None else max(1000, ns_of_seconds(ttl_s))
        self.clock = clock
        self.name = ""
        self._kind = kind
        self._ctx: Any = _UNBOUND
        self._table: Any = _UNBOUND
        self._codec = Codec()
        self._aging: EventExpiry | None = None
        """The expiry by event time, which every read checks."""
        self.renewed = 0
        """The number of expired places that were removed because they were written again."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, operator: Any, value: State) -> None:
        # There is no __get__, so a read is an ordinary attribute access.
        if not isinstance(value, State):
            raise TypeError(f"state {self.name!r} was replaced; change its content: self.{self.name}{self.use}")
        vars(operator)[value.name or self.name] = value

    def codec(self) -> Codec:
        """Return the codec of the state's values, whose type is passed as an argument or in square brackets.

        Raises:
            TypeError: values of the type cannot be carried.
        """
        return codec_of(self._type())

    def _type(self) -> Any:
        if self._kind is not None:
            return self._kind
        arguments = get_args(getattr(self, "__orig_class__", None))[-1:]
        return arguments[0] if arguments else Any

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
        """Return a copy that represents the state of `ctx.key`.

        Args:
            now: reads the wall clock as a determinant, in nanoseconds.
            event_ns: returns the event time, as for `EventExpiry`.
            undo: reverts the changes of a record that fails; None if nothing is reverted.

        Raises:
            TypeError: values of the state's type cannot be carried.
        """
        copied = copy.copy(self)
        copied.name, copied._ctx, copied._codec = name, ctx, self.codec()
        expiry: Expiry | None = None
        if self.ttl_ns and self.clock == "event":
            expiry = copied._aging = EventExpiry(self.ttl_ns, event_ns)
        elif self.ttl_ns:
            expiry = ClockExpiry(self.ttl_ns, now)
        arguments = f"{operator}:{name}", operator, key_groups, copied._codec, expiry
        plain, undone = self._tables
        copied._table = plain(*arguments) if undo is None else undone(*arguments, undo=undo)
        return copied

    @property
    def table(self) -> Any:
        """The table that is checkpointed, which is a `ValueTable`, `ListTable` or `MapTable`."""
        return self._table

    def expire(self, place: Any) -> None:
        """Remove an expired place."""
        self._table.drop(place)

    def _renew(self, place: Any) -> None:
        """Remove an existing place that has expired before it is written."""
        if self._aging is not None and self._aging.gone(place):
            self.expire(place)
            self.renewed += 1

    def shown(self, key: Any) -> Any:
        """Return the state of a key as dicts, lists and scalars, or None if the key has no state."""
        value = self._table.values.get(key)
        return None if value is None else copy_containers(self._codec.shown(value))

    def clear(self) -> None:
        """Delete the state of the current key.

        State that has expired by event time remains for records with earlier times.
        """
        key = self._ctx.key
        if self._aging is None or not self._aging.gone(key):
            self._table.drop(key)


class _One(State, Generic[T]):
    """The base class of states with one value per key."""

    _tables = ValueTable, UndoneValues

    def _get(self) -> Any:
        """Return the value without copying it; if the caller could change the value in place, treat it as written."""
        key, table = self._ctx.key, self._table
        value = table.values.get(key, _ABSENT)
        if value is _ABSENT or (self._aging is not None and self._aging.gone(key)):
            return _ABSENT
        if type(value) not in SCALARS:
            table.put(key, value)
        return value

    def __bool__(self) -> NoReturn:
        raise self._no_value()

    def __eq__(self, other: object) -> NoReturn:
        raise self._no_value()

    __hash__ = State.__hash__

    def _no_value(self) -> TypeError:
        """Return the error for a state that is used in place of its value, to which the state would never be equal."""
        return TypeError(f"state {self.name!r} was used like its value; use self.{self.name}.value")

    def _no_operand(self, *_: object) -> NoReturn:
        raise self._no_value()

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report the use of these Python operators
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = _no_operand
        __mod__ = __or__ = __and__ = __lt__ = __le__ = __gt__ = __ge__ = _no_operand

    def _put(self, value: T) -> None:
        if self._aging is not None and self._ctx.key in self._table.values:
            self._renew(self._ctx.key)
        self._table.put(self._ctx.key, value if type(value) in SCALARS else self._codec.own(value))


class ValueState(_One[T]):
    """One value per key, with the attribute `value` and the method `clear()`.

    Reading `value` returns the stored value itself, so an object, list or dict may be changed in place. An assigned
    value is copied. If the key has no value, `value` is the default: `default` if it is passed; otherwise a new
    instance for a dataclass or Struct whose fields all have defaults, or None for any other type. A checkpoint writes
    the value if it was assigned, or if it was read and could have been changed in place.
    """

    label = "a value"
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
            kind: the type of the value, if it is a dataclass or a msgspec Struct.
            default: a value, or a function that returns one.
            ttl_s: the time to live after the last write, in seconds; with the wall clock, up to an eighth longer.
            clock: "event": the event times of the records that write and read the value; "processing": the wall clock.
        """
        super().__init__(kind, ttl_s, clock)
        self._default = default

    def codec(self) -> Codec:
        """Return the codec of the state's values; see `State.codec`.

        Raises:
            ValueError: the default does not have the type of the values.
        """
        kind, default = self._type(), self._default
        # Only built-in types are checked: Any and TypedDict types are classes too, but isinstance rejects them.
        if kind in _BUILT_IN and default is not None and not callable(default):
            if not isinstance(default, (int, float) if kind is float else kind):
                raise ValueError(f"values of type {kind.__name__} and the default {default!r:.80}")
        return super().codec()

    @property
    def value(self) -> T:
        """The value of the current key."""
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
    """One value per key, to which added values are reduced.

    It has the methods `add(value)` and `clear()`, and the attribute `value`, which is None before the first added
    value. A checkpoint writes the reduced value.
    """

    label = "a fold"
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
            fn: (value so far, added value) -> value; the first added value becomes the value unchanged.
            kind, ttl_s, clock: as for `ValueState`.
        """
        if not callable(fn):
            raise TypeError(f"ReducingState needs a function of two values, not a {type(fn).__name__}")
        check_function(f"{caller()}: ReducingState was given", fn, ("value", "added"))
        super().__init__(kind, ttl_s, clock)
        self._fn = fn

    def add(self, value: T) -> None:
        """Replace the current value by its reduction with `value`."""
        known = self._get()
        self._put(value if known is _ABSENT else self._fn(known, value))

    @property
    def value(self) -> T | None:
        """The reduced value of the current key; None before the first added value."""
        known = self._get()
        return None if known is _ABSENT else known


class ListState(State, MutableSequence[T], Generic[T]):
    """A list per key; a checkpoint writes only the appended items.

    Items are copied when they are stored and when they are read, so a changed item must be assigned again. After such
    an assignment, or any other change except appending, a checkpoint writes the whole list. `del self.items[:-9]` keeps
    the last 9 items.
    """

    label = "a list"
    use = ".append(…)"
    _tables = ListTable, UndoneLists

    def __init__(self, kind: type[T] | None = None, *, ttl_s: float | None = None, clock: Clock = "event") -> None:
        """
        Args:
            kind: the type of the items, if it is a dataclass or Struct.
            ttl_s: the time to live of the list after its last change, in seconds.
            clock: as for `ValueState`.
        """
        super().__init__(kind, ttl_s, clock)

    def append(self, item: T) -> None:
        """Append an item."""
        self._renew_list()
        self._table.append(self._ctx.key, item if type(item) in SCALARS else self._codec.own(item))

    def extend(self, items: Iterable[T]) -> None:
        """Append items in the given order."""
        owned = list(map(self._codec.own, items))
        if owned:
            self._renew_list()
            self._table.extend(self._ctx.key, owned)

    def _renew_list(self) -> None:
        if self._aging is not None and self._ctx.key in self._table.values:
            self._renew(self._ctx.key)

    def _items(self) -> list[T]:
        key = self._ctx.key
        items: list[T] = self._table.values.get(key) or []
        return [] if items and self._aging is not None and self._aging.gone(key) else items

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return self._owned(self._items()[index])
        item: T = self._codec.own(self._items()[index])
        return item

    @overload
    def __setitem__(self, index: int, item: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, item: Iterable[T]) -> None: ...
    def __setitem__(self, index: Any, item: Any) -> None:
        # The new items are copied before the list changes, because the list may contain them.
        owned = list(map(self._codec.own, item)) if isinstance(index, slice) else self._codec.own(item)
        _ = self._items()[index]  # raises IndexError before anything changes
        self._change(lambda items: setitem(items, index, owned))

    def __delitem__(self, index: int | slice) -> None:
        _ = self._items()[index]
        self._change(lambda items: delitem(items, index))

    def insert(self, index: int, item: T) -> None:
        """Insert an item before the item at `index`."""
        owned = self._codec.own(item)
        self._change(lambda items: items.insert(index, owned))

    def reverse(self) -> None:
        """Reverse the order of the items."""
        self._change(list.reverse)

    def sort(self, *, key: Callable[[T], Any] | None = None, reverse: bool = False) -> None:
        """Sort the items, as `list.sort` does."""
        ordered: list[Any] = sorted(self, key=key, reverse=reverse)
        self[:] = ordered

    def _change(self, change: Callable[[list[T]], object]) -> None:
        """Perform a change other than an append; the next checkpoint then writes the whole list."""
        if self._items():
            self._table.touch((self._ctx.key,))
            items = self._items()
            change(items)
            if not items:
                self.clear()
        else:
            items = []
            change(items)
            if items:
                self._renew_list()
                self._table.extend(self._ctx.key, items)

    def __len__(self) -> int:
        return len(self._items())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListState):
            return self is other or self._items() == other._items()
        return self._items() == other if isinstance(other, list) else NotImplemented

    def __iter__(self) -> Iterator[T]:
        return iter(self._owned(self._items()))

    def _owned(self, items: list[T]) -> list[T]:
        owned: list[T] = copy_containers(items) if self._codec.plain else list(map(self._codec.own, items))
        return owned

    def shown(self, key: Any) -> Any:
        items = self._table.values.get(key)
        return None if items is None else copy_containers([self._codec.shown(item) for item in items])


class MapState(State, MutableMapping[K, V], Generic[K, V]):
    """A dict per key that iterates in insertion order; a checkpoint writes only the changed entries.

    Values are copied when they are stored. As with a dict, reading returns the stored value itself, which may be
    changed in place.
    """

    label = "a map"
    use = "[…] = …"
    _tables = MapTable, UndoneMaps

    def __init__(self, kind: type[V] | None = None, *, ttl_s: float | None = None, clock: Clock = "event") -> None:
        """
        Args:
            kind: the type of the values, if it is a dataclass or Struct.
            ttl_s: the time to live of an entry after its last write, in seconds.
            clock: as for `ValueState`.
        """
        super().__init__(kind, ttl_s, clock)

    def expire(self, place: Any) -> None:
        self._table.remove(*place)

    def _entries(self) -> dict[K, V]:
        key, aging = self._ctx.key, self._aging
        entries: dict[K, V] = self._table.values.get(key) or {}
        if aging is None or not entries:
            return entries
        return {entry: value for entry, value in entries.items() if not aging.gone((key, entry))}

    def _entry(self, entry: Any) -> Any:
        """Return the value of an entry without copying it, or `_ABSENT` if there is no such entry."""
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
        return iter(list(self._entries()))

    def __len__(self) -> int:
        return len(self._entries())

    def setdefault(self, entry: K, default: Any = None) -> V:
        """Return the value of an entry, which is first set to `default` if missing; it may be changed in place."""
        if entry not in self:
            self[entry] = default
        return self[entry]

    def popitem(self) -> tuple[K, V]:
        """Remove and return the entry that was added last.

        Raises:
            KeyError: the map of the current key is empty.
        """
        entries = self._entries()
        if not entries:
            raise KeyError("popitem(): the map of this key is empty")
        entry = next(reversed(entries))
        return entry, self.pop(entry)

    def clear(self) -> None:
        """Delete all entries of the current key.

        Entries that have expired by event time remain for records with earlier times.
        """
        key, entries = self._ctx.key, self._entries()
        if len(entries) == len(self._table.values.get(key) or ()):
            self._table.drop(key)
        else:
            for entry in entries:
                self._table.remove(key, entry)

    def shown(self, key: Any) -> Any:
        entries = self._table.values.get(key)
        return (
            None
            if entries is None
            else copy_containers({entry: self._codec.shown(value) for entry, value in entries.items()})
        )
