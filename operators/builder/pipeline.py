"""`Pipeline`, its streams and its tables: every method that declares an operator in a pipeline file.

The classes refer to one another in their method types, so they share one module. Each method contains only what its
user sees: the types, the documentation, and one declaration. `operators.builder.arguments` checks the arguments.
Operators that work without a key are methods of both kinds of streams. Operators that keep or match records by key are
methods of `KeyedStream` only. Each mistake is reported in one line that names the location and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import replace
from inspect import isfunction
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from causal.config import PROCESSES
from causal.errors import PipelineError
from causal.records.vectors import require_arrow
from operators import graph
from operators.builder import unrun
from operators.builder.arguments import joining, user_operators
from operators.builder.arguments.basics import (
    check_callable,
    check_event_windows,
    check_initial,
    checked_aggregate,
    delivery_option,
    kind_of,
    seconds,
)
from operators.builder.arguments.calling import call_options
from operators.builder.arguments.table_inputs import by_key, check_sink, checked_retracting, suppress_options
from operators.builder.arguments.timing import watermark_options
from operators.builder.arguments.windowing import check_merges, window_options
from operators.builder.declarations import Declarations, Outlet
from operators.builder.pipeline_settings import Settings
from operators.graph import LEFT, SPECULATIVE, ByColumn, Node
from operators.kinds.joins.sides import pair
from operators.kinds.process.accumulating import NO_INITIAL
from operators.kinds.tables.revisions import end_of_window
from operators.kinds.windows.aggregates import Aggregate
from operators.kinds.windows.assigners import Assigned, Clock, Session, Sliding, Tumbling
from operators.kinds.windows.triggers import Trigger
from operators.sinks.contract.sink import Sink
from operators.source import Source
from operators.stage.operator import Operator

if TYPE_CHECKING:
    from operators.kinds.eventtime.watermarks import WatermarkGenerator
    from operators.kinds.windows.task_windows import Window
    from operators.stage.context import Context

A = TypeVar("A")
"""The type of accumulated values, and of responses."""
K = TypeVar("K")
"""The type of keys."""
R = TypeVar("R")
"""The type of the records that a join emits."""
T = TypeVar("T")
"""The type of records."""
U = TypeVar("U")
"""The type of the records that an operator emits."""
V = TypeVar("V")
"""The type of a table's values; None means that there is no row."""
W = TypeVar("W")
K_co = TypeVar("K_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)
U_co = TypeVar("U_co", covariant=True)

SETTINGS: ContextVar[Settings] = ContextVar("settings")
"""The `--set` values; the loader sets this variable while a pipeline file runs."""

_ROW = ("key", "value")
"""The parameters of a function that is called with a row."""
_RUNNING = frozenset(("run", "start", "execute", "submit"))
"""Methods that run a pipeline in other engines."""


class HasKey(Protocol[K_co]):
    """A stream typed by its keys, for operators whose results contain the key when the stream has one."""

    @property
    def _key(self) -> K_co: ...


class CallOptions(TypedDict, total=False):
    """The options of `Stream.call` that do not affect the type of its results."""

    concurrency: int
    order: str
    timeout_s: float | None
    retries: int
    backoff_s: float
    parallelism: int | None


class Processes(Protocol[T_contra, U_co]):
    """An `Operator`, typed by its input and output records."""

    def process(self, record: T_contra, ctx: Context, /) -> Iterable[U_co] | None:
        """See `Operator.process`."""
        ...


class Pipeline:
    """A named graph of operators.

    Attributes:
        name: the pipeline name, which consists of letters, digits, and the characters . _ -
        settings: the `--set` values, as text.
        processes: the grouping of operators into processes, unless `--processes` specifies one: `per-task`, `one` or
            `stages`; empty for `per-task`.
    """

    name: str
    settings: Settings
    processes: str

    def __init__(self, name: str, *, processes: str = "") -> None:
        where = graph.caller()
        self.name = graph.check_name(name, "a pipeline", where)
        if processes not in PROCESSES:
            raise PipelineError(f"{where}: processes is {processes!r}; use {', '.join(filter(None, PROCESSES))}")
        self.processes = processes
        settings = SETTINGS.get(None)
        self.settings = Settings({}) if settings is None else settings
        self._declared = Declarations(name, where, self.settings)
        unrun.built()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _RUNNING:
                file = self._declared.where.rpartition(":")[0].rpartition("/")[2] or "PIPELINE.py"
                raise AttributeError(
                    f"a pipeline has no {name}(); run it with `causal run {file}`, or in a test with "
                    "operators.testing.run(pipeline, {source: records})"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def source(self, name: str, source: Source[T], parallelism: int = 1) -> Stream[T]:
        """Add a source, through which records enter; its partitions are distributed over `parallelism` tasks.

        Logs: `barrier`: 2 bytes per checkpoint.
        State: the position in each partition.
        """
        where = graph.caller()
        if not isinstance(source, Source):
            raise PipelineError(
                f"{where}: source {name!r} was given {kind_of(source)}; pass a source of operators.sources"
            )
        if source.asks_partitions and (fixed := self.settings.partitions(name)) is not None:
            source.partitions = fixed
        return Stream(self, self._declared.add(where, name, "source", source, parallelism, []))

    def stream(self, name: str) -> Stream[Any]:
        """Return the output of the operator `name`, so that another operator can read it."""
        return Stream(self, self._declared.output(self._declared.named(name)))

    def connect(self, source: str, target: str) -> None:
        """Make `target` also read from `source`, by key if `target` reads its other inputs by key."""
        self._declared.connect(source, target)

    def place(self, operator: str, host: str | None = None, **labels: str) -> Pipeline:
        """Restrict the tasks of an operator to one host, or to hosts with these labels, in a multi-host job.

        Args:
            host: the only host for the tasks; their standbys run there as well, so the tasks do not survive the loss of
                the host.
            labels: the labels that a host must have (set by `causal agent --label gpu=yes` or in `hosts.toml`).
        """
        self._declared.place(operator, host, labels)
        return self

    @property
    def nodes(self) -> list[Node]:
        """The operators in declaration order, except tables of which only the row versions are read."""
        return self._declared.nodes

    @property
    def sources(self) -> dict[str, Source[Any]]:
        """The sources, by name."""
        return {node.name: node.subject for node in self._declared.by_name.values() if node.kind == "source"}

    def _repr_svg_(self) -> str:
        """Return the graph as SVG, for display in a notebook."""
        from operators.builder import drawing  # imported here because only notebooks need it

        return drawing.graph_svg(self.nodes)

    def check(self) -> None:
        """Refuse a pipeline that cannot run.

        Raises:
            PipelineError: the pipeline cannot run; the message is one line with the operator, its file and line, and
                the remedy.
        """
        unrun.used()
        self._declared.check()


class Stream(Generic[T]):
    """Records that flow from one or more operators; several operators may read them.

    Attributes:
        pipeline: the pipeline to which the stream belongs.
    """

    _key: Any
    """Declares the type of the keys, as in `HasKey`; it has no value at run time."""

    def __init__(self, pipeline: Pipeline, outlet: Outlet) -> None:
        self.pipeline = pipeline
        self._outlet = outlet

    def _feed(
        self, where: str, name: str, kind: str, subject: Any, parallelism: int | None = None, **options: Any
    ) -> Stream[Any]:
        """Return the output of a new operator that reads this stream."""
        return Stream(self.pipeline, self._outlet.feed(where, name, kind, subject, parallelism, **options))

    def _apply(self, kind: str, name: str, fn: Callable[..., Any], parameter: str = "record") -> Stream[Any]:
        where = graph.caller()
        check_callable(where, f"{kind} {name!r}", fn, (parameter,), generates=kind == "flat_map")
        return self._feed(where, name, kind, fn)

    def _other(self, where: str, what: str, other: object, remedy: str) -> Outlet:
        """Return the outlet of another stream, which must belong to this pipeline."""
        if not isinstance(other, Stream):
            raise PipelineError(f"{where}: {what} was given {kind_of(other)}; {remedy}")
        if other.pipeline is not self.pipeline:
            raise PipelineError(f"{where}: {what} was given a stream of another pipeline")
        return other._outlet

    def map(self, name: str, fn: Callable[[T], U]) -> Stream[U]:
        """Replace each record with `fn(record)`."""
        return self._apply("map", name, fn)

    def filter(self, name: str, fn: Callable[[T], Any]) -> Stream[T]:
        """Keep only records for which `fn(record)` is true."""
        return self._apply("filter", name, fn)

    def flat_map(self, name: str, fn: Callable[[T], Iterable[U] | None]) -> Stream[U]:
        """Replace each record with the records in the iterable `fn(record)`; None counts as empty."""
        return self._apply("flat_map", name, fn)

    @overload
    def key_by(self, fn: str) -> KeyedStream[Any, T]: ...

    @overload
    def key_by(self, fn: Callable[[T], K]) -> KeyedStream[K, T]: ...

    def key_by(self, fn: Callable[[T], Any] | str) -> KeyedStream[Any, T]:
        """Route records with equal `fn(record)` to the same task of the next operator, which keeps state per key.

        `fn` is called on both sides of the channel, so its result must depend only on the record. A key is a str,
        bytes, int, float, bool, None, datetime, Decimal or a tuple of these. For vectors, pass the name of a column as
        `fn`.
        """
        where = graph.caller()
        if self._outlet.vectors and not isinstance(fn, str):
            raise PipelineError(f"{where}: key_by on vectors was given {kind_of(fn)}; pass the name of a column")
        by: Any = ByColumn(fn) if self._outlet.vectors and isinstance(fn, str) else fn
        check_callable(where, "key_by", by, ("record",))
        edges = [replace(edge, key_of=by) for edge in self._outlet.consume()]
        return KeyedStream(self.pipeline, self._outlet.changed(edges, where, "key_by"))

    def union(self, *streams: Stream[T]) -> Self:
        """Merge this stream with others; records are delivered in the order of arrival."""
        where = graph.caller()
        edges = self._outlet.consume()
        for stream in streams:
            edges += self._other(where, "union", stream, "use streams").consume()
        return type(self)(self.pipeline, self._outlet.changed(edges, where, "union"))

    @overload
    def process(
        self,
        name: str,
        operator: Processes[T, U],
        parallelism: int | None = None,
        delivery: Literal["arrival", "ordered"] = "arrival",
        state: Literal["memory", "disk"] | None = None,
    ) -> Stream[U]: ...

    @overload
    def process(
        self,
        name: str,
        operator: Processes[T, U],
        parallelism: int | None = None,
        *,
        delivery: Literal["speculative"],
        state: Literal["memory", "disk"] | None = None,
    ) -> Table[Any, U]: ...

    @overload
    def process(
        self,
        name: str,
        operator: Processes[T, U],
        parallelism: int | None = None,
        delivery: str = "arrival",
        state: Literal["memory", "disk"] | None = None,
    ) -> Any: ...

    def process(
        self,
        name: str,
        operator: Any,
        parallelism: int | None = None,
        delivery: str = "arrival",
        state: Literal["memory", "disk"] | None = None,
    ) -> Any:
        """Run an operator with state, which is kept per key after `key_by` and otherwise per task.

        Logs: every answer of `ctx`.
        State: `ctx.state` per key, or per task without `key_by`; declared states; timers.

        Args:
            delivery: "arrival": in the order of arrival. "ordered": in event-time order, which is the same in every
                run; records that arrive too late for that order go to `.side("late")`. "speculative": in the order of
                arrival, and again after an older record arrives; `process` then returns a `Table` whose final rows
                equal the results of "ordered".
            state: where the operator keeps its state; by default, where the job's `state` setting specifies.
        """
        where = graph.caller()
        options = user_operators.process_options(where, f"process {name!r}", operator, delivery, state)
        output = self._outlet.feed(where, name, "process", operator, parallelism, **options)
        return Table(self.pipeline, output) if delivery == SPECULATIVE else Stream(self.pipeline, output)

    def broadcast(
        self, name: str, rules: Stream[Any], operator: Operator, wait: bool = False, parallelism: int | None = None
    ) -> Stream[Any]:
        """Run an operator with state, as `process` does; each of its tasks also receives all records of `rules`.

        Logs: every answer of `ctx`.
        State: as `process`; the rules, in every task.

        Args:
            operator: a `BroadcastOperator`. Its `process(record, ctx)` reads the dict `ctx.broadcast`, and its
                `process_broadcast(record, ctx)` changes that dict.
            wait: hold all records until the rules have ended, which requires that the rules are bounded.
        """
        where = graph.caller()
        if not isinstance(rules, Stream) or rules.pipeline is not self.pipeline:
            what = f"the rules of broadcast {name!r} are {kind_of(rules)}"
            raise PipelineError(f"{where}: {what}; use a stream of this pipeline")
        output = user_operators.broadcast(where, name, operator, self._outlet, rules._outlet, wait, parallelism)
        return Stream(self.pipeline, output)

    @overload
    def call(self, name: str, fn: Callable[[T, str], A], **options: Unpack[CallOptions]) -> Stream[tuple[T, A]]: ...

    @overload
    def call(
        self, name: str, fn: Callable[[T, str], A], *, combine: Callable[[T, A], U], **options: Unpack[CallOptions]
    ) -> Stream[U]: ...

    def call(
        self,
        name: str,
        fn: Callable[[T, str], Any],
        *,
        combine: Callable[[T, Any], Any] | None = None,
        concurrency: int = 64,
        order: str = "input",
        timeout_s: float | None = None,
        retries: int = 0,
        backoff_s: float = 0.1,
        parallelism: int | None = None,
    ) -> Stream[Any]:
        """Call the outside world for each record; the result is `combine(record, response)`, by default the pair.

        Logs: `answer`: 4 bytes and the response, per record.
        State: requests without a response.

        `fn(record, idempotency_key)` runs in a thread of the worker while the worker continues. A replay uses the same
        responses without calling `fn`. If the task dies before anything depends on a response, the call is repeated
        with the same key: 32 hexadecimal digits that identify the record within the run.

        Args:
            fn: a plain function, which may block; its result can be anything that is valid as a record.
            concurrency: the number of calls that one task runs at the same time.
            order: "input": emit results in the order in which the records arrived; "completion": in the order of the
                responses.
            timeout_s: the time limit of one attempt; an attempt that exceeds the limit keeps running, but its response
                is ignored.
            retries: the number of retries after an exception or a timeout; the first retry waits `backoff_s`, and each
                later retry waits twice as long as the one before.
        """
        where, what = graph.caller(), f"call {name!r}"
        check_callable(where, what, fn, ("record", "key"), fix="pass a plain function, which runs in a thread")
        options = call_options(where, what, combine, concurrency, order, timeout_s, retries, backoff_s)
        return self._feed(where, name, "call", fn, parallelism, **options)

    def watermarks(
        self,
        name: str,
        time: Callable[[T], Any],
        out_of_order_s: float = 0.0,
        idle_after_s: float | None = None,
        generator: Callable[[], WatermarkGenerator] | None = None,
    ) -> Stream[T]:
        """Define the event time of these records and generate watermarks.

        Logs with `idle_after_s`: `timer`: 8 times 2 to 5 bytes per period.
        State: the largest time per input.

        The watermark of an input is its largest event time so far minus `out_of_order_s`; the watermark of the stream
        is the minimum over its inputs. A watermark m states that no record with a time below m will arrive. Call this
        method once per stream, before `key_by`, and not on vectors.

        Args:
            time: `time(record)` returns seconds since 1970 (int, float) or a datetime; a naive datetime is interpreted
                as UTC.
            out_of_order_s: how far a record may lag the largest event time without being late.
            idle_after_s: an input without records for this long (at most twice as long) no longer holds back the
                watermark.
            generator: returns a watermark generator for each input channel, as an alternative to `out_of_order_s`.
        """
        where = graph.caller()
        options = watermark_options(where, f"watermarks {name!r}", time, out_of_order_s, idle_after_s, generator)
        return self._feed(where, name, "watermarks", time, **options)

    def timed(self, time: Callable[[T], Any]) -> Self:
        """Define the event time of these records; the stream keeps its watermarks.

        The operators `map`, `flat_map`, `process` and `reduce` discard the event time.
        """
        where = graph.caller()
        check_callable(where, "timed", time, ("record",))
        edges = [replace(edge, time_of=time) for edge in self._outlet.consume()]
        return type(self)(self.pipeline, self._outlet.changed(edges, where, "timed"))

    def side(self, tag: str) -> Stream[Any]:
        """Return a side output: "late" of a window or join, or any tag that is passed to `ctx.aside(tag, record)`.

        The main output of the operator remains readable: `pipeline.stream(name)` returns it.
        """
        return Stream(self.pipeline, self._outlet.side(graph.caller(), tag))

    @overload
    def window(
        self: HasKey[K],
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
        self: HasKey[K],
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

    def window(
        self,
        name: str,
        assigner: Assigned | float,
        contents: Aggregate[T, Any] | Callable[..., Any],
        parallelism: int | None = None,
        *,
        trigger: Trigger | None = None,
        lateness_s: float = 0.0,
        delivery: str = "arrival",
    ) -> Stream[Any]:
        """Emit the result of each window, per key after `key_by` and otherwise per task.

        The result is `(key, value, start, end)` for an aggregate; otherwise it is the records that a function of `(key,
        records, window)` returns.

        Logs with `Tumbling` or `Sliding` and `clock="processing"`, or a number: `clock`, `timer`, `window`: 14 bytes
        per window or firing, and task.
        Logs with `Session` and `clock="processing"`, or `every_s(s, clock="processing")`: `clock`, `timer`: 2 to 5
        bytes per event, and per closing or firing.
        State: open windows.

        `start` and `end` are in seconds; the end is exclusive. For count and global windows, both are record numbers
        within the key.

        Args:
            assigner: Tumbling, Sliding, Session, CountWindow or Global; an object with the methods of
                `operators.kinds.windows.assigners.Assigner`; or a number of seconds for tumbling wall-clock windows.
                For vectors, pass a number of seconds; `contents(batch, window)` is then called once per window for all
                keys of a task and returns a batch.
            trigger: when to emit a window in addition to its end; not available for Session, CountWindow and wall-clock
                windows.
            lateness_s: how long to keep a window after its end. If a record arrives within this time, the window is
                emitted again; a later record goes to `.side("late")`.
            delivery: as for `process`.
        """
        where = graph.caller()
        vectors = self._outlet.vectors
        options = window_options(where, name, assigner, contents, vectors, trigger, lateness_s, delivery)
        return self._feed(where, name, "window", contents, parallelism, **options)

    def map_batches(self, name: str, fn: Callable[[Any], Any]) -> Stream[Any]:
        """Replace each batch of vectors with `fn(batch)`: a pyarrow RecordBatch, a Table, a dict of columns, or None.

        The number of rows per batch varies between runs, but a replay uses the same batches as the run that it replays.
        """
        return self._apply("map_batches", name, fn, "batch")

    def to_rows(self, name: str) -> Stream[Any]:
        """Convert vectors to rows; each row is a dict."""
        return self._feed(graph.caller(), name, "to_rows", None)

    def to_vectors(self, name: str, schema: Any) -> Stream[Any]:
        """Convert rows to vectors; each row is a dict with the columns of the schema, or a tuple of the column values.

        Args:
            schema: `{"key": "int64", "text": "string", …}` in column order, or a `pyarrow.Schema`.
        """
        where = graph.caller()
        require_arrow(f"{where}: to_vectors {name!r}")
        from operators.kinds.vectors.vector_stages import schema_of

        try:
            return self._feed(where, name, "to_vectors", schema_of(schema))
        except (TypeError, ValueError) as problem:
            raise PipelineError(f"{where}: schema of to_vectors {name!r}: {problem}") from None

    def sink(self, name: str, sink: Sink, parallelism: int = 1, host: str | None = None) -> Pipeline:
        """Write the records of this stream to a sink.

        State: the position, in the store of the sink.

        Args:
            host: the only host for the sink's tasks in a multi-host job, for a sink that keeps its rows on one machine.
        """
        where = graph.caller()
        check_sink(where, name, sink, of_table=False)
        self._outlet.feed(where, name, "sink", sink, parallelism)
        return self.pipeline.place(name, host) if host is not None else self.pipeline

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report methods that a plain stream lacks

        def __getattr__(self, name: str) -> Any:
            """Return the method of `KeyedStream` with this name; its own checks refuse this stream and name the fix."""
            method = getattr(KeyedStream, name, None)
            return MethodType(method, self) if isfunction(method) else super().__getattribute__(name)


class KeyedStream(Stream[T], Generic[K, T]):
    """A stream after `key_by`: its operators keep state per key, and only records with the same key affect each other.

    The operators of `Stream` are available as well. Place operators that keep no state, such as `map`, before `key_by`.
    """

    _key: K

    @overload
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

    def reduce(
        self,
        name: str,
        fn: Callable[[Any, T], Any],
        initial: Any = NO_INITIAL,
        parallelism: int | None = None,
        delivery: str = "arrival",
    ) -> Stream[Any]:
        """Emit `(key, accumulated)` for each record after `key_by`, where accumulated is `fn(accumulated, record)`.

        State: the accumulated value per key.

        The accumulated value of a key starts as a copy of `initial`, or as `initial()` if `initial` is callable (for
        example `initial=list`). Without `initial`, it starts as the first record of the key. `delivery` is as for
        `process`.
        """
        where = graph.caller()
        check_callable(where, f"reduce {name!r}", fn, ("accumulated", "record"))
        check_initial(where, f"initial of reduce {name!r}", initial)
        options = delivery_option(where, f"reduce {name!r}", delivery)
        return self._feed(where, name, "reduce", fn, parallelism, initial=initial, **options)

    def count(self, name: str, parallelism: int | None = None, delivery: str = "arrival") -> Stream[tuple[K, int]]:
        """Emit `(key, n)` for each record after `key_by`, where n is the number of records so far with that key.

        State: n per key.

        `delivery` is as for `process`.
        """
        where = graph.caller()
        options = delivery_option(where, f"count {name!r}", delivery)
        return self._feed(where, name, "count", None, parallelism, **options)

    def sum(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """Emit, for each row of vectors after `key_by`, the row's key and the running `sum` of a column."""
        return self._fold("sum", name, column, parallelism)

    def min(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """Emit the smallest value so far; the arguments and output are as for `sum`."""
        return self._fold("min", name, column, parallelism)

    def max(self, name: str, column: str, parallelism: int | None = None) -> Stream[Any]:
        """Emit the largest value so far; the arguments and output are as for `sum`."""
        return self._fold("max", name, column, parallelism)

    def _fold(self, kind: str, name: str, column: str, parallelism: int | None) -> Stream[Any]:
        where = graph.caller()
        if not isinstance(column, str):
            raise PipelineError(f"{where}: {kind} {name!r} was given {kind_of(column)}; pass the name of a column")
        return self._feed(where, name, kind, column, parallelism)

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["inner"] = "inner",
        fn: None = None,
        parallelism: int | None = None,
        grace_s: float = 0.0,
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["inner"] = "inner",
        *,
        fn: Callable[[T, U], R],
        parallelism: int | None = None,
        grace_s: float = 0.0,
    ) -> Stream[R]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["left"],
        fn: Callable[[T, U | None], R],
        parallelism: int | None = None,
        grace_s: float = 0.0,
    ) -> Stream[R]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["right"],
        fn: Callable[[T | None, U], R],
        parallelism: int | None = None,
        grace_s: float = 0.0,
    ) -> Stream[R]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["outer"],
        fn: Callable[[T | None, U | None], R],
        parallelism: int | None = None,
        grace_s: float = 0.0,
    ) -> Stream[R]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K, U],
        within: tuple[float, float],
        how: Literal["left", "right", "outer"],
        fn: None = None,
        parallelism: int | None = None,
        grace_s: float = 0.0,
    ) -> Stream[tuple[T | None, U | None]]: ...

    def join(
        self,
        name: str,
        other: Stream[Any],
        within: tuple[float, float] | None = None,
        how: str = "inner",
        fn: Callable[[Any, Any], Any] | None = None,
        parallelism: int | None = None,
        grace_s: float = 0.0,
    ) -> Stream[Any]:
        """Join records of this stream (left) and another (right) that have equal keys and nearby event times.

        State: records that may still be joined.

        Each pair is emitted once, when its later record is delivered. Late records go to `.side("late")`.

        Args:
            within: (before_s, after_s): the right record's time must be between `before_s` and `after_s` seconds after
                the left record's time; (-5, 60) means from 5 s before the left record to 60 s after it.
            how: "inner": a record without a partner has no result; "left": a left record without a partner results in
                `fn(left, None)` once the watermark shows that no partner will arrive; "right" and "outer" likewise.
            fn: `fn(left, right)` returns a record; without `fn`, the result is `(left, right)`, whose event time is the
                later of the two event times.
            grace_s: how far a record may lag behind the watermark and still be joined. Records are kept that much
                longer, and results without a partner come that much later.
        """
        where = graph.caller()
        what = f"join {name!r}"
        right = self._other(where, what, other, "use a stream, or use join_table")
        bounds, grace_ns = joining.within_ns(where, what, within), seconds(where, f"{what} has grace_s", grace_s, 0)
        output = joining.join_streams(
            where, name, "join", self._outlet, right, fn, how, parallelism, within_ns=bounds, grace_ns=grace_ns
        )
        return Stream(self.pipeline, output)

    @overload
    def window_join(
        self,
        name: str,
        other: KeyedStream[K, U],
        assigner: Tumbling | Sliding,
        how: Literal["inner"] = "inner",
        fn: None = None,
        parallelism: int | None = None,
        grace_s: float = 0.0,
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
        grace_s: float = 0.0,
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
        grace_s: float = 0.0,
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
        grace_s: float = 0.0,
    ) -> Stream[tuple[T | None, U | None]]: ...

    def window_join(
        self,
        name: str,
        other: Stream[Any],
        assigner: Tumbling | Sliding,
        how: str = "inner",
        fn: Callable[[Any, Any], Any] | None = None,
        parallelism: int | None = None,
        grace_s: float = 0.0,
    ) -> Stream[Any]:
        """Join records of this stream (left) and another (right) that have equal keys and share an event-time window.

        State: both sides of open windows.

        The pairs are emitted when the watermark reaches the end of the window. A record goes to `.side("late")` if all
        its windows have ended.

        Args:
            how: "left": if a window contains no right record, each of its left records results in `fn(left, None)`;
                "right" and "outer" likewise.
            fn: as in `join`.
            grace_s: how far a record may lag behind the watermark and still be joined. Pairs of a window are emitted
                that much later.
        """
        where = graph.caller()
        what = f"window_join {name!r}"
        check_event_windows(where, what, assigner)
        right = self._other(where, what, other, "use a stream, or use join_table")
        grace_ns = seconds(where, f"{what} has grace_s", grace_s, 0)
        output = joining.join_streams(
            where, name, "window_join", self._outlet, right, fn, how, parallelism, assigner=assigner, grace_ns=grace_ns
        )
        return Stream(self.pipeline, output)

    @overload
    def join_table(
        self,
        name: str,
        table: Table[K, U],
        fn: None = None,
        how: Literal["inner"] = "inner",
        wait: bool = False,
        parallelism: int | None = None,
        as_of: bool = False,
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
        as_of: bool = False,
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
        as_of: bool = False,
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
        as_of: bool = False,
    ) -> Stream[tuple[T, U | None]]: ...

    def join_table(
        self,
        name: str,
        table: Table[Any, Any],
        fn: Callable[[Any, Any], Any] | None = None,
        how: str = "inner",
        wait: bool = False,
        parallelism: int | None = None,
        as_of: bool = False,
    ) -> Stream[Any]:
        """Join each record with the row that the table contains for its key when the record is delivered.

        State: rows; records that wait; versions with `as_of`.

        With `as_of`, each record is joined with the row that was valid at the record's event time, which is the row of
        the latest record in the table's stream that is not later. Late records then go to `.side("late")`; a late row
        is valid from the current watermark on.

        Args:
            fn: `fn(record, row)` returns a record; without `fn`, the result is `(record, row)` with the event time of
                the record.
            how: "inner": a record without a row has no result; "left": its result is `fn(record, None)`.
            wait: hold each record until the inputs of the table have ended. If the event times of records and rows are
                known and both streams have watermarks, `wait` is equivalent to `as_of`.
            as_of: join by event time; the table must be `stream.key_by(fn).table(name)`, optionally followed by
                `filter` and `map_values`, and both streams must have watermarks.
        """
        where = graph.caller()
        what = f"join_table {name!r}"
        if not isinstance(table, Table):
            raise PipelineError(
                f"{where}: {what} was given {kind_of(table)}; pass a table: stream.key_by(fn).table(name)"
            )
        if table.pipeline is not self.pipeline:
            raise PipelineError(f"{where}: {what} was given a table of another pipeline")
        output = joining.join_table(where, name, self._outlet, table._outlet, fn, how, wait, parallelism, as_of)
        return Stream(self.pipeline, output)

    def table(self, name: str, parallelism: int | None = None) -> Table[K, T]:
        """Return a table of the latest record for each key; a record that is None deletes the row.

        State: the value per key.
        """
        return Table(self.pipeline, self._outlet.feed(graph.caller(), name, "table", None, parallelism))

    def aggregate_table(self, name: str, aggregate: Aggregate[T, Any], parallelism: int | None = None) -> Table[K, Any]:
        """Return a table with an aggregate of all records so far for each key.

        State: the aggregate per key.
        """
        where = graph.caller()
        known = checked_aggregate(where, f"aggregate_table {name!r}", aggregate)
        return Table(self.pipeline, self._outlet.feed(where, name, "aggregate_table", known, parallelism))

    def window_table(
        self,
        name: str,
        assigner: Tumbling | Sliding | Session,
        aggregate: Aggregate[T, Any],
        grace_s: float = 0.0,
        parallelism: int | None = None,
    ) -> Table[tuple[K, float, float], Any]:
        """Return the aggregates per key and event-time window, as rows keyed by `(key, start, end)`, in seconds.

        State: open windows.

        Each record that changes a row immediately emits a revision; one that extends or joins sessions deletes their
        rows and adds a row. This method needs event time, but no watermarks.

        Args:
            assigner: `Tumbling`, `Sliding` or `Session` event-time windows; sessions need an aggregate with `merge`.
            grace_s: how far a record of an ended window may lag behind stream time. A record that lags further is
                counted as late and goes to `.side("late")`. Stream time is the watermark or, without watermarks, the
                largest event time that the task has seen so far.
        """
        where = graph.caller()
        what = f"window_table {name!r}"
        check_event_windows(where, what, assigner, "; use window", sessions=True)
        known = checked_aggregate(where, what, aggregate)
        check_merges(where, what, assigner, known)
        grace_ns = seconds(where, f"{what} has grace_s", grace_s, 0)
        output = self._outlet.feed(
            where, name, "window_table", known, parallelism, time_of=end_of_window, assigner=assigner, grace_ns=grace_ns
        )
        return Table(self.pipeline, output, windowed=True)


