"""`Stream` and `KeyedStream`, whose methods are the operators of a pipeline file.

Operators that work without a key are methods of both classes. Operators that keep or match records by key are methods
of `KeyedStream` alone. Each method is defined once, in the module of its topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import isfunction
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, overload

from causal.errors import PipelineError
from operators import graph
from operators.builder.streams.calling import Asking
from operators.builder.streams.folding import Folding
from operators.builder.streams.joining import Joining
from operators.builder.streams.per_record import PerRecord
from operators.builder.streams.stream_base import K, T, kind_of
from operators.builder.streams.tables import Tables
from operators.builder.streams.timing import Timing
from operators.builder.streams.user_operators import Processing
from operators.builder.streams.windowing import Windowing
from operators.graph import ByColumn


class Stream(PerRecord[T], Processing[T], Windowing[T], Timing[T], Asking[T]):
    """The records that flow from one or more operators; several operators may read them."""

    @overload
    def key_by(self, fn: str) -> KeyedStream[Any, T]: ...

    @overload
    def key_by(self, fn: Callable[[T], K]) -> KeyedStream[K, T]: ...

    def key_by(self, fn: Callable[[T], Any] | str) -> KeyedStream[Any, T]:
        """Route records with equal `fn(record)` to the same task of the next operator, which keeps state per key.

        `fn` is called on both sides of the channel, so its result must depend on the record alone. A key is a str,
        bytes, int, float, bool, None, datetime, Decimal or a tuple of these. For vectors, `fn` is the name of a column
        instead.
        """
        where = graph.caller()
        if self._vectors and not isinstance(fn, str):
            raise PipelineError(f"{where}: key_by on vectors is given {kind_of(fn)}; give the name of a column")
        by: Any = ByColumn(fn) if self._vectors and isinstance(fn, str) else fn
        self._callable(where, "key_by", by, ("record",))
        return KeyedStream(self.pipeline, [replace(edge, key_of=by) for edge in self._use()], where, "key_by")

    if not TYPE_CHECKING:  # type checkers report that a plain stream lacks these operators

        def __getattr__(self, name: str) -> Any:
            """Return the method of `KeyedStream`, whose own checks refuse this stream and name the fix."""
            method = getattr(KeyedStream, name, None)
            return MethodType(method, self) if isfunction(method) else super().__getattribute__(name)


class KeyedStream(Stream[T], Folding[K, T], Joining[K, T], Tables[K, T], Generic[K, T]):
    """A stream after `key_by`: its operators keep state per key, and records meet only records with the same key.

    It also has the operators of `Stream`. Those that keep no state, such as `map`, belong before `key_by`.
    """

    _key: K


def _name_methods(kind: type) -> None:
    """Qualify the methods of the bases of `kind` with its name, which Python prints in errors about arguments."""
    for part in kind.__bases__:
        for name, method in vars(part).items() if part not in (Stream, Generic) else ():
            if isfunction(method):
                method.__module__, method.__qualname__ = kind.__module__, f"{kind.__qualname__}.{name}"


_name_methods(Stream)
_name_methods(KeyedStream)
