"""Tables and joins: docs/guide/tables.md and docs/guide/joins.md.

A table passes on `(key, None, new)`: what was sent before is known where it matters, at the operators that have state,
and at the ends of a table.  There it is kept per key, so that no function is ever asked for an old value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from causal.records.values import encode
from operators.graph import time_of_inputs
from operators.kinds.windows.aggregates import Aggregate
from tests.properties.upgrades.driving import Channel
from tests.properties.upgrades.model import END, Mark, Model, MustBeRefused, model, ns
from tests.properties.upgrades.model_windows import starts

ABSENT = object()


def alike(one: Any, other: Any) -> bool:
    """Return whether two values are the same, types included."""
    return encode(one) == encode(other)


def kind_of(aggregate: Aggregate[Any, Any]) -> str:
    """Return the name of an aggregate of this package."""
    return next(kind.__name__ for kind in type(aggregate).__mro__ if kind.__module__.startswith("operators."))


def taken_back(added: Aggregate[Any, Any], taken: Aggregate[Any, Any], value: Any) -> str:
    """Return the remainder of two equal values, added by one aggregate, when another has taken one of them back."""
    accumulator = added.add(added.add(added.initial(), value), value)
    try:
        return repr(taken.subtract(accumulator, value))  # type: ignore[misc]
    except Exception as problem:
        return f"raised {type(problem)}"


class Rows(Model):
    """The base of operators with a row per key: `sent` holds what was last sent."""

    def __init__(self, node: Any, graph: Any) -> None:
        super().__init__(node, graph)
        self.sent: dict[Any, Any] = {}

    def adopt(self, before: Model) -> None:
        super().adopt(before)
        self.sent = before.sent  # type: ignore[attr-defined]

    def revise(self, key: Any, new: Any) -> None:
        """Send a row, where it is another than the one that was sent."""
        if not alike(self.sent.get(key), new):
            old = self.sent.pop(key, None)
            if new is not None:
                self.sent[key] = new
            self.emit((key, old, new), (self.name, 0))


@model("table")
class Latest(Rows):
    """`table`."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        self.revise(key, record)


class Derived(Model):
    """The base of `filter`, `map_values`: another value for each."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        row_key, _, new = record
        self.emit((row_key, None, None if new is None else self.value(row_key, new)), origin)

    def value(self, key: Any, value: Any) -> Any:
        """Return the other value."""
        raise NotImplementedError


@model("table_filter")
class FilteringRows(Derived):
    """`filter` of a table."""

    def value(self, key: Any, value: Any) -> Any:
        return value if self.node.subject(key, value) else None


@model("map_values")
class MappingRows(Derived):
    """`map_values`."""

    def value(self, key: Any, value: Any) -> Any:
        return self.node.subject(key, value)


@model("revisions")
class Revisions(Rows):
    """`revisions`: the end of a table."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        if any(edge.source.options.get("delivery") == "speculative" for edge in self.node.edges):
            self.emit((None, None, record))  # the model gives rows where it is in order
        else:
            self.revise(record[0], record[2])


@model("to_stream")
class Streaming(Rows):
    """`to_stream`: the end of a table."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        row_key, _, new = record
        if not alike(self.sent.get(row_key), new):
            self.sent[row_key] = new
            self.emit(self.node.subject(row_key, new), (self.name, 0))


@model("group_by")
class Grouping(Model):
    """`group_by`: by key, the group and the value that it was sent with."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        row_key, _, new = record
        if row_key in self.kept:
            group, value = self.kept[row_key]
            if new is not None and alike(value, new) and alike(group, self.node.subject(row_key, new)):
                return
            del self.kept[row_key]
            came = None
            if new is not None and alike(group, self.node.subject(row_key, new)):
                came = new
                self.kept[row_key] = group, new
            self.emit((group, value, came), origin)
            if came is not None:
                return
        if new is not None:
            group = self.node.subject(row_key, new)
            self.kept[row_key] = group, new
            self.emit((group, None, new), origin)


