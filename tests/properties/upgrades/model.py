"""Models of operators in plain Python, record by record, before and after an upgrade.

It is written from the documentation.  Each operator is a `Model` with its state in `kept`; a version that comes after
another takes that over by name, and has its own functions and options.  There are no tasks here: what a pipeline gives
does not depend on its parallelism.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import Any

from operators import Pipeline
from operators.graph import Edge, Node, ordered
from tests.properties.upgrades.driving import Channel

END = 1 << 62
"""The watermark of an input that has ended."""

Mark = int | None


class MustBeRefused(Exception):
    """An upgrade for which the documentation gives no meaning."""


def ns(seconds: float) -> int:
    """Return ns of whole microseconds."""
    return round(seconds * 1e6) * 1000


class Model:
    """One operator.

    Attributes:
        kept: its state.
        marks: the watermark of each input.
        mark: the least of those that have not ended.
        over: the inputs that have ended.
        place: the input of the present record.
        began: whether it was in the version before.
    """

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph, self.name = node, graph, node.name
        self.options = node.options
        self.kept: dict[Any, Any] = {}
        self.marks: list[Mark] = [None] * len(node.edges)
        self.mark: Mark = None
        self.over: set[int] = set()
        self.readers: list[tuple[Model, int, Edge]] = []
        self.tags: set[str] = set()
        self.began = False
        self.waits = HOLDS.get(node.options.get("delivery", ""), False)
        self.delayed: list[Any] = []
        self.number = 0
        self.place = 0

    # What comes in.

    def take(self, place: int, record: Any, origin: Channel) -> None:
        """Take a record of an input."""
        edge, self.place = self.node.edges[place], place
        key = None if edge.key_of is None else edge.key_of(record)
        if not self.waits:
            self.record(edge.side, key, record, origin)
            return
        time = ns(edge.time_of(record))  # type: ignore[misc]
        floors = [each for each in (self.marks[place], self.mark) if each is not None]
        if floors and time < max(floors):
            self.aside("late", record)
            return
        self.number += 1
        self.delayed.append((time, self.graph.version, place, self.number, edge.side, key, record, origin))

    def advance_input(self, place: int, mark: int) -> None:
        """Raise the watermark of an input, at its end to END."""
        if place in self.over:
            return
        if mark == END:
            self.over.add(place)
            self.input_ended(place)
        elif self.marks[place] is None or mark > self.marks[place]:  # type: ignore[operator]
            self.marks[place] = mark
        merged = self._merged()
        if merged is None or (self.mark is not None and merged <= self.mark):
            return
        if merged == END:
            furthest = max((each for each in self.marks if each is not None), default=None)
            if furthest is not None and (self.mark is None or furthest > self.mark):
                self._advance(furthest)
        self._advance(merged)

    def _merged(self) -> Mark:
        waited = [mark for place, mark in enumerate(self.marks) if place not in self.over]
        return END if not waited else None if None in waited else min(mark for mark in waited if mark is not None)

    def input_ended(self, place: int) -> None:
        """Record that an input has ended, and perhaps others have not."""

    def _advance(self, mark: int) -> None:
        if self.waits:
            self._release(mark)
        self.mark = mark
        self.advance(mark)
        if mark == END:
            self.finish()
        passed = self.passes(mark)
        if passed is not None:
            self.send_mark(passed)

    def _release(self, mark: int) -> None:
        ready = sorted((each for each in self.delayed if mark == END or each[0] < mark), key=lambda each: each[:4])
        self.delayed = [each for each in self.delayed if each not in ready]
        for *_, side, key, record, origin in ready:
            self.record(side, key, record, origin)

    def ended(self, origin: Channel) -> None:
        """A partition has ended; passed on to what makes watermarks."""
        for reader, _, _ in self.readers:
            reader.ended(origin)

    # What goes out.

    def emit(self, record: Any, origin: Channel = ("", 0)) -> None:
        """Pass a record on."""
        for reader, place, edge in self.readers:
            if not edge.tag:
                reader.take(place, record, origin)

    def aside(self, tag: str, record: Any) -> None:
        """Pass a record to a side output."""
        for reader, place, edge in self.readers:
            if edge.tag == tag:
                reader.take(place, record, (self.name, 0))

    def send_mark(self, mark: int) -> None:
        """Pass a watermark on."""
        for reader, place, _ in self.readers:
            reader.advance_input(place, mark)

    # What an operator is.

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        """Process a record."""
        self.emit(record, origin)

    def settle(self) -> None:
        """End an event: watermarks come after all of its records."""

    def advance(self, mark: int) -> None:
        """Advance event time."""

    def finish(self) -> None:
        """All input has ended."""

    def passes(self, mark: int) -> Mark:
        """Return the watermark to pass on."""
        return mark

    def clock(self, now: int) -> None:
        """The wall clock has reached `now`."""

    def due(self) -> int:
        """Return when the wall clock is to be looked at again."""
        return END

    def continued(self) -> None:
        """Begin to work after an upgrade."""

    def adopt(self, before: Model) -> None:
        """Take over the state of the version before.

        Raises:
            MustBeRefused: it cannot mean anything here.
        """
        self.kept, self.mark, self.began = before.kept, before.mark, True
        self.delayed, self.number = before.delayed, before.number
        if self.delayed and not self.waits:
            self.left_behind()
            self.delayed = []

    def left_behind(self) -> None:
        """Records that wait have no place in this version.

        Raises:
            MustBeRefused: state may not be left behind.
        """
        if not self.graph.allow_dropped:
            raise MustBeRefused("records wait")


HOLDS = {"ordered": True, "speculative": True}
"""Deliveries whose rows are those of event time order; speculative revisions amount to them."""
MODELS: dict[str, type[Model]] = {}


def model(*kinds: str) -> Callable[[type[Model]], type[Model]]:
    """Register the model of kinds of operators."""

    def registered(of: type[Model]) -> type[Model]:
        for kind in kinds:
            MODELS[kind] = of
        return of

    return registered


class Graph:
    """All operators of one version.

    Args:
        before: the version whose state it continues; None for the first.
        allow_dropped: whether state that has no place in it may be left behind.
    """

    def __init__(
        self, pipeline: Pipeline, now_s: float, before: Graph | None = None, allow_dropped: bool = False
    ) -> None:
        self.allow_dropped = allow_dropped
        self.now = ns(now_s)
        self.version: int = 0 if before is None else before.version + 1
        self.rows: dict[str, list[Any]] = {}
        self.over: set[Channel] = set() if before is None else set(before.over)
        self.models: dict[str, Model] = {}
        for node in ordered(pipeline.nodes):
            self.models[node.name] = MODELS[node.kind](node, self)
        for each in self.models.values():
            for place, edge in enumerate(each.node.edges):
                source = self.models[edge.source.name]
                source.readers.append((each, place, edge))
                source.tags.add(edge.tag)
        if before is not None:
            self._continue(before)

    def _continue(self, before: Graph) -> None:
        for name, each in self.models.items():
            known = before.models.get(name)
            if known is not None and known.node.kind != each.node.kind:
                if known.kept or known.delayed:
                    raise MustBeRefused(f"{name} is of another kind")
                known = None
            if known is not None:
                each.adopt(known)
            each.marks = _marks(each, known)
        for each in self.models.values():
            for place, edge in enumerate(each.node.edges):
                if self._has_ended(self.models[edge.source.name]):
                    each.over.add(place)
            known = before.models.get(each.name)
            if each.marks and len(each.over) == len(each.marks):
                each.mark = END
            elif known is not None and known.mark == END and each.marks:
                raise MustBeRefused(f"{each.name} had finished")
        for each in self.models.values():
            each.continued()

    def _has_ended(self, each: Model) -> bool:
        if not each.node.edges:
            return all((each.name, number) in self.over for number in range(each.node.subject.partitions))
        return all(self._has_ended(self.models[edge.source.name]) for edge in each.node.edges)

    def give(self, channel: Channel, record: Any, now_s: float) -> None:
        """Pass in a record of a source."""
        self.until(now_s)
        source = self.models.get(channel[0])
        if source is not None:
            source.emit(record, channel)
        for each in self.models.values():
            each.settle()

    def end(self, channel: Channel, now_s: float) -> None:
        """End a partition."""
        self.until(now_s)
        self.over.add(channel)
        source = self.models.get(channel[0])
        if source is None:
            return
        source.ended(channel)
        if all((channel[0], number) in self.over for number in range(source.node.subject.partitions)):
            source.send_mark(END)

    def until(self, now_s: float) -> None:
        """Advance the time."""
        until = ns(now_s)
        while True:
            due = min((each.due() for each in self.models.values()), default=END)
            if due > until:
                break
            self.now = max(self.now, due)
            for each in self.models.values():
                if each.due() <= self.now:
                    each.clock(self.now)
        self.now = until


def _marks(each: Model, before: Model | None) -> list[Mark]:
    """Return the watermarks of its inputs, which continue those that it had."""
    edges = each.node.edges
    if before is None:
        return [None] * len(edges)
    known = {(edge.source.name, edge.side): mark for edge, mark in zip(before.node.edges, before.marks, strict=True)}
    names = {(edge.source.name, edge.side) for edge in edges}
    others = [mark for name, mark in known.items() if name not in names]
    least = None if not others or None in others else min(mark for mark in others if mark is not None)
    return [known.get((edge.source.name, edge.side), least) for edge in edges]


@model("source", "to_rows")
class Passing(Model):
    """Passes records on."""


@model("to_vectors")
class ToVectors(Model):
    """`to_vectors`: the columns of a schema, in order."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        fields = {field.name: str(field.type) for field in self.node.subject}
        row = {name: float(record[name]) if kind == "double" else record[name] for name, kind in fields.items()}
        self.emit(row, origin)


