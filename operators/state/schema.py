"""Typed state: objects of dataclasses and msgspec Structs, which can be read even after their class has changed.

An object is written as the list of its field values. Its *shape*, which consists of the names and types of the fields,
is written once per snapshot, in the header. An object that was written with another shape is read if this is
unambiguous: an added field receives its default, a removed field is dropped, and any other difference is refused.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import cache, cached_property
from importlib import import_module
from operator import attrgetter
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from causal.errors import PipelineError
from causal.records.values import NotCarried
from operators.records.ownership import copy_containers, own_state

Shape = Any
"""A text for types whose values are carried unchanged ("int", "list[str]", "Any").

For any other type, it is a list that begins with "record", "list", "dict", "tuple" or "optional"."""

Read = Callable[[Any], Any]

_REQUIRED: Any = object()
_ATOMS = (int, float, str, bytes, bool, type(None), datetime, Decimal)
_ANY = "Any"


def _same(value: Any) -> Any:
    return value


class Codec:
    """The codec of values that are carried unchanged, and the base class of all other codecs.

    Attributes:
        shape: the type as a snapshot describes it.
        plain: whether values are written unchanged.
    """

    plain = True

    def __init__(self, shape: Shape = _ANY) -> None:
        self.shape = shape

    def pack(self, value: Any) -> Any:
        """Return the encoded value.

        Raises:
            NotCarried: the value has a different type.
        """
        return value

    def reader(self, shape: Shape, where: str) -> Read:
        """Return a function that restores a value that was written with `shape`.

        Args:
            where: the name of the state, for the error message.

        Raises:
            PipelineError: the values could not be restored unambiguously.
        """
        if shape != self.shape and (_ANY not in (shape, self.shape) or type(shape) is list):
            raise _changed(where, shape, self.shape)
        return _same

    def own(self, value: Any) -> Any:
        """Return a copy that shares no mutable object with the value.

        Raises:
            TypeError: the value contains a buffer, which can change in place.
        """
        return own_state(value)

    def fresh(self) -> Any:
        """Return the initial value that the type defines, or None if it defines none."""
        return None

    def shown(self, value: Any) -> Any:
        """Return the value as dicts, lists and scalars, for display."""
        return value


class _Composite(Codec):
    """The base class of codecs for values that contain records."""

    plain = False

    def own(self, value: Any) -> Any:
        return self.reader(self.shape, "")(copy_containers(self.pack(value)))


class Record(_Composite):
    """The codec of objects of one dataclass or Struct."""

    def __init__(
        self, kind: type, fields: list[tuple[str, Codec, Callable[[], Any]]], make: Callable[..., Any]
    ) -> None:
        """
        Args:
            fields: (name, codec, default) for each field; the default is a function that returns it, or `_REQUIRED` for
                none.
            make: (values by field) -> object with exactly these values, regardless of what its class does in
                `__init__`.
        """
        super().__init__(["record", [[name, codec.shape] for name, codec, _ in fields]])
        self.kind = kind
        self._fields = fields
        self._make = make
        names = [name for name, _, _ in fields]
        self._all_plain = all(codec.plain for _, codec, _ in fields)
        if len(names) > 1:
            self._values: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
        else:
            self._values = lambda value: tuple([getattr(value, name) for name in names])
        cached = [name for each in kind.__mro__ for name, of in vars(each).items() if isinstance(of, cached_property)]
        self._known = frozenset([*names, *cached, "__orig_class__"]).issuperset
        self._open = kind.__dictoffset__ != 0
        """Whether objects may have attributes other than fields; such an object is refused, as these would be lost."""

    def pack(self, value: Any) -> Any:
        if type(value) is not self.kind:
            raise NotCarried(f"it is declared to hold {self.kind.__qualname__}, not {type(value).__qualname__}")
        if self._open and not self._known(vars(value)):
            other = next(name for name in vars(value) if not self._known((name,)))
            raise NotCarried(f"{self.kind.__qualname__}.{other} is not a field; declare it as one")
        values = self._values(value)
        if self._all_plain:
            return list(values)
        return [codec.pack(each) for (_, codec, _), each in zip(self._fields, values, strict=True)]

    def reader(self, shape: Shape, where: str) -> Read:
        if type(shape) is not list or shape[0] != "record":
            raise _changed(where, shape, self.shape)
        before = {name: (place, field_shape) for place, (name, field_shape) in enumerate(shape[1])}
        sources: list[tuple[str, int, Callable[..., Any]]] = []
        for name, codec, default in self._fields:
            if name in before:
                place, field_shape = before[name]
                sources.append((name, place, codec.reader(field_shape, f"{where}: field {name!r}")))
            elif default is _REQUIRED:
                raise PipelineError(
                    f"{where}: field {name!r} is new and has no default; add a default, or start from the beginning"
                )
            else:
                sources.append((name, -1, default))
        make = self._make

        def read(written: Any) -> Any:
            return make({name: of() if place < 0 else of(written[place]) for name, place, of in sources})

        return read

    def fresh(self) -> Any:
        if any(default is _REQUIRED for _, _, default in self._fields):
            return None
        return self.kind()

    def shown(self, value: Any) -> Any:
        return {name: codec.shown(getattr(value, name)) for name, codec, _ in self._fields}


class _Items(_Composite):
    """The codec of lists, of tuples of any length, and of dicts, if their items contain records."""

    def __init__(self, kind: Literal["list", "tuple", "dict"], item: Codec, key: Shape = None) -> None:
        super().__init__([kind, item.shape] if key is None else [kind, item.shape, key])
        self._kind = kind
        self._item = item

    def _each(self, value: Any, of: Callable[[Any], Any]) -> Any:
        if self._kind == "dict":
            return dict(zip(value, map(of, value.values()), strict=True))
        return list(map(of, value)) if self._kind == "list" else tuple(map(of, value))

    def pack(self, value: Any) -> Any:
        if type(value).__name__ != self._kind:
            raise NotCarried(f"a {type(value).__qualname__} was found where a {self._kind} is declared")
        return self._each(value, self._item.pack)

    def reader(self, shape: Shape, where: str) -> Read:
        if type(shape) is not list or shape[0] != self._kind or shape[2:] != self.shape[2:]:
            raise _changed(where, shape, self.shape)
        read = self._item.reader(shape[1], f"{where}: items")
        return lambda written: self._each(written, read)

    def shown(self, value: Any) -> Any:
        return self._each(value, self._item.shown)


class _Optional(_Composite):
    """The codec of an optional record, or of an optional value that contains records."""

    def __init__(self, inner: Codec) -> None:
        super().__init__(["optional", inner.shape])
        self._inner = inner

    def pack(self, value: Any) -> Any:
        return None if value is None else self._inner.pack(value)

    def reader(self, shape: Shape, where: str) -> Read:
        if type(shape) is not list or shape[0] != "optional":
            raise _changed(where, shape, self.shape)
        read = self._inner.reader(shape[1], where)
        return lambda written: None if written is None else read(written)

    def shown(self, value: Any) -> Any:
        return None if value is None else self._inner.shown(value)


def _changed(where: str, was: Shape, now: Shape) -> PipelineError:
    return PipelineError(
        f"{where} was {_text(was)} and is now {_text(now)}; add a new field and convert, or start from the beginning"
    )


def _text(shape: Shape) -> str:
    if type(shape) is not list:
        return str(shape)
    kind, inner = shape[0], shape[1]
    if kind == "record":
        return f"a record of {', '.join(name for name, _ in inner) or 'nothing'}"
    if kind == "dict":
        return f"dict[{_text(shape[2])}, {_text(inner)}]"
    return f"{_text(inner)} | None" if kind == "optional" else f"{kind}[{_text(inner)}]"


# The search for the codec of a type.


@cache
def codec_of(hint: Any) -> Codec:
    """Return the codec of a type; `Any` and type variables have the codec of all values that can be carried.

    Raises:
        TypeError: values of the type cannot be carried; the message names the part and an alternative.
    """
    return _codec(hint, ())


def _codec(hint: Any, above: tuple[type, ...]) -> Codec:
    if isinstance(hint, NewType):
        return _codec(hint.__supertype__, above)
    if hint is Any or isinstance(hint, TypeVar):
        return Codec()
    if hint is None or hint in _ATOMS:
        return Codec("None" if hint in (None, type(None)) else hint.__name__)
    if is_typeddict(hint) or hint in (list, tuple, dict):
        return Codec(hint.__name__ if hint in (list, tuple, dict) else "dict")
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return Codec(f"Literal[{', '.join(map(repr, arguments))}]")
    if origin in (list, tuple, dict):
        return _container(hint, origin, arguments, above)
    if origin in (Union, types.UnionType):
        return _union(hint, arguments, above)
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "__struct_fields__")):
        return _record(hint, above)
    raise TypeError(_refusal(hint))


_CARRIED = "int, float, str, bytes, bool, None, datetime, Decimal, list, tuple, dict, or a dataclass or Struct of these"


def _refusal(hint: Any) -> str:
    name = hint.__qualname__ if isinstance(hint, type) else str(hint).removeprefix("typing.")
    return f"{name}; use {'a dict with None values' if name.split('[')[0] in ('set', 'frozenset') else _CARRIED}"


def _container(hint: Any, origin: Any, arguments: tuple[Any, ...], above: tuple[type, ...]) -> Codec:
    items = [argument for argument in arguments if argument is not Ellipsis]
    codecs = [_codec(item, above) for item in items]
    if all(codec.plain for codec in codecs):
        items_shape = ", ".join("..." if a is Ellipsis else str(_codec(a, above).shape) for a in arguments)
        return Codec(f"{origin.__name__}[{items_shape}]" if arguments else origin.__name__)
    if origin is dict:
        if not codecs[0].plain:
            raise TypeError(f"{hint}, whose keys are records; use tuples as keys")
        return _Items("dict", codecs[1], codecs[0].shape)
    if origin is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        raise TypeError(f"{hint}, which has records at fixed places; use a dataclass instead of the tuple")
    return _Items("list" if origin is list else "tuple", codecs[0])


def _union(hint: Any, arguments: tuple[Any, ...], above: tuple[type, ...]) -> Codec:
    codecs = [_codec(argument, above) for argument in arguments]
    if all(codec.plain for codec in codecs):
        return Codec(" | ".join(sorted(str(codec.shape) for codec in codecs)))
    if len(arguments) != 2 or type(None) not in arguments:
        raise TypeError(f"{hint}, which is a union with a record; use one type, or the record | None")
    return _Optional(codecs[arguments.index(type(None)) - 1])


def _record(kind: type, above: tuple[type, ...]) -> Codec:
    if kind in above:
        raise TypeError(f"{kind.__qualname__}, which contains itself; use dicts for trees")
    try:
        hints = get_type_hints(kind)
    except NameError as problem:
        raise TypeError(f"{kind.__qualname__}: {problem}; define it above, at the top of a module") from problem
    if dataclasses.is_dataclass(kind):
        defaults = [
            (f.name, _default(f.default, f.default_factory, dataclasses.MISSING)) for f in dataclasses.fields(kind)
        ]
        make = _dataclass_maker(kind)
    else:
        structs = import_module("msgspec.structs")
        nothing = sys.modules["msgspec"].NODEFAULT
        defaults = [(f.name, _default(f.default, f.default_factory, nothing)) for f in structs.fields(kind)]
        make = _struct_maker(kind, structs.force_setattr)
    try:
        return Record(kind, [(name, _codec(hints[name], (*above, kind)), default) for name, default in defaults], make)
    except TypeError as problem:
        raise TypeError(f"{problem} (in {kind.__qualname__})") from problem


def _default(value: Any, factory: Any, nothing: Any) -> Any:
    if value is not nothing:
        return lambda: copy_containers(value)
    return _REQUIRED if factory is nothing else factory


def _dataclass_maker(kind: type) -> Callable[[dict[str, Any]], Any]:
    put = object.__setattr__  # also works for frozen dataclasses

    def make(values: dict[str, Any]) -> Any:
        instance: Any = object.__new__(kind)
        for name, value in values.items():
            put(instance, name, value)
        return instance

    return make


def _struct_maker(kind: type, put: Callable[[Any, str, Any], None]) -> Callable[[dict[str, Any]], Any]:
    def make(values: dict[str, Any]) -> Any:
        instance: Any = kind(**values)
        for name, value in values.items():  # a `__post_init__` may have changed the values
            put(instance, name, value)
        return instance

    return make