@model("aggregate")
class Groups(Rows):
    """`aggregate` of groups: by group [number of values, accumulator]."""

    def adopt(self, before: Model) -> None:
        was, now = before.node.subject, self.node.subject
        if kind_of(was) != kind_of(now) and before.kept:
            raise MustBeRefused("another aggregate")
        for value in [value for _, _, values in before.kept.values() for value in values]:
            if taken_back(was, was, value) != taken_back(was, now, value):
                raise MustBeRefused("a value would be taken back otherwise than it was added")
        super().adopt(before)

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        group, gone, came = record
        aggregate = self.node.subject
        count, accumulator, values = self.kept.get(group, (0, ABSENT, []))
        if gone is not None:
            count -= 1
            values.remove(gone)
            accumulator = aggregate.subtract(accumulator, gone) if count else ABSENT
        if came is not None:
            accumulator = aggregate.add(aggregate.initial() if accumulator is ABSENT else accumulator, came)
            count += 1
            values.append(came)
        self.kept[group] = count, accumulator, values
        row = None
        if count:
            row = accumulator if aggregate.result is None else aggregate.result(accumulator)
        else:
            del self.kept[group]
        self.revise(group, row)


@model("aggregate_table")
class Aggregated(Rows):
    """`aggregate_table`."""

    def adopt(self, before: Model) -> None:
        if kind_of(before.node.subject) != kind_of(self.node.subject) and before.kept:
            raise MustBeRefused("another aggregate")
        super().adopt(before)

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        aggregate = self.node.subject
        self.kept[key] = aggregate.add(self.kept[key] if key in self.kept else aggregate.initial(), record)
        self.revise(key, self.kept[key] if aggregate.result is None else aggregate.result(self.kept[key]))


@model("window_table")
class WindowRows(Rows):
    """`window_table`: accumulators by (key, start); "stream" is stream time."""

    def __init__(self, node: Any, graph: Any) -> None:
        super().__init__(node, graph)
        self.stream: Mark = None
        self.grace: int = node.options["grace_ns"]
        self.time_of = time_of_inputs(node)
        self.floor = -END

    def adopt(self, before: Model) -> None:
        if _table_shape(before.node) != _table_shape(self.node) and before.kept:
            raise MustBeRefused("other windows, or another aggregate")
        super().adopt(before)
        assert isinstance(before, WindowRows)
        self.stream, self.floor = before.stream, before.floor
        if self.stream is not None:
            self.floor = max(self.floor, self.stream - before.grace)
            self._forget()

    @property
    def marked(self) -> bool:
        """Whether there are watermarks."""
        from operators.graph import watermarked

        return all(watermarked(edge.source) for edge in self.node.edges)

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        time = ns(self.time_of(record))  # type: ignore[misc]
        if not self.marked:
            self.stream = time if self.stream is None else max(self.stream, time)
        opened, size = starts(self.node.options["assigner"], time), int(self.node.options["assigner"].size_ns)
        if self.stream is not None and time < self.stream - self.grace:
            opened = [start for start in opened if start + size > self.stream]
        opened = [start for start in opened if start + size > self.floor]
        if not opened:
            self.aside("late", record)
        aggregate = self.node.subject
        for start in opened:
            known = self.kept.get((key, start), ABSENT)
            accumulator = self.kept[key, start] = aggregate.add(
                aggregate.initial() if known is ABSENT else known, record
            )
            row = accumulator if aggregate.result is None else aggregate.result(accumulator)
            self.revise((key, _bound(start), _bound(start + size)), row)
        if not self.marked:
            self._forget()
            self.send_mark(self.stream - self.grace)  # type: ignore[operator]

    def _forget(self) -> None:
        size = int(self.node.options["assigner"].size_ns)
        for pair in [
            each for each in self.kept if self.stream is not None and each[1] + size <= self.stream - self.grace
        ]:
            del self.kept[pair]

    def advance(self, mark: int) -> None:
        if mark != END:
            self.stream = mark if self.stream is None else max(self.stream, mark)
            self._forget()

    def passes(self, mark: int) -> Mark:
        if mark == END:
            return END
        return None if self.stream is None else self.stream - self.grace


def _table_shape(node: Any) -> str:
    return f"{vars(node.options['assigner'])} {kind_of(node.subject)}"


def _bound(at: int) -> float:
    return at / 1e9 if at % 10**9 else at // 10**9


