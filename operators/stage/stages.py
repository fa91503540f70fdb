"""The operators of a chain as batch loops: a list of records in, a list of records out.

Only the user's function runs per record. Nothing tracks which record is under way: a list iterator knows how many
remain, so the record on which a function raised is found afterwards (`last_index`). An `Agenda` has the due times by
the wall clock of all stages of a task.
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
"""The call that gives the rows of a frame, by the method that frames of Polars, Arrow and pandas have."""

Due = tuple[int, int, int, Any]
"""An entry (time in ns, 0 for a timer and 1 for a window, sequence or ordinal, what the stage needs), in this order."""


class Ended(RuntimeError):
    """An error for StopIteration of user code, which must not end a batch in silence."""


def last_index(records: Sequence[Any], rows: Iterator[Any]) -> int:
    """Return the index of the record that `rows`, an iterator of the list `records`, has given last."""
    return len(records) - length_hint(rows) - 1


def apply(
    fn: Callable[[Any], Any],
    records: Sequence[Any],
    failed: Callable[[int, Exception], None],
    reuse: Reuse | None = None,
) -> tuple[list[Any], list[int]]:
    """Return `fn` of each record, and the indices on which it raised; `failed` is called for these, and may raise.

    Args:
        reuse: it is shown the first result before `fn` is called again.
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
                fn(records[last_index(records, rows)])  # map() treated a StopIteration as the end; here it is raised
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
                each.close()  # so that Python does not warn of it
        return apply(
            partial(_refuse, TypeError(f"{results[0].__qualname__} gave a coroutine; {PLAIN}")), records, failed
        )
    return results, lost


def _refuse(problem: Exception, record: Any) -> Any:
    raise problem


def without(records: Sequence[Any], lost: Sequence[int]) -> list[Any]:
    """Return the records but those at the indices `lost`."""
    gone = set(lost)
    return [record for index, record in enumerate(records) if index not in gone]


def check_records(result: Any, operator: str) -> None:
    """Refuse what is no iterable of records: also a str, a dict or a data frame, which is one of something else.

    Raises:
        TypeError: with the remedy.
    """
    if hasattr(result, "columns"):
        rows = next((call for name, call in _RECORDS_OF_A_FRAME.items() if hasattr(result, name)), None)
        if rows is not None:
            kind = type(result).__name__
            raise TypeError(
                f"{operator!r} gave a {kind}, which is an iterable of its columns, where an iterable of records is "
                f"wanted; use frame.{rows}"
            )
    if isinstance(result, _NOT_RECORDS) or not (hasattr(result, "__iter__") or hasattr(result, "__getitem__")):
        kind = type(result).__name__
        raise TypeError(f"{operator!r} gave a {kind} where an iterable of records is wanted; yield it, or return [it]")


