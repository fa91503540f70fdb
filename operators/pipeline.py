"""The builder: what a pipeline file says.  Each mistake is one line that names the place and the mend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from causal.errors import PipelineError
from causal.values import NotCarried, encode
from causal.vectors import require_arrow
from operators import graph
from operators.graph import DEAD_LETTERS, ByColumn, Edge, Node
from operators.operator import Operator
from operators.sinks.base import Sink
from operators.sources.base import Source
from operators.stages import NO_INITIAL

SETTINGS: ContextVar[Mapping[str, str]] = ContextVar("settings")
"""What `--set` gave; the loader sets it while a pipeline file runs."""

_PARALLELISM_MAX = 1024
_GIVES = {"to_rows": False, "to_vectors": True}
"""Which operators give vectors, or rows, whatever they are given; the others give what they take."""
_ROWS_ONLY = ("map", "flat_map", "process", "reduce", "to_vectors")
_VECTORS_ONLY = ("map_batches", "sum", "min", "max", "to_rows")


class Pipeline:
    """A named graph of operators.

    Attributes:
        name: letters, digits, and . _ -
        settings: the values of `--set`, as text.
    """

    def __init__(self, name: str) -> None:
        self._where = graph.caller()
        self.name = graph.check_name(name, "a pipeline", self._where)
        self.settings: Mapping[str, str] = dict(SETTINGS.get({}))
        self._nodes: dict[str, Node] = {}
        self._loose: list[Stream] = []  # streams of key_by and union that nothing has read yet

    def source(self, name: str, source: Source, parallelism: int = 1) -> Stream:
        """Records enter here; the source's partitions are spread over `parallelism` tasks."""
        where = graph.caller()
        if not isinstance(source, Source):
            raise PipelineError(f"{where}: source {name!r} is given {_kind(source)}; give one of operators.sources")
        return self._add(where, name, "source", source, parallelism, [])

    def stream(self, name: str) -> Stream:
        """The output of the operator `name`, to read it once more."""
        return Stream(self, [Edge(self._named(name))])

    def connect(self, source: str, target: str) -> None:
        """Let `target` read from `source` as well; by key, where it reads its other inputs by key."""
        origin, reader = self._named(source), self._named(target)
        if reader.kind == "source" or origin.kind == "sink":
            raise PipelineError(
                f"{graph.caller()}: {source!r} cannot feed {target!r}; a source has no input, a sink no output"
            )
        key_of = reader.edges[0].key_of if reader.edges else None
        reader.edges.append(Edge(origin, key_of))

    @property
    def nodes(self) -> list[Node]:
        """The operators in the order of building."""
        return list(self._nodes.values())

    @property
    def sources(self) -> dict[str, Source]:
        """The sources by name."""
        return {node.name: node.subject for node in self._nodes.values() if node.kind == "source"}

    def check(self) -> None:
        """Refuse a pipeline that cannot run.

        Raises:
            PipelineError: one line that names the operator, its file and line, and the mend.
        """
        graph.check(self.name, self._where, self.nodes)
        for stream in self._loose:
            mend = ".process, .reduce, .count or .window" if stream.made_by == "key_by" else "an operator or a sink"
            raise PipelineError(f"{stream.where}: nothing reads what {stream.made_by} gives; follow it with {mend}")

    def _named(self, name: str) -> Node:
        if name not in self._nodes:
            known = ", ".join(self._nodes) or "none yet"
            raise PipelineError(f"{graph.caller()}: there is no operator {name!r}; there are {known}")
        return self._nodes[name]

    def _add(
        self, where: str, name: str, kind: str, subject: Any, parallelism: int, edges: list[Edge], **options: Any
    ) -> Stream:
        graph.check_name(name, "an operator", where)
        if name == DEAD_LETTERS:
            raise PipelineError(f"{where}: the name {name!r} is taken by the dead-letter output; choose another")
        if name in self._nodes:
            raise PipelineError(
                f"{where}: there is an operator {name!r} already ({self._nodes[name].where}); choose another name"
            )
        if type(parallelism) is not int or not 1 <= parallelism <= _PARALLELISM_MAX:
            raise PipelineError(
                f"{where}: operator {name!r} has parallelism {parallelism!r}; "
                f"give a whole number from 1 to {_PARALLELISM_MAX}"
            )
        node = Node(name, kind, subject, parallelism, where, len(self._nodes), edges, options)
        node.vectors = _GIVES.get(kind, subject.vectors if kind == "source" else node.reads_vectors)
        if node.keyed and kind not in graph.KEYED_KINDS:
            raise PipelineError(
                f"{where}: {kind} {name!r} follows key_by, but keeps no state per key; put it before key_by, or after "
                "a process, reduce, count or window"
            )
        self._nodes[name] = node
        return Stream(self, [Edge(node)])