@model("suppress")
class Suppressing(Rows):
    """`suppress`: what is merged does not follow from the definition, the sum does."""

    def adopt(self, before: Model) -> None:
        if before.options["clock"] != self.options["clock"]:
            raise MustBeRefused("the clock")
        super().adopt(before)

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        self.revise(record[0], record[2])

    def passes(self, mark: int) -> Mark:
        after = self.options["after_ns"]
        if self.options["clock"] == "processing":
            return mark if mark == END else None
        return mark if mark == END or after is None else mark - after


@model("table_join")
class JoiningRows(Rows):
    """`table.join`: rows of both sides."""

    def adopt(self, before: Model) -> None:
        if before.options["how"] != self.options["how"] and before.kept:
            raise MustBeRefused("how")
        super().adopt(before)

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        row_key, _, new = record
        rows = self.kept.setdefault(side, {})
        if alike(rows.get(row_key), new):
            return
        rows[row_key] = new
        left, right = (self.kept.get(each, {}).get(row_key) for each in (0, 1))
        how = self.options["how"]
        there = left is not None and right is not None
        there = there or (left is not None and how in ("left", "outer"))
        there = there or (right is not None and how in ("right", "outer"))
        self.revise(row_key, self.node.subject(left, right) if there else None)


# Joins of streams.


def times(node: Any) -> Mapping[int, Callable[[Any], Any]]:
    """Return the function of event time of each side."""
    return {edge.side: edge.time_of for edge in node.edges}


class Joining(Model):
    """The base of joins of streams."""

    def __init__(self, node: Any, graph: Any) -> None:
        super().__init__(node, graph)
        self.how: str = node.options["how"]
        self.times = times(node)
        self.reached: Mark = None

    def advance(self, mark: int) -> None:
        """Follow the watermark, less the grace; time that was reached stays reached."""
        less = mark if mark == END else mark - self.options.get("grace_ns", 0)
        self.reached = less if self.reached is None else max(self.reached, less)
        self.expire(less)

    def expire(self, mark: int) -> None:
        """Emit and forget what is over."""

    def meaning(self) -> Any:
        """Return what the records that it keeps depend on."""
        return self.how

    def adopt(self, before: Model) -> None:
        if self.meaning() != before.meaning() and before.kept:  # type: ignore[attr-defined]
            raise MustBeRefused("another join")
        super().adopt(before)
        self.reached = before.reached  # type: ignore[attr-defined]

    def pair(self, left: Any, right: Any) -> None:
        """Emit a pair."""
        self.emit(self.node.subject(left, right), (self.name, 0))

    def alone(self, side: int, record: Any) -> None:
        """Emit a record without a partner."""
        if self.how in (("left", "outer"), ("right", "outer"))[side]:
            self.pair(*((record, None) if side == 0 else (None, record)))


@model("join")
class Intervals(Joining):
    """`join`: by side [time, key, record, matched]."""

    def _reach(self, side: int) -> tuple[int, int]:
        low, high = self.options["within_ns"]
        return (low, high) if side == 0 else (-high, -low)

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        time = ns(self.times[side](record))
        if self.reached is not None and time < self.reached:
            self.aside("late", record)
            return
        low, high = self._reach(side)
        mine = [time, key, record, False]
        for other in self.kept.get(1 - side, []):
            if other[1] == key and time + low <= other[0] <= time + high:
                mine[3] = other[3] = True
                self.pair(*((record, other[2]) if side == 0 else (other[2], record)))
        if self.reached is None or time + high >= self.reached:
            self.kept.setdefault(side, []).append(mine)
        elif not mine[3]:
            self.alone(side, record)

    def expire(self, mark: int) -> None:
        for side in (0, 1):
            high = self._reach(side)[1]
            over = [each for each in self.kept.get(side, []) if mark == END or each[0] + high < mark]
            for each in over:
                if not each[3]:
                    self.alone(side, each[2])
            self.kept[side] = [each for each in self.kept.get(side, []) if each not in over]

    def passes(self, mark: int) -> Mark:
        kept = [self.how in ("left", "outer"), self.how in ("right", "outer")]
        holds = [max(self._reach(side)[1], 0) for side in (0, 1) if kept[side]]
        return mark if mark == END else mark - self.options["grace_ns"] - max(holds, default=0)


