"""Operators without state: `map`, `filter`, `flat_map`, conversions of vectors, `union` and `sink`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

from causal.errors import PipelineError
from causal.records.vectors import require_arrow
from operators import graph
from operators.builder.streams.stream_base import StreamBase, T, U, kind_of
from operators.sinks.contract.sink import Sink

if TYPE_CHECKING:
    from operators.builder.pipeline import Pipeline
    from operators.builder.streams.stream import Stream


class PerRecord(StreamBase[T]):
    """The methods `map`, `filter`, `flat_map`, `map_batches`, `to_rows`, `to_vectors`, `union` and `sink`."""

    def map(self, name: str, fn: Callable[[T], U]) -> Stream[U]:
        """Replace each record with `fn(record)`."""
        return self._apply("map", name, fn)

    def filter(self, name: str, fn: Callable[[T], Any]) -> Stream[T]:
        """Keep only records for which `fn(record)` is true."""
        return self._apply("filter", name, fn)

    def flat_map(self, name: str, fn: Callable[[T], Iterable[U] | None]) -> Stream[U]:
        """Replace each record with the records of the iterable `fn(record)`; None counts as empty."""
        return self._apply("flat_map", name, fn)

    def map_batches(self, name: str, fn: Callable[[Any], Any]) -> Stream[Any]:
        """Replace each batch of vectors with `fn(batch)`: a pyarrow RecordBatch, Table or dict of columns, or None.

        The number of rows per batch varies between runs, but never between a run and its replay.
        """
        return self._apply("map_batches", name, fn)

    def to_rows(self, name: str) -> Stream[Any]:
        """Convert vectors to rows, a dict per row."""
        return self._node(graph.caller(), name, "to_rows", None, None)

    def to_vectors(self, name: str, schema: Any) -> Stream[Any]:
        """Convert rows to vectors; a row is a dict with the columns of the schema, or a tuple of their values.

        Args:
            schema: `{"key": "int64", "text": "string", …}` in column order, or a `pyarrow.Schema`.
        """
        where = graph.caller()
        require_arrow(f"{where}: to_vectors {name!r}")
        from operators.kinds.vectors.vector_stages import schema_of

        try:
            arrow_schema = schema_of(schema)
        except (TypeError, ValueError) as problem:
            raise PipelineError(f"{where}: schema of to_vectors {name!r}: {problem}") from None
        return self._node(where, name, "to_vectors", arrow_schema, None)

    def union(self, *streams: Stream[T]) -> Self:
        """Merge this stream and others, in the order of arrival."""
        where = graph.caller()
        edges = list(self._use())
        for stream in streams:
            if not isinstance(stream, StreamBase):
                raise PipelineError(f"{where}: union is given {kind_of(stream)}; give streams")
            if stream.pipeline is not self.pipeline:
                raise PipelineError(f"{where}: union is given a stream of another pipeline")
            edges += stream._use()
        return self._stream(edges, where, "union")

    def sink(self, name: str, sink: Sink, parallelism: int = 1, host: str | None = None) -> Pipeline:
        """Write the records of this stream to a sink.

        State: the position, in the store of the sink.

        Args:
            host: in a multi-host job, the only host for the sink's tasks, for a sink that keeps its rows on one
                machine.
        """
        where = graph.caller()
        if not isinstance(sink, Sink):
            raise PipelineError(f"{where}: sink {name!r} is given {kind_of(sink)}; give a Sink, e.g. SqliteSink(path)")
        self._node(where, name, "sink", sink, parallelism)
        return self.pipeline.place(name, host) if host is not None else self.pipeline

    def _apply(self, kind: str, name: str, fn: Callable[..., Any]) -> Stream[Any]:
        where = graph.caller()
        parameters = ("batch",) if kind == "map_batches" else ("record",)
        self._callable(where, f"{kind} {name!r}", fn, parameters, generates=kind == "flat_map")
        return self._node(where, name, kind, fn, None)
