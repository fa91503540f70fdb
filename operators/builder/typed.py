"""`KeyedStream`, the static type of the result of `key_by`; at run time it is `Stream` itself.

A type checker derives the types of keys in the output of the operators after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from operators.builder.pipeline import Stream
from operators.builder.streams.stream_base import K, T, U

A = TypeVar("A")
"""Type of the accumulated value."""
R = TypeVar("R")
"""Type of the records that a join emits."""
Within = tuple[float, float]
"""(before_s, after_s)."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from operators.builder.streams.table import Table
    from operators.kinds.windows import Aggregate, Sliding, Trigger, Tumbling
    from operators.kinds.windows.assigners import Assigned
    from operators.kinds.windows.task_windows import Window

    class KeyedStream(Stream[T], Generic[K, T]):
        """A stream whose operators keep state per key."""

        def count(
            self, name: str, parallelism: int | None = None, delivery: str = "arrival"
        ) -> Stream[tuple[K, int]]: ...

        @overload  # type: ignore[override]
        def reduce(
            self, name: str, fn: Callable[[T, T], T], *, parallelism: int | None = None, delivery: str = "arrival"
        ) -> Stream[tuple[K, T]]: ...

        @overload
        def reduce(
            self,
            name: str,
            fn: Callable[[A, T], A],
            initial: Callable[[], A],
            parallelism: int | None = None,
            delivery: str = "arrival",
        ) -> Stream[tuple[K, A]]: ...

        @overload
        def reduce(
            self,
            name: str,
            fn: Callable[[A, T], A],
            initial: A,
            parallelism: int | None = None,
            delivery: str = "arrival",
        ) -> Stream[tuple[K, A]]: ...

        def reduce(self, *arguments: Any, **options: Any) -> Stream[Any]: ...

        @overload  # type: ignore[override]
        def window(
            self,
            name: str,
            assigner: Assigned | float,
            contents: Aggregate[T, Any],
            parallelism: int | None = None,
            *,
            trigger: Trigger | None = None,
            lateness_s: float = 0.0,
            delivery: str = "arrival",
        ) -> Stream[tuple[K, Any, float, float]]: ...

        @overload
        def window(
            self,
            name: str,
            assigner: Assigned | float,
            contents: Callable[[K, list[T], Window], Iterable[U] | None],
            parallelism: int | None = None,
            *,
            trigger: Trigger | None = None,
            lateness_s: float = 0.0,
            delivery: str = "arrival",
        ) -> Stream[U]: ...

        @overload
        def window(
            self,
            name: str,
            assigner: float,
            contents: Callable[[Any, Window], Any],
            parallelism: int | None = None,
        ) -> Stream[Any]: ...

        def window(self, *arguments: Any, **options: Any) -> Stream[Any]: ...

        @overload  # type: ignore[override]
        def join(
            self,
            name: str,
            other: KeyedStream[K, U],
            within: Within,
            how: Literal["inner"] = "inner",
            fn: None = None,
            parallelism: int | None = None,
        ) -> Stream[tuple[T, U]]: ...

        @overload
        def join(
            self,
            name: str,
            other: KeyedStream[K, U],
            within: Within,
            how: Literal["inner"] = "inner",
            *,
            fn: Callable[[T, U], R],
            parallelism: int | None = None,
        ) -> Stream[R]: ...

        @overload
        def join(
            self,
            name: str,
            other: KeyedStream[K, U],
            within: Within,
            how: Literal["left"],
            fn: Callable[[T, U | None], R],
            parallelism: int | None = None,
        ) -> Stream[R]: ...

        @overload
        def join(
            self,
            name: str,
            other: KeyedStream[K, U],
            within: Within,
            how: Literal["right"],
            fn: Callable[[T | None, U], R],
            parallelism: int | None = None,
        ) -> Stream[R]: ...

        @overload
        def join(
            self,
            name: str,
            other: KeyedStream[K, U],
            within: Within,
            how: Literal["outer"],
            fn: Callable[[T | None, U | None], R],
            parallelism: int | None = None,
        ) -> Stream[R]: ...

        @overload
        def join(
            self,
            name: str,
            other: KeyedStream[K, U],
            within: Within,
            how: Literal["left", "right", "outer"],
            fn: None = None,
            parallelism: int | None = None,
        ) -> Stream[tuple[T | None, U | None]]: ...

        def join(self, *arguments: Any, **options: Any) -> Stream[Any]: ...

        @overload  # type: ignore[override]
        def window_join(
            self,
            name: str,
            other: KeyedStream[K, U],
            assigner: Tumbling | Sliding,
            how: Literal["inner"] = "inner",
            fn: None = None,
            parallelism: int | None = None,
        ) -> Stream[tuple[T, U]]: ...

        @overload
        def window_join(
            self,
            name: str,
            other: KeyedStream[K, U],
            assigner: Tumbling | Sliding,
            how: Literal["inner"] = "inner",
            *,
            fn: Callable[[T, U], R],
            parallelism: int | None = None,
        ) -> Stream[R]: ...

        @overload
        def window_join(
            self,
            name: str,
            other: KeyedStream[K, U],
            assigner: Tumbling | Sliding,
            how: Literal["left", "right", "outer"],
            fn: Callable[[T | None, U | None], R],
            parallelism: int | None = None,
        ) -> Stream[R]: ...

        @overload
        def window_join(
            self,
            name: str,
            other: KeyedStream[K, U],
            assigner: Tumbling | Sliding,
            how: Literal["left", "right", "outer"],
            fn: None = None,
            parallelism: int | None = None,
        ) -> Stream[tuple[T | None, U | None]]: ...

        def window_join(self, *arguments: Any, **options: Any) -> Stream[Any]: ...

        @overload  # type: ignore[override]
        def join_table(
            self,
            name: str,
            table: Table[K, U],
            fn: None = None,
            how: Literal["inner"] = "inner",
            wait: bool = False,
            parallelism: int | None = None,
        ) -> Stream[tuple[T, U]]: ...

        @overload
        def join_table(
            self,
            name: str,
            table: Table[K, U],
            fn: Callable[[T, U], R],
            how: Literal["inner"] = "inner",
            wait: bool = False,
            parallelism: int | None = None,
        ) -> Stream[R]: ...

        @overload
        def join_table(
            self,
            name: str,
            table: Table[K, U],
            fn: Callable[[T, U | None], R],
            how: Literal["left"],
            wait: bool = False,
            parallelism: int | None = None,
        ) -> Stream[R]: ...

        @overload
        def join_table(
            self,
            name: str,
            table: Table[K, U],
            fn: None = None,
            *,
            how: Literal["left"],
            wait: bool = False,
            parallelism: int | None = None,
        ) -> Stream[tuple[T, U | None]]: ...

        def join_table(self, *arguments: Any, **options: Any) -> Stream[Any]: ...

        def table(self, name: str, parallelism: int | None = None) -> Table[K, T]: ...

        def aggregate_table(
            self, name: str, aggregate: Aggregate[T, Any], parallelism: int | None = None
        ) -> Table[K, Any]: ...

        def window_table(
            self,
            name: str,
            assigner: Tumbling | Sliding,
            aggregate: Aggregate[T, Any],
            grace_s: float = 0.0,
            parallelism: int | None = None,
        ) -> Table[tuple[K, float, float], Any]: ...

else:
    KeyedStream = Stream