class Table(Generic[K, V]):
    """Keyed rows that change as records arrive; several operators may read them.

    The results of functions of `(key, value)` must depend only on these arguments, because an old value is derived
    again when it is retracted. An upgrade may replace the functions; results of the old functions are retracted
    unchanged.

    Attributes:
        pipeline: the pipeline to which the table belongs.
        name: the name of the operator that produces the table.
        windowed: whether the keys are (key, start, end) of windows.
    """

    def __init__(self, pipeline: Pipeline, outlet: Outlet, windowed: bool = False) -> None:
        self.pipeline = pipeline
        self.name = outlet.edges[0].source.name
        self.windowed = windowed
        self._outlet = outlet
        for edge in outlet.edges:
            edge.source.table = True

    def filter(self, name: str, fn: Callable[[K, V], Any]) -> Table[K, V]:
        """Keep only rows for which `fn(key, value)` is true."""
        return self._derived(graph.caller(), name, "table_filter", "filter", fn)

    def map_values(self, name: str, fn: Callable[[K, V], W]) -> Table[K, W]:
        """Replace each value with `fn(key, value)`; a result of None removes the row."""
        return self._derived(graph.caller(), name, "map_values", "map_values", fn)

    def group_by(self, name: str, fn: Callable[[K, V], W]) -> Grouped[W, V]:
        """Group rows with equal `fn(key, value)`; call `.aggregate(name, aggregate)` on the result."""
        where = graph.caller()
        check_callable(where, f"group_by {name!r}", fn, _ROW)
        return Grouped(self.pipeline, self._outlet.feed(where, name, "group_by", fn, readers=[]))

    def join(
        self,
        name: str,
        other: Table[K, W],
        fn: Callable[[Any, Any], Any] | None = None,
        how: str = "inner",
        parallelism: int | None = None,
    ) -> Table[K, Any]:
        """Join two tables: the value of a key is `fn(left, right)`, where a missing side is None.

        State: the rows of both sides.

        Args:
            how: "inner": only keys that both tables contain; "left", "right": all keys of that table; "outer": all keys
                of either table.
            fn: returns the value of a key; without `fn`, the value is `(left, right)`.
        """
        where = graph.caller()
        if not isinstance(other, Table):
            raise PipelineError(f"{where}: join {name!r} of a table was given {kind_of(other)}; pass a table")
        if other.pipeline is not self.pipeline:
            raise PipelineError(f"{where}: join {name!r} was given a table of another pipeline")
        windowed = self.windowed and other.windowed
        output = joining.join_of_tables(where, name, self._outlet, other._outlet, fn, how, parallelism, windowed)
        return Table(self.pipeline, output, windowed)

    def suppress(
        self,
        name: str,
        until: str | None = None,
        after_s: float | None = None,
        keys_max: int | None = None,
        parallelism: int | None = None,
        clock: Clock = "event",
    ) -> Table[K, V]:
        """Merge successive revisions of a key into one, from the first old value to the last new value.

        State: revisions that wait.

        Which revisions are merged depends on when watermarks or records arrive, but their combined effect does not.

        Args:
            until: "closed": emit a revision when the window of its key is closed, so that the revision is final. A
                window is closed when its end has been passed by the watermark that the windowed table emits, which is
                the input watermark minus the grace period.
            after_s: alternatively, emit a revision when time has advanced by this much since the first revision of the
                key was held back.
            keys_max: if the revisions of more keys than this are held back, immediately emit those that are due first.
            clock: the clock of `after_s`: "event", or "processing" for the wall clock, which needs no event time. A
                watermark is then passed on when the revisions that arrived before it have been emitted.
        """
        where = graph.caller()
        options = suppress_options(where, name, self.name, self.windowed, until, after_s, keys_max, clock)
        edges = by_key(self._outlet, LEFT)
        output = self._outlet.feed(where, name, "suppress", None, parallelism, edges, **options)
        return Table(self.pipeline, output, self.windowed)

    def revisions(self, name: str) -> Stream[tuple[K, V | None, V | None]]:
        """Return the revisions `(key, old, new)` as a stream; a value of None means that there is no row."""
        return Stream(self.pipeline, self._outlet.feed(graph.caller(), name, "revisions", None))

    def to_stream(self, name: str, fn: Callable[[K, V | None], W] | None = None) -> Stream[W]:
        """Return a stream of `fn(key, value)`, or `(key, value)`, for each new value; None means a deleted row."""
        where = graph.caller()
        if fn is not None:
            check_callable(where, f"to_stream {name!r}", fn, _ROW)
        return Stream(self.pipeline, self._outlet.feed(where, name, "to_stream", fn or pair))

    def side(self, tag: str) -> Stream[Any]:
        """Return a side output of the table's operator, such as "late" for a windowed table."""
        return Stream(self.pipeline, self._outlet.side(graph.caller(), tag))

    def sink(self, name: str, sink: Sink, parallelism: int = 1, host: str | None = None) -> Pipeline:
        """Keep the rows of this table in the store of a sink with `upsert=True`: one row per key, for others to read.

        State: the position, and what rows were before they changed, in the store of the sink.

        Args:
            host: as for `Stream.sink`.
        """
        where = graph.caller()
        check_sink(where, name, sink, of_table=True)
        self._outlet.feed(where, name, "sink", sink, parallelism, by_key(self._outlet, LEFT), of_table=True)
        return self.pipeline.place(name, host) if host is not None else self.pipeline

    def _derived(self, where: str, name: str, kind: str, method: str, fn: Callable[..., Any]) -> Table[Any, Any]:
        check_callable(where, f"{method} {name!r}", fn, _ROW)
        return Table(self.pipeline, self._outlet.feed(where, name, kind, fn), self.windowed)


class Grouped(Generic[K, V]):
    """Table rows grouped under other keys; `.aggregate` returns a table with one row per group."""

    def __init__(self, pipeline: Pipeline, outlet: Outlet) -> None:
        self.pipeline = pipeline
        self._outlet = outlet

    def aggregate(self, name: str, aggregate: Aggregate[V, Any], parallelism: int | None = None) -> Table[K, Any]:
        """Aggregate each group into a row by adding new values and subtracting old ones; an empty group has no row.

        State: the aggregate and the size of each group.
        """
        where = graph.caller()
        retracting = checked_retracting(where, f"aggregate {name!r}", aggregate)
        edges = by_key(self._outlet, LEFT)
        output = self._outlet.feed(where, name, "aggregate", retracting, parallelism, edges)
        edges[0].source.options["readers"].append(name)
        return Table(self.pipeline, output)
