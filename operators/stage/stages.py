"""The stages of a chain, implemented as loops that process a list of records and return a list of records.

Only the user's function runs once per record. Nothing tracks the current record: a list iterator knows how many records
remain, so the record on which a function raised an exception can be identified afterwards (`last_index`). An `Agenda`
collects the entries of all stages of a task that are due by the wall clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import compress, islice
from operator import length_hint, truth
from types import CoroutineType, GeneratorType
from typing import Any

from causal.errors import CausalError, PipelineError
from causal.ports import Request, Services
from operators.functions import PLAIN
from operators.graph import Node
from operators.records.ownership import copy_containers, kept
from operators.records.reuse import Reuse
from operators.stage.calls import CLOSED
from operators.stage.failures import NO_KEY
from operators.stage.scope import Scope
from operators.stage.watermark_merge import Origins
from operators.state.keyed_tables import FragmentJob, KeyedTable

_NOT_RECORDS = (str, bytes, dict)
_RECORDS_OF_A_FRAME = {"to_dicts": "to_dicts()", "to_pylist": "to_pylist()", "to_dict": "to_dict('records')"}
"""The call that converts a data frame to rows, keyed by the method that identifies Polars, Arrow and pandas frames."""

Due = tuple[int, int, int, Any]
"""A due entry, sorted by its items: (time in ns, 0 for a timer or else the stage's rank, sequence or ordinal, data)."""


class Ended(RuntimeError):
    """Raised in place of a StopIteration from user code, which must not silently end a batch."""


def last_index(records: Sequence[Any], rows: Iterator[Any]) -> int:
    """Return the index of the record that `rows`, an iterator over the list `records`, returned last."""
    return len(records) - length_hint(rows) - 1


def apply(
    fn: Callable[[Any], Any],
    records: Sequence[Any],
    failed: Callable[[int, Exception], None],
    reuse: Reuse | None = None,
) -> tuple[list[Any], list[int]]:
    """Return the results of `fn`, and the indices of records on which it raised; call `failed` for the latter.

    The function `failed` may itself raise an exception.

    Args:
        reuse: remembers the first result before `fn` is called again.
    """
    results: list[Any] = []
    lost: list[int] = []
    rows = iter(records)
    parts = ((1, islice(rows, 1)), (len(records), rows)) if reuse is not None and records else ((len(records), rows),)
    for end, part in parts:
        while len(results) + len(lost) < end:
            try:
                results.extend(map(fn, part))
                if len(results) + len(lost) == end:
                    break
                # map() treats a StopIteration as its end, so `fn` is called again to raise it here.
                fn(records[last_index(records, rows)])
                raise Ended("StopIteration was raised")
            except CausalError:
                raise
            except Exception as problem:
                index = last_index(records, rows)
                lost.append(index)
                failed(index, problem)
        if reuse is not None and results:
            reuse.keep(results)
            reuse = None
    if results and type(results[0]) is CoroutineType:
        for each in results:
            if type(each) is CoroutineType:
                each.close()  # otherwise Python would warn that it was never awaited
        return apply(
            partial(_refuse, TypeError(f"{results[0].__qualname__} returned a coroutine; {PLAIN}")), records, failed
        )
    return results, lost


def _refuse(problem: Exception, record: Any) -> Any:
    raise problem


def without(records: Sequence[Any], lost: Sequence[int]) -> list[Any]:
    """Return all records except those at the indices `lost`."""
    gone = set(lost)
    return [record for index, record in enumerate(records) if index not in gone]


def check_records(result: Any, operator: str) -> None:
    """Refuse a result that is not an iterable of records; a str, a dict and a data frame are refused as well.

    These three are iterable, but iterating over them does not yield records.

    Raises:
        TypeError: the result is refused; the message contains the remedy.
    """
    if hasattr(result, "columns"):
        rows = next((call for name, call in _RECORDS_OF_A_FRAME.items() if hasattr(result, name)), None)
        if rows is not None:
            kind = type(result).__name__
            raise TypeError(
                f"{operator!r} returned a {kind}, which iterates over its columns, but must return an iterable "
                f"of records; use frame.{rows}"
            )
    if isinstance(result, _NOT_RECORDS) or not (hasattr(result, "__iter__") or hasattr(result, "__getitem__")):
        kind = type(result).__name__
        raise TypeError(
            f"{operator!r} returned a {kind}, but must return an iterable of records; yield the {kind}, or return "
            "it in a list"
        )


class Stage:
    """The part of one operator in one task.

    Attributes:
        ordinal: the stage's place in the chain.
        parent: the stage whose output is this stage's input; None for the first stage.
        traced: whether a fused stage follows, so that `source_of` may be called.
        traces: whether `source_of` is known; false for stages that process whole batches.
        takes_rows: whether `run` accepts `Rows` instead of a list when it receives keys.
        sides: whether the stage distinguishes its inputs; if so, `run_side` is called instead of `run`.
        makes_marks: whether the stage generates its own watermarks; if so, `pieces` returns its output.
        asks: whether the stage calls the outside world.
        withholds: whether the stage holds watermarks back that it may pass on after one of its entries has fired.
        renews: whether firing an entry may make further entries due in the same event; if so, `due` returns each entry
            only once.
        rank: orders entries with equal times after timers: 1 for windows, 2 for idleness checks.
        replicated: the names of the stage's tables of which every task keeps the same copy.
        moves: whether state without a key may move to any task of the operator when the parallelism changes.
        counts: reason -> number of elements that the stage dropped, held back or revised; the chain checkpoints it.
        aside: tag -> records for that side output; the chain removes them.
        keys: the keys of the most recent output records, if the next operator works by key.
        side: the input of the next operator that receives the most recent output.
        refused: the indices of the most recent output records that cannot be carried, so later stages do not receive
            them.
        leaves: whether the stage's output leaves the task while records may be set aside, so it must be possible to
            carry it.
        tags_leaving: the tags of the side outputs for which the same is true.
        shown_as: the operator under whose name the stage is counted and displayed.
    """

    traces = True
    takes_rows = False
    sides = False
    makes_marks = False
    asks = False
    withholds = False
    moves = False
    renews = False
    rank = 1
    replicated: tuple[str, ...] = ()
    refused: Sequence[int] = ()
    leaves = False
    tags_leaving: frozenset[str] = frozenset()

    def __init__(self, name: str, scope: Scope) -> None:
        self.name = name
        self.ordinal = scope.ordinal
        self.kind = ""
        """The builder method that created the operator; state is never loaded into another kind of operator."""
        self.meaning = ""
        """The meaning of the stage's state beyond its kind; state with another meaning is not loaded either."""
        self.before: Sequence[Mapping[str, Sequence[str]]] = ()
        """The operators and outputs that precede only one input, with their sources, for each input.

        Sources that also precede another input are left out.
        """
        self.keyed = True
        """Whether the stage's state, if there is any, is partitioned by the record key."""
        self.failures = scope.failures
        self.parent: Stage | None = None
        self.traced = False
        self.counts: dict[str, int] = {}
        self.aside: dict[str, list[Any]] = {}
        self.keys: list[Any] | None = None
        self.side = 0
        self.shown_as = name

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        """Process a batch and return a list or `Rows`; `keys` is None without a preceding `key_by`."""
        return records

    def run_side(self, side: int, records: list[Any], keys: list[Any] | None) -> Any:
        """Process a batch from one input, for operators that distinguish their inputs."""
        return self.run(records, keys)

    def source_of(self, index: int) -> int:
        """Return the index of the input record that led to output `index` of the most recent `run`."""
        return index

    def index_of(self, index: int) -> int:
        """Convert `index`, which skips refused outputs, to an index among all outputs of the most recent `run`."""
        for place in self.refused:
            index += place <= index
        return index

    def root_index(self, index: int) -> int | None:
        """Return the index of the delivered record that led to input record `index`, or None if it is unknown."""
        if not self.failures.delivers:
            return None
        stage: Stage = self
        while stage.parent is not None:
            stage = stage.parent
            if not stage.traces:
                return None
            index = stage.source_of(stage.index_of(index))
        return index

    def failed(self, index: int, record: Any, problem: Exception, key: Any = NO_KEY) -> None:
        """Handle an exception that user code raised on input record `index`; see `Failures.failed`."""
        self.failures.failed(self.name, key, self.root_index(index), record, problem)

    def own_row(self, key: Any, row: Any) -> Any:
        """Return a table row that user code returned, copied so that nothing else shares its containers.

        Raises:
            NotCarried, ValueError: the row leaves the task but cannot be carried, and records may be set aside.
        """
        return copy_containers(self.failures.carried_row(key, row) if self.leaves else row)

    def _check_reuse(self, reuse: Reuse, outputs: list[Any], records: list[Any]) -> None:
        """Stop the job if a container or a buffer was refilled for a later record."""
        try:
            reuse.check(outputs, self.name)
        except TypeError as problem:
            self.failures.stop(self.name, records, problem)

    def count(self, reason: str, more: int) -> None:
        """Count `more` additional elements that were dropped, held back or revised."""
        if more:
            self.counts[reason] = self.counts.get(reason, 0) + more

    # Additional methods for stages that use time or state.

    def open(self) -> None:
        """Prepare the stage; this is called once, before the first event."""

    def begin(self, services: Services) -> None:
        """Begin an event."""

    def end(self) -> None:
        """End the event."""

    def next_ns(self) -> int | None:
        """Return the time at which the stage's earliest timer or window is due, or None if there is none."""
        return None

    def due(self, due_ns: int) -> list[Due]:
        """Return the due entries; by default, one entry for the time of `next_ns` with `due_ns` as its data."""
        at_ns = self.next_ns()
        return [] if at_ns is None or at_ns > due_ns else [(at_ns, self.rank, self.ordinal, due_ns)]

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        """Fire entries that `due` returned, in the given order, and return the resulting records."""
        return []

    def advance(self, mark_ns: int) -> Any:
        """Advance the watermark, which is END_NS at the end of the input, and return the resulting records."""
        return []

    def passes(self, mark_ns: int) -> int | None:
        """Return the watermark to pass on when `mark_ns` is received; it is lower if older records may still follow."""
        return mark_ns

    def pieces(self) -> Iterable[tuple[Any, int | None]]:
        """Remove and return the output since the last call, as pairs of records and the watermark after them.

        This is called only on a stage that generates watermarks; END_NS is not among these watermarks.
        """
        return []

    def ended(self, input: int) -> None:
        """Record that an input channel has ended while others remain open.

        This is called only on stages that generate watermarks.
        """

    def ended_before(self, input: int) -> None:
        """Record that an input channel ended before a change of the job graph, possibly before the stage existed.

        This is called only on stages that generate watermarks, after their state has been loaded.
        """

    def finish(self) -> list[Any]:
        """End the input after END_NS has been received, and return the last records."""
        return []

    # Methods for stages that call the outside world.

    @property
    def full(self) -> bool:
        """Whether so many responses are outstanding that the stage should not receive more records."""
        return False

    def asked(self) -> list[Request]:
        """Return the requests made since the last call of this method."""
        return []

    def requested(self) -> list[str]:
        """Return the keys of the requests made in this event, in request order."""
        return []

    def outstanding(self) -> list[Request]:
        """Return the requests without a response, in the order in which they were made."""
        return []

    def answer(self, number: int, body: bytes) -> Any:
        """Process the response to request `number`, and return the records that it completes."""
        return []

    def rests(self) -> bool:
        """Return whether the input has become idle and what the stage waited for has just come to an end."""
        return False

    # State.

    def inspect(self, key: Any) -> dict[str, Any]:
        """Return the state of a key, by table name."""
        shown = {table.name: table.inspect(key) for table in self.tables()}
        return {name: value for name, value in shown.items() if value is not None}

    def windows(self, key: Any) -> list[tuple[float, float | None, Any]] | None:
        """Return (start, end, content) of each open window of a key, in seconds; None if the stage has no windows.

        The end is None if the window never ends.
        """
        return None

    def kept_keys(self) -> Iterable[Any]:
        """Return the keys for which `inspect` returns state; a key may occur more than once."""
        return (key for table in self.tables() for key in table.kept_keys())

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge the headers of all tasks of the operator, for a change of its parallelism.

        Raises:
            PipelineError: the headers differ, which means that the operator keeps state per task.
        """
        if any(header != headers[0] for header in headers):
            raise PipelineError(
                f"operator {self.name!r} keeps state per task, so its parallelism cannot change; keep the "
                "parallelism, or give the operator a new name and pass --allow-dropped-state"
            )
        return headers[0] if headers else {}

    def rewired(self, headers: Sequence[dict[str, Any]], origins: Origins) -> Sequence[dict[str, Any]]:
        """Return the headers of tasks at a savepoint, with the data per input converted to the inputs of this task.

        Args:
            headers: the headers of those tasks; all data that is not per input remains unchanged.
        """
        return headers

    def changed(self, epoch: int) -> None:
        """Record that the job graph was changed at the savepoint of `epoch`, whose state has been loaded."""

    def tables(self) -> list[KeyedTable]:
        """Return the stage's keyed tables, in a fixed order."""
        return []

    def header(self) -> dict[str, Any]:
        """Return the few values of the stage's state that no table contains."""
        return {}

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        """Freeze the stage's state; return its header and the jobs that encode the rest."""
        return self.header(), [table.snapshot(full) for table in self.tables()]

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        """Restore the state that `header` returned; if `full` is true, first remove all other state."""
        if full:
            for table in self.tables():
                table.clear()

    def loaders(self) -> dict[str, Callable[[bytes], None]]:
        """Return the functions that load a fragment, by table name."""
        return {table.name: table.load for table in self.tables()}

    def merge_rules(self) -> dict[str, str] | None:
        """Return how snapshots of each table are merged (`operators.state.merge_rules`); None if they cannot be."""
        rules = {table.name: table.merge_rule for table in self.tables()}
        return rules if all(rules.values()) and rules.keys() == self.loaders().keys() else None

    def restored(self) -> None:
        """Record that all fragments of a snapshot have been loaded."""


class OneToOneStage(Stage):
    """The base class of stages that emit one record per input record, except for records on which user code raises."""

    _lost: Sequence[int] = ()
    """The indices of the records of the most recent batch on which user code raised, in ascending order."""

    def source_of(self, index: int) -> int:
        for lost in self._lost:
            index += lost <= index
        return index


class SelectingStage(Stage):
    """The base class of stages that emit one record for each of some of their input records."""

    _kept: Sequence[int] = ()
    """The indices of those input records in the most recent batch, in ascending order."""

    def source_of(self, index: int) -> int:
        return self._kept[index]


class ServedStage(Stage):
    """The base class of stages that use the services of the current event, for example to read the time."""

    _services: Services = CLOSED

    def begin(self, services: Services) -> None:
        super().begin(services)
        self._services = services

    def end(self) -> None:
        self._services = CLOSED


class MapStage(OneToOneStage):
    """The stage of `map(name, fn)`."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._fn: Callable[[Any], Any] = node.subject
        self._reuse = Reuse()

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        results, self._lost = apply(
            self._fn, records, lambda index, problem: self.failed(index, records[index], problem), self._reuse
        )
        self._check_reuse(self._reuse, results, records)
        return results


class FilterStage(SelectingStage):
    """The stage of `filter(name, fn)`."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._fn: Callable[[Any], Any] = node.subject

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        def failed(index: int, problem: Exception) -> None:
            self.failed(index, records[index], problem)

        answers, lost = apply(self._fn, records, failed)
        places: Sequence[int] = without(range(len(records)), lost) if lost else range(len(records))
        flags, vague = apply(truth, answers, lambda index, problem: failed(places[index], problem))
        if vague:
            places = without(places, vague)
        if lost or vague or self.traced:
            self._kept = list(compress(places, flags))
            return [records[index] for index in self._kept]
        return list(compress(records, flags))


class FlatMapStage(Stage):
    """The stage of `flat_map(name, fn)`, in which `fn` returns an iterable of records, or None for no records."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node.name, scope)
        self._fn: Callable[[Any], Iterable[Any] | None] = node.subject
        self._marks: list[int] = []
        self._reuse = Reuse()

    def run(self, records: list[Any], keys: list[Any] | None) -> list[Any]:
        fn, out, marks = self._fn, list[Any](), list[int]()
        first, rows = True, iter(records)
        for some in (islice(rows, 1), rows):
            for record in some:
                try:
                    result = fn(record)
                    if type(result) is list:
                        out += result
                    elif result is not None:
                        if type(result) is GeneratorType:
                            out.extend(map(kept, result))
                        else:
                            check_records(result, self.name)
                            out.extend(result)
                except CausalError:
                    raise
                except Exception as problem:
                    del out[marks[-1] if marks else 0 :]  # remove the records that `fn` yielded before it raised
                    self.failed(last_index(records, rows), record, problem)
                marks.append(len(out))
            if first and out:
                self._reuse.keep(out)
                first = False
        self._marks = marks
        self._check_reuse(self._reuse, out, records)
        return out

    def source_of(self, index: int) -> int:
        return bisect_right(self._marks, index)


class Agenda:
    """All entries that are due in one event, in firing order; an agenda is true while it is not empty."""

    def __init__(self, stages: Sequence[Stage], due_ns: int) -> None:
        self._stages = stages
        self._due_ns = due_ns
        self._heap: list[tuple[int, int, int, int, int, Due]] = []
        self._number = 0
        for place in range(len(stages)):
            self.look(place)

    def look(self, place: int) -> None:
        """Add the due entries of the stage at `place`."""
        for entry in self._stages[place].due(self._due_ns):
            # Entries are numbered, so their last items are never compared.
            heappush(self._heap, (*entry[:3], self._number, place, entry))
            self._number += 1

    def __bool__(self) -> bool:
        return bool(self._heap)

    def taken(self) -> tuple[int, list[Due]]:
        """Remove and return (place of a stage, entries of that stage that precede the entries of all other stages)."""
        place, entries = self._heap[0][4], list[Due]()
        while self._heap and self._heap[0][4] == place:
            entries.append(heappop(self._heap)[5])
        return place, entries