@model("window_join")
class WindowPairs(Joining):
    """`window_join`: by (key, start) both sides."""

    def meaning(self) -> Any:
        return self.how, vars(self.options["assigner"])

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        assigner = self.options["assigner"]
        opened = starts(assigner, ns(self.times[side](record)))
        opened = [start for start in opened if self.reached is None or start + assigner.size_ns > self.reached]
        if not opened:
            self.aside("late", record)
        for start in opened:
            self.kept.setdefault((key, start), ([], []))[side].append(record)

    def expire(self, mark: int) -> None:
        for pair in [each for each in self.kept if each[1] + self.options["assigner"].size_ns <= mark]:
            lefts, rights = self.kept.pop(pair)
            for left in lefts:
                for right in rights:
                    self.pair(left, right)
                if not rights:
                    self.alone(0, left)
            for right in rights if not lefts else ():
                self.alone(1, right)

    def passes(self, mark: int) -> Mark:
        return mark if mark == END else mark - self.options["grace_ns"] - int(self.options["assigner"].size_ns)


def row_joins(node: Any, graph: Any) -> Model:
    """Return the model of a `join_table`."""
    return AsOf(node, graph) if node.options["as_of"] else JoiningTable(node, graph)


model("join_table")(row_joins)  # type: ignore[arg-type]


class WithTable(Joining):
    """The base of joins with a table."""

    def meaning(self) -> Any:
        return self.how, self.options["as_of"]

    def joined(self, record: Any, row: Any) -> None:
        """Emit a record with a row."""
        if row is not None or self.how == "left":
            self.pair(record, row)


class JoiningTable(WithTable):
    """`join_table`: rows by key; "waiting" records, where the table is waited for."""

    def adopt(self, before: Model) -> None:
        super().adopt(before)
        if self.kept.get("waiting") and not self.options["wait"]:
            self.left_behind()
            del self.kept["waiting"]

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        if side == 1:
            self.kept.setdefault("rows", {})[key] = record[2]
        elif self.options["wait"] and not self._over() and not self._passed(record):
            self.kept.setdefault("waiting", []).append((key, record))
        else:
            self.joined(record, self.kept.get("rows", {}).get(key))

    def _over(self) -> bool:
        return all(place in self.over for place, edge in enumerate(self.node.edges) if edge.side == 1)

    def _passed(self, record: Any) -> bool:
        return self.mark is not None and (self.mark == END or self._time(record) < self.mark)

    def _time(self, record: Any) -> int:
        time_of = self.times[0]
        return END if time_of is None else ns(time_of(record))

    def input_ended(self, place: int) -> None:
        self.release()

    def continued(self) -> None:
        self.release()

    def advance(self, mark: int) -> None:
        self.release()

    def release(self) -> None:
        """Join what needs to wait no longer."""
        over = self._over()
        waiting = self.kept.get("waiting", [])
        self.kept["waiting"] = [each for each in waiting if not (over or self._passed(each[1]))]
        for key, record in waiting:
            if over or self._passed(record):
                self.joined(record, self.kept.get("rows", {}).get(key))


class AsOf(WithTable):
    """`join_table` as of the time of each record: "versions" of rows, and "waiting" records."""

    def record(self, side: int, key: Any, record: Any, origin: Channel) -> None:
        time = ns(self.times[side](record))
        floor = max((each for each in (self.mark, self.marks[self.place]) if each is not None), default=-END)
        self.number += 1
        if side == 1:
            for _, derive in self.options["derivations"]:
                record = None if record is None else derive(key, record)
            versions = self.kept.setdefault("versions", {}).setdefault(key, [])
            versions.append((max(time, floor), (time, self.number), record))
        elif time < floor:
            self.aside("late", record)
        else:
            self.kept.setdefault("waiting", []).append((time, key, record))

    def advance(self, mark: int) -> None:
        waiting = self.kept.get("waiting", [])
        self.kept["waiting"] = [each for each in waiting if mark != END and each[0] >= mark]
        for time, key, record in sorted(
            (each for each in waiting if mark == END or each[0] < mark), key=lambda e: e[0]
        ):
            versions = [each for each in self.kept.get("versions", {}).get(key, []) if each[0] <= time]
            self.joined(record, max(versions, key=lambda each: each[1])[2] if versions else None)
