"""The base class of streams: their edges and pipeline, and the checks of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from causal.errors import PipelineError
from operators.functions import PLAIN, check_function
from operators.graph import ARRIVAL, ORDERED, Edge
from operators.records.seconds import ns_of_seconds

if TYPE_CHECKING:
    from operators.builder.pipeline import Pipeline
    from operators.builder.streams.stream import Stream

T = TypeVar("T")
"""Type of the records."""
K = TypeVar("K")
"""Type of the keys."""
U = TypeVar("U")
"""Type of the records that an operator emits."""
K_co = TypeVar("K_co", covariant=True)


class HasKey(Protocol[K_co]):
    """A stream typed by its keys, for operators whose results contain the key if there is one."""

    @property
    def _key(self) -> K_co: ...


class StreamBase(Generic[T]):
    """Records that flow from one or more operators; several operators may read them."""

    _key: Any
    """Declares the type of the keys, as in `HasKey`; it has no value."""

    def __init__(self, pipeline: Pipeline, edges: list[Edge], where: str = "", made_by: str = "") -> None:
        self.pipeline = pipeline
        self.where = where
        self.made_by = made_by
        self._edges = edges
        if made_by:
            pipeline._loose.append(self)

    def _stream(self, edges: list[Edge], where: str, made_by: str) -> Self:
        """Return a stream that is only a property of its edges, not an operator; some operator must read it."""
        return type(self)(self.pipeline, edges, where, made_by)

    def _node(
        self, where: str, name: str, kind: str, subject: Any, parallelism: int | None, **options: Any
    ) -> Stream[Any]:
        """Return the output of a new operator that reads this stream, by default with the parallelism of its inputs."""
        edges = self._use()
        if parallelism is None:
            parallelism = max(edge.source.parallelism for edge in edges)
        return self.pipeline._add(where, name, kind, subject, parallelism, edges, **options)

    def _use(self) -> list[Edge]:
        """Return the edges of this stream, and record that the stream is read."""
        if self in self.pipeline._loose:
            self.pipeline._loose.remove(self)
        return list(self._edges)

    @property
    def _vectors(self) -> bool:
        return self._edges[0].source.vectors

    def _callable(
        self, where: str, what: str, fn: object, parameters: Sequence[str], generates: bool = False, fix: str = PLAIN
    ) -> None:
        """Refuse anything but a plain function with these parameters; see `check_function`."""
        if not callable(fn):
            raise PipelineError(f"{where}: {what} is given {kind_of(fn)}; give a function")
        check_function(f"{where}: {what} is given", fn, parameters, generates, fix)

    def _seconds(self, where: str, what: str, value: object, least: float) -> int:
        """Convert `value` from seconds to ns.

        Args:
            what: for example "window 'w' has size_s".
        """
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 1e9:
            raise PipelineError(f"{where}: {what} {value!r}; give seconds, at least {least:g}")
        return ns_of_seconds(value)

    def _delivery(
        self, where: str, what: str, delivery: str, known: Sequence[str] = (ARRIVAL, ORDERED)
    ) -> dict[str, str]:
        """Return the `delivery` option of an operator, or no option if its records are delivered as they arrive.

        Args:
            what: for example "process 'p'".
        """
        if delivery not in known:
            choices = " or ".join(f'"{each}"' for each in known)
            raise PipelineError(f"{where}: {what} has delivery {delivery!r}; give {choices}")
        return {} if delivery == ARRIVAL else {"delivery": delivery}


def kind_of(value: object) -> str:
    """Describe an argument for an error message."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