class Stage:
    """The part of one operator in one task.

    Attributes:
        ordinal: its place in the chain.
        parent: the stage whose output is this one's input; None for the first.
        traced: whether a fused stage follows, so that `source_of` may be asked.
        traces: whether `source_of` is known; false where whole batches are processed.
        takes_rows: whether `run` accepts `Rows` instead of a list, when it receives keys.
        sides: whether it distinguishes its inputs: `run_side` is called instead of `run`.
        makes_marks: whether it makes watermarks of its own: `pieces` returns its output.
        asks: whether it calls the outside world.
        renews: whether what fires may make more due in the same event; `due` then returns everything once.
        replicated: its tables of which every task holds the same copy.
        moves: whether its state without a key may go to any of its tasks, when there are more or fewer of them.
        counts: reason -> how many elements it dropped, held back or revised; the chain checkpoints it.
        aside: tag -> records for that side output; the chain takes them away.
        keys: of the records of its last output, where it precedes an operator that works by key.
        side: the input of the next operator for which they are meant.
        refused: the indices of its last output that cannot be carried, and are not among the input of those after it.
        leaves: whether its output leaves the task while records may be set aside, so that it must be carried.
        tags_leaving: the tags whose side output does.
        shown_as: the operator under whose name it is counted and shown.
    """

    traces = True
    takes_rows = False
    sides = False
    makes_marks = False
    asks = False
    moves = False
    renews = False
    replicated: tuple[str, ...] = ()
    refused: Sequence[int] = ()
    leaves = False
    tags_leaving: frozenset[str] = frozenset()

    def __init__(self, name: str, scope: Scope) -> None:
        self.name = name
        self.ordinal = scope.ordinal
        self.kind = ""
        """The builder's method that made it; state is never loaded into another kind of operator."""
        self.meaning = ""
        """The meaning of its state beyond its kind; state that means something else is not loaded either."""
        self.before: Sequence[Mapping[str, Sequence[str]]] = ()
        """Operators and outputs before one of its two inputs only, each with the sources before it that are so, too."""
        self.keyed = True
        """Whether its state is by the key of its records, where it has any."""
        self.failures = scope.failures
        self.parent: Stage | None = None
        self.traced = False
        self.counts: dict[str, int] = {}
        self.aside: dict[str, list[Any]] = {}
        self.keys: list[Any] | None = None
        self.side = 0
        self.shown_as = name

    def run(self, records: list[Any], keys: list[Any] | None) -> Any:
        """Process a batch; returns a list or `Rows`.  `keys` are the records', None without key_by."""
        return records

    def run_side(self, side: int, records: list[Any], keys: list[Any] | None) -> Any:
        """Process a batch of one input, where the operator distinguishes its inputs."""
        return self.run(records, keys)

    def source_of(self, index: int) -> int:
        """Return the index of the input record that output `index` of the last `run` came from."""
        return index

    def index_of(self, index: int) -> int:
        """Return the index of an output among all of the last `run`: those that were refused are not counted in
        `index`.
        """
        for place in self.refused:
            index += place <= index
        return index

    def root_index(self, index: int) -> int | None:
        """Return the index, among the records of the event, of the one that led to this stage's input record
        `index`.
        """
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
        """Handle an exception of user code on input record `index`: see `Failures.failed`."""
        self.failures.failed(self.name, key, self.root_index(index), record, problem)

    def own_row(self, key: Any, row: Any) -> Any:
        """Return a row of a table that user code returned, shared with nothing.

        Raises:
            NotCarried, ValueError: it leaves the task, cannot be carried, and records may be set aside.
        """
        return copy_containers(self.failures.carried_row(key, row) if self.leaves else row)

    def _check_reuse(self, reuse: Reuse, outputs: list[Any], records: list[Any]) -> None:
        """Stop where a container or a buffer was filled again for a later record."""
        try:
            reuse.check(outputs, self.name)
        except TypeError as problem:
            self.failures.stop(self.name, records, problem)

    def count(self, reason: str, more: int) -> None:
        """Count `more` elements that were dropped, held back or revised."""
        if more:
            self.counts[reason] = self.counts.get(reason, 0) + more

    # What stages with time or state have more.

    def open(self) -> None:
        """Prepare, once, before the first event."""

    def begin(self, services: Services) -> None:
        """Begin an event."""

    def end(self) -> None:
        """End the event."""

    def next_ns(self) -> int | None:
        """Return the time at which its earliest timer or window is due."""
        return None

    def due(self, due_ns: int) -> list[Due]:
        """Return the entries that are due."""
        return []

    def fire(self, entries: Sequence[Due]) -> list[Any]:
        """Fire entries that `due` gave, in their order; returns records."""
        return []

    def advance(self, mark_ns: int) -> Any:
        """Raise the watermark, at the end of the input to END_NS; returns the records that this brings."""
        return []

    def passes(self, mark_ns: int) -> int | None:
        """Return the watermark to pass on when the stage has received `mark_ns`: lower where it still owes older
        records.
        """
        return mark_ns

    def pieces(self) -> Iterable[tuple[Any, int | None]]:
        """Remove and return the output since the last call, in order: records, and the watermark after them.

        Only asked of a stage that makes watermarks; END_NS is not among them.
        """
        return []

    def ended(self, input: int) -> None:
        """Record that one input channel has ended and others have not; called for stages that make watermarks only."""

    def ended_before(self, input: int) -> None:
        """Record that one input channel ended before a change of the job's graph, perhaps before the stage was there.

        Called for stages that make watermarks only, after their state was loaded.
        """

    def finish(self) -> list[Any]:
        """End the input, after END_NS was received; returns the last records."""
        return []

    # The outside world, of a stage that asks it.

    @property
    def full(self) -> bool:
        """Whether so many answers are outstanding that no more records should arrive."""
        return False

    def asked(self) -> list[Request]:
        """Return the requests that are new since the last call."""
        return []

    def requested(self) -> list[str]:
        """Return the keys of the requests that this event has made, in their order."""
        return []

    def outstanding(self) -> list[Request]:
        """Return the requests without an answer, in the order of asking."""
        return []

    def answer(self, number: int, body: bytes) -> Any:
        """Process the response to request `number`; returns the records that it completes."""
        return []

    def rests(self) -> bool:
        """Return whether, after a response, that was the last one and the input has been idle meanwhile."""
        return False

    # State.

    def inspect(self, key: Any) -> dict[str, Any]:
        """Return the state of a key, by table."""
        shown = {table.name: table.inspect(key) for table in self.tables()}
        return {name: value for name, value in shown.items() if value is not None}

    def kept_keys(self) -> Iterable[Any]:
        """Return the keys for which `inspect` shows something, each once or more often."""
        return (key for table in self.tables() for key in table.kept_keys())

    def merge_headers(self, headers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Merge the headers of all its tasks, for another parallelism.

        Raises:
            PipelineError: they differ, so it keeps something per task.
        """
        if any(header != headers[0] for header in headers):
            raise PipelineError(
                f"operator {self.name!r} keeps state per task; its parallelism cannot change: keep it, or give the "
                "operator another name, with --allow-dropped-state"
            )
        return headers[0] if headers else {}

    def rewired(self, headers: Sequence[dict[str, Any]], origins: Origins) -> Sequence[dict[str, Any]]:
        """Return the inputs' headers of tasks at a savepoint, converted to the inputs of this task.

        Args:
            headers: theirs; everything else in them is kept.
        """
        return headers

    def changed(self, epoch: int) -> None:
        """Record that the job's graph was changed at the savepoint of that epoch, and its state has been taken over."""

    def tables(self) -> list[KeyedTable]:
        """Return the keyed tables of the stage, in a fixed order."""
        return []

    def header(self) -> dict[str, Any]:
        """Return the few values of its state that are in no table."""
        return {}

    def freeze(self, full: bool) -> tuple[dict[str, Any], list[FragmentJob]]:
        """Freeze its state: the header now, and jobs that encode the rest."""
        return self.header(), [table.snapshot(full) for table in self.tables()]

    def load_header(self, header: dict[str, Any], full: bool) -> None:
        """Restore the state that `header` returned; with `full`, forget everything else first."""
        if full:
            for table in self.tables():
                table.clear()

    def loaders(self) -> dict[str, Callable[[bytes], None]]:
        """Return the functions that take over a fragment, by table name."""
        return {table.name: table.load for table in self.tables()}

    def restored(self) -> None:
        """Record that all fragments of a snapshot have been loaded."""


class OneToOneStage(Stage):
    """Base of stages that give one record for each, but for those on which user code raises."""

    _lost: Sequence[int] = ()
    """The indices of the records of the last batch on which it raised, ascending."""

    def source_of(self, index: int) -> int:
        for lost in self._lost:
            index += lost <= index
        return index


class SelectingStage(Stage):
    """Base of stages that give one record for some of those that they receive."""

    _kept: Sequence[int] = ()
    """The indices of these among the records of the last batch, ascending."""

    def source_of(self, index: int) -> int:
        return self._kept[index]


class ServedStage(Stage):
    """Base of stages that ask the services of the event that they process, for example for the time."""

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
    """The stage of `flat_map(name, fn)`: `fn` gives an iterable of records, or None for none."""

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
                    del out[marks[-1] if marks else 0 :]  # its output before it raised
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
    """All that is due in one event, in order; true while it is not empty."""

    def __init__(self, stages: Sequence[Stage], due_ns: int) -> None:
        self._stages = stages
        self._due_ns = due_ns
        self._heap: list[tuple[int, int, int, int, int, Due]] = []
        self._number = 0
        for place in range(len(stages)):
            self.look(place)

    def look(self, place: int) -> None:
        """Add the due entries of a stage."""
        for entry in self._stages[place].due(self._due_ns):
            # Numbered, so that the last item of an entry is never compared.
            heappush(self._heap, (*entry[:3], self._number, place, entry))
            self._number += 1

    def __bool__(self) -> bool:
        return bool(self._heap)

    def taken(self) -> tuple[int, list[Due]]:
        """Remove and return (place of a stage, its entries that precede those of every other stage)."""
        place, entries = self._heap[0][4], list[Due]()
        while self._heap and self._heap[0][4] == place:
            entries.append(heappop(self._heap)[5])
        return place, entries