@model("sink")
class Sinking(Model):
    """Keeps rows."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        kept = (record[0], record[2]) if self.node.options.get("of_table") else record
        self.graph.rows.setdefault(self.name, []).append(kept)


@model("map")
class Mapping_(Model):
    """`map`."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        self.emit(self.node.subject(record), origin)


@model("filter")
class Filtering(Model):
    """`filter`."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        if self.node.subject(record):
            self.emit(record, origin)


@model("flat_map")
class Flattening(Model):
    """`flat_map`."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        for each in self.node.subject(record) or ():
            self.emit(each, origin)


@model("map_batches")
class MappingBatches(Model):
    """`map_batches`: a batch of one record."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        import pyarrow as pa

        batch = self.node.subject(pa.RecordBatch.from_pylist([record]))
        columns = batch if isinstance(batch, dict) else batch.to_pydict()
        listed = {name: column if isinstance(column, list) else column.to_pylist() for name, column in columns.items()}
        for row in zip(*listed.values(), strict=True):
            self.emit(dict(zip(listed, row, strict=True)), origin)


@model("call")
class Calling(Model):
    """`call`: answered immediately."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        for attempt in range(self.options["retries"] + 1):
            try:
                answer = self.node.subject(record, f"{self.name} {self.number}")
            except ValueError:
                if attempt == self.options["retries"]:
                    raise
            else:
                break
        self.number += 1
        self.emit(self.options["combine"](record, answer), origin)