class Stream:
    """Records that flow from one or more operators; may be used more than once."""

    def __init__(self, pipeline: Pipeline, edges: list[Edge], where: str = "", made_by: str = "") -> None:
        self.pipeline = pipeline
        self.where = where
        self.made_by = made_by
        self._edges = edges
        if made_by:
            pipeline._loose.append(self)

    def map(self, name: str, fn: Callable[[Any], Any]) -> Stream:
        """`fn(record)` in the place of each record."""
        return self._apply("map", name, fn)

    def filter(self, name: str, fn: Callable[[Any], Any]) -> Stream:
        """Only records for which `fn(record)` is true."""
        return self._apply("filter", name, fn)

    def flat_map(self, name: str, fn: Callable[[Any], Iterable[Any] | None]) -> Stream:
        """All records of the iterable `fn(record)`; None gives none."""
        return self._apply("flat_map", name, fn)

    def map_batches(self, name: str, fn: Callable[[Any], Any]) -> Stream:
        """On vectors: `fn(batch)` in the place of each batch, a pyarrow RecordBatch, Table or dict of columns, or None.

        How many rows a batch has varies between runs (never between a run and its replay).
        """
        return self._apply("map_batches", name, fn)

    def to_rows(self, name: str) -> Stream:
        """Vectors as rows: a dict per row."""
        return self._node(graph.caller(), name, "to_rows", None, None)

    def to_vectors(self, name: str, schema: Any) -> Stream:
        """Rows as vectors: dicts with these columns, or tuples of their values.

        Args:
            schema: `{"key": "int64", "text": "string", …}` in order, or a `pyarrow.Schema`.
        """
        where = graph.caller()
        require_arrow(f"{where}: to_vectors {name!r}")
        from operators.vectors.stages import schema_of

        try:
            told = schema_of(schema)
        except (TypeError, ValueError) as problem:
            raise PipelineError(f"{where}: schema of to_vectors {name!r}: {problem}") from None
        return self._node(where, name, "to_vectors", told, None)

    def key_by(self, fn: Callable[[Any], Any] | str) -> Stream:
        """Records with equal `fn(record)` go to the same task of the operator that follows, which keeps state per key.

        `fn` is called on both sides of the channel, so it must depend on the record alone.  A key is a str, bytes,
        int, float, bool, None, datetime, Decimal or a tuple of these.  On vectors, the name of a column instead.
        """
        where = graph.caller()
        if self._vectors and not isinstance(fn, str):
            raise PipelineError(f"{where}: key_by on vectors is given {_kind(fn)}; give the name of a column")
        by: Any = ByColumn(fn) if self._vectors and isinstance(fn, str) else fn
        self._callable(where, "key_by", by)
        return Stream(self.pipeline, [Edge(edge.source, by) for edge in self._use()], where, "key_by")

    def union(self, *streams: Stream) -> Stream:
        """The records of this stream and of the others, in the order in which they arrive."""
        where = graph.caller()
        edges = list(self._use())
        for stream in streams:
            if not isinstance(stream, Stream):
                raise PipelineError(f"{where}: union is given {_kind(stream)}; give streams")
            if stream.pipeline is not self.pipeline:
                raise PipelineError(f"{where}: union is given a stream of another pipeline")
            edges += stream._use()
        return Stream(self.pipeline, edges, where, "union")

    def process(self, name: str, operator: Operator, parallelism: int | None = None) -> Stream:
        """An operator with state: per key after key_by, otherwise one state per task."""
        where = graph.caller()
        if isinstance(operator, type):
            raise PipelineError(f"{where}: process {name!r} is given {_kind(operator)}; give {operator.__name__}()")
        if not isinstance(operator, Operator):
            raise PipelineError(
                f"{where}: process {name!r} is given {_kind(operator)}; give an instance of a subclass of Operator"
            )
        if type(operator).process is Operator.process and not hasattr(operator, "process_batch"):
            raise PipelineError(f"{where}: {type(operator).__name__} has no process; define process(self, record, ctx)")
        return self._node(where, name, "process", operator, parallelism)

    def reduce(
        self, name: str, fn: Callable[[Any, Any], Any], initial: Any = NO_INITIAL, parallelism: int | None = None
    ) -> Stream:
        """After key_by: emits `(key, accumulated)` for each record, accumulated being `fn(accumulated, record)`.

        A key begins with a copy of `initial`, or with `initial()` if it can be called (`initial=list`).  Without
        `initial`, the first record of a key is accumulated as it is.
        """
        where = graph.caller()
        self._callable(where, f"reduce {name!r}", fn)
        if initial is not NO_INITIAL and not callable(initial):
            try:
                encode(initial)
            except NotCarried as problem:
                raise PipelineError(f"{where}: initial of reduce {name!r}: {problem}") from None
        return self._node(where, name, "reduce", fn, parallelism, keyed=True, initial=initial)

    def count(self, name: str, parallelism: int | None = None) -> Stream:
        """After key_by: emits `(key, n)` for each record, n being how many records of its key have come."""
        return self._node(graph.caller(), name, "count", None, parallelism, keyed=True)

    def sum(self, name: str, column: str, parallelism: int | None = None) -> Stream:
        """On vectors, after key_by: for each row its key and the `sum` of the column in the rows of its key so far."""
        return self._fold("sum", name, column, parallelism)

    def min(self, name: str, column: str, parallelism: int | None = None) -> Stream:
        """The same with the smallest, `min`."""
        return self._fold("min", name, column, parallelism)

    def max(self, name: str, column: str, parallelism: int | None = None) -> Stream:
        """The same with the largest, `max`."""
        return self._fold("max", name, column, parallelism)

    def window(self, name: str, size_s: float, fn: Callable[..., Any], parallelism: int | None = None) -> Stream:
        """Tumbling windows of wall-clock time, per key after key_by: `fn(key, records, window)` gives records.

        On vectors `fn(batch, window)` gives a batch, once for all keys of the task.  `window.start` and `window.end`
        are in seconds, multiples of `size_s`.
        """
        where = graph.caller()
        self._callable(where, f"window {name!r}", fn)
        if isinstance(size_s, bool) or not isinstance(size_s, (int, float)) or not 0.001 <= size_s <= 1e9:
            raise PipelineError(f"{where}: window {name!r} has size_s {size_s!r}; give seconds, at least 0.001")
        return self._node(where, name, "window", fn, parallelism, size_ns=round(size_s * 1e9))

    def sink(self, name: str, sink: Sink, parallelism: int = 1) -> Pipeline:
        """Records leave here."""
        where = graph.caller()
        if not isinstance(sink, Sink):
            raise PipelineError(f"{where}: sink {name!r} is given {_kind(sink)}; give a Sink, e.g. SqliteSink(path)")
        self.pipeline._add(where, name, "sink", sink, parallelism, self._use())
        return self.pipeline

    def _apply(self, kind: str, name: str, fn: Callable[..., Any]) -> Stream:
        where = graph.caller()
        self._callable(where, f"{kind} {name!r}", fn)
        return self._node(where, name, kind, fn, None)

    def _fold(self, kind: str, name: str, column: str, parallelism: int | None) -> Stream:
        where = graph.caller()
        if not isinstance(column, str):
            raise PipelineError(f"{where}: {kind} {name!r} is given {_kind(column)}; give the name of a column")
        return self._node(where, name, kind, column, parallelism, keyed=True)

    @property
    def _vectors(self) -> bool:
        return self._edges[0].source.vectors

    def _callable(self, where: str, what: str, fn: object) -> None:
        if not callable(fn):
            raise PipelineError(f"{where}: {what} is given {_kind(fn)}; give a function")

    def _node(
        self,
        where: str,
        name: str,
        kind: str,
        subject: Any,
        parallelism: int | None,
        keyed: bool = False,
        **options: Any,
    ) -> Stream:
        edges = self._use()
        source, vectors = edges[0].source.name, self._vectors
        if kind in _ROWS_ONLY and vectors:
            mend = "use map_batches, or put .to_rows(name) before it"
            raise PipelineError(f"{where}: {kind} {name!r} works on rows, {source!r} gives vectors; {mend}")
        if kind in _VECTORS_ONLY and not vectors:
            mend = "put .to_vectors(name, schema) before it"
            raise PipelineError(f"{where}: {kind} {name!r} works on vectors, {source!r} gives rows; {mend}")
        if keyed and any(edge.key_of is None for edge in edges):
            raise PipelineError(f"{where}: {kind} {name!r} works per key; put .key_by(fn) before it")
        if parallelism is None:
            parallelism = max(edge.source.parallelism for edge in edges)
        return self.pipeline._add(where, name, kind, subject, parallelism, edges, **options)

    def _use(self) -> list[Edge]:
        """The edges of this stream, which something reads now."""
        if self in self.pipeline._loose:
            self.pipeline._loose.remove(self)
        return list(self._edges)


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