@model("watermarks")
class Marking(Model):
    """`watermarks`: `kept` holds the watermark of each partition, "largest" times apart."""

    def __init__(self, node: Node, graph: Graph) -> None:
        super().__init__(node, graph)
        self.passed: Mark = None

    def adopt(self, before: Model) -> None:
        super().adopt(before)
        self.passed = before.passed  # type: ignore[attr-defined]

    def channels(self) -> list[Channel]:
        """Return all partitions that it reads."""
        channels: list[Channel] = []
        waiting = [edge.source for edge in self.node.edges]
        while waiting:
            node = waiting.pop()
            waiting += [edge.source for edge in node.edges]
            if not node.edges:
                channels += [(node.name, number) for number in range(node.subject.partitions)]
        return channels

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        time = ns(self.node.subject(record))
        largest, mark = self.kept.get(origin, (None, None))
        if largest is not None and self.options["generator"] is None and time < largest - self.options["bound_ns"]:
            self.kept[origin] = largest, max(mark, largest - self.options["bound_ns"])  # late by another bound as well
            self.settle()
            mark = self.kept[origin][1]
        if self.options["generator"] is not None:
            generators = self.kept.setdefault("generators", {})
            if origin not in generators:
                generators[origin] = self.options["generator"]()
            largest, new = time, generators[origin].on_batch([time])
        else:
            largest = time if largest is None else max(largest, time)
            new = largest - self.options["bound_ns"]
        if new is not None:
            self.kept[origin] = largest, new if mark is None else max(new, mark)
        self.emit(record, origin)

    def settle(self) -> None:
        over = self.graph.over
        marks = [self.kept.get(each, (None, None))[1] for each in self.channels() if each not in over]
        if marks and None not in marks and (self.passed is None or min(marks) > self.passed):
            self.passed = min(marks)
            self.send_mark(self.passed)

    def ended(self, origin: Channel) -> None:
        self.settle()

    def advance(self, mark: int) -> None:
        if mark == END:
            marks = [each[1] for name, each in self.kept.items() if name != "generators" and each[1] is not None]
            if marks and (self.passed is None or max(marks) > self.passed):
                self.passed = max(marks)
                self.send_mark(self.passed)

    def passes(self, mark: int) -> Mark:
        return END if mark == END else None


# Folds.


@model("reduce")
class Reducing(Model):
    """`reduce`: the accumulated value of each key."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        from operators.kinds.process.accumulating import NO_INITIAL

        initial = self.options["initial"]
        if key in self.kept:
            self.kept[key] = self.node.subject(self.kept[key], record)
        elif initial is NO_INITIAL:
            self.kept[key] = record
        else:
            self.kept[key] = self.node.subject(initial() if callable(initial) else initial, record)
        self.emit((key, self.kept[key]), origin)


@model("count")
class Counting(Model):
    """`count`."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        self.kept[key] = self.kept.get(key, 0) + 1
        self.emit((key, self.kept[key]), origin)


@model("sum", "min", "max")
class FoldingColumn(Model):
    """`sum`, `min` or `max` of a column: the state is of that column."""

    def adopt(self, before: Model) -> None:
        if before.node.subject != self.node.subject and before.kept:
            raise MustBeRefused("another column")
        super().adopt(before)

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        fold: Any = {"sum": add, "min": min, "max": max}[self.node.kind]
        value = record[self.node.subject]
        self.kept[key] = fold(self.kept[key], value) if key in self.kept else value
        self.emit({self.node.column: key, self.node.kind: self.kept[key]}, origin)
