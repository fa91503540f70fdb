"""Declared states and `ctx.state` under random operations: docs/guide/state.md.  Timers: docs/guide/time.md."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from operators import ListState, MapState, Operator, Pipeline, ReducingState, ValueState
from operators.testing import At, TrialResult, run
from tests.oracles.frame import Draw, Scenario, counted, every, exact, oracle, same, sink, source

Row = dict[str, Any]


def _assigned(items: Any, where: slice, numbers: Callable[[Any], Any]) -> Any:
    items[where] = numbers(items)


def _deleted(items: Any, where: Any) -> Any:
    del items[where]


LISTS: dict[str, Callable[[Any, int], Any]] = {
    "append": lambda items, v: items.append(v),
    "extend": lambda items, v: items.extend([v, -v]),
    "set item": lambda items, v: items and _assigned(items, slice(v % len(items), v % len(items) + 1), lambda i: [100]),
    "set one": lambda items, v: items and items.__setitem__(-1, v),
    "add": lambda items, v: items.__iadd__([v, 3]),
    "insert": lambda items, v: items.insert(1, v),
    "pop last": lambda items, v: items.pop() if items else None,
    "pop first": lambda items, v: items.pop(0) if items else None,
    "remove": lambda items, v: items.remove(v) if v in items else None,
    "sort": lambda items, v: items.sort(key=lambda n: -n),
    "reverse": lambda items, v: items.reverse(),
    "last three": lambda items, v: _assigned(items, slice(None), lambda i: [*i, v][-3:]),
    "last two": lambda items, v: _assigned(items, slice(-2, None), lambda i: [8, 9]),
    "doubled": lambda items, v: _assigned(items, slice(0), lambda i: i[-1:]),
    "every other": lambda items, v: _assigned(items, slice(None, None, 2), lambda i: [0] * len(i[::2])),
    "cut": lambda items, v: _deleted(items, slice(-3)),
    "cut all": lambda items, v: _deleted(items, slice(None)),
    "cut first": lambda items, v: _deleted(items, 0) if items else None,
    "clear list": lambda items, v: items.clear(),
}
OPERATIONS = (
    "value", "value in place", "clear value", "put", "put in place", "delete", "pop", "popitem", "setdefault", "update",
    "clear map", "fold", "clear fold", "state", "clear state", *LISTS,
)  # fmt: skip


class Plain:
    """The model: a value, a list, a dict, a fold and a dict, as Python has them."""

    def __init__(self) -> None:
        self.value: list[int] | None = None
        self.items: list[int] = []
        self.named: dict[Any, list[int]] = {}
        self.fold: int | None = None
        self.state: dict[Any, Any] = {}

    def do(self, what: str, name: Any, v: int) -> Any:
        """Perform one operation and return its result."""
        if what == "value":
            self.value = [v]
        elif what == "value in place":
            if self.value is not None:
                self.value.append(v)
        elif what == "clear value":
            self.value = None
        elif what in LISTS:
            LISTS[what](self.items, v)
        elif what == "put":
            self.named[name] = [v]
        elif what == "put in place" and name in self.named:
            self.named[name].append(v)
        elif what == "delete" and name in self.named:
            del self.named[name]
        elif what == "pop":
            return self.named.pop(name, None)
        elif what == "popitem" and self.named:
            return list(self.named.popitem())
        elif what == "setdefault":
            numbers = self.named.setdefault(name, [v])
            numbers.append(-v)
            return list(numbers)
        elif what == "update":
            self.named.update({name: [v, v], "u": [v]})
        elif what == "clear map":
            self.named.clear()
        elif what == "fold":
            self.fold = v if self.fold is None else max(self.fold, v)
        elif what == "clear fold":
            self.fold = None
        elif what == "state":
            self.state.setdefault(name, []).append(v)
        elif what == "clear state":
            self.state.clear()
        return None

    def shown(self, results: list[Any]) -> Any:
        """Return all of it."""
        named = [[name, list(numbers)] for name, numbers in self.named.items()]
        more = [len(self.items), len(self.named), self.items[-1] if self.items else None, 3 in self.items]
        state = {name: list(numbers) for name, numbers in self.state.items()}
        return [
            results,
            None if self.value is None else list(self.value),
            list(self.items),
            named,
            self.fold,
            state,
            more,
        ]


class Stateful(Operator):
    """The same with declared states."""

    value = ValueState[list[int]]()
    items = ListState[int]()
    named = MapState[Any, list[int]]()
    fold = ReducingState[int](max)

    def process(self, record: Row, ctx: Any) -> Any:
        yield [ctx.key, self.shown([self.do(what, name, v, ctx) for what, name, v in record["do"]], ctx)]

    def do(self, what: str, name: Any, v: int, ctx: Any) -> Any:
        """Perform one operation and return its result."""
        if what == "value":
            self.value.value = [v]
        elif what == "value in place":
            if self.value.value is not None:
                self.value.value.append(v)
        elif what == "clear value":
            self.value.clear()
        elif what in LISTS:
            LISTS[what](self.items, v)
        elif what == "fold":
            self.fold.add(v)
        elif what == "clear fold":
            self.fold.clear()
        elif what == "state":
            ctx.state.setdefault(name, []).append(v)
        elif what == "clear state":
            ctx.state.clear()
        else:
            return Plain.do(self, what, name, v)  # type: ignore[arg-type]  # and as a dict
        return None

    def shown(self, results: list[Any], ctx: Any) -> Any:
        """Return all of it, read in every way."""
        value = self.value.value
        named = [[name, list(numbers)] for name, numbers in self.named.items()]
        more = [len(self.items), len(self.named), self.items[-1] if self.items else None, 3 in self.items]
        state = {name: list(numbers) for name, numbers in ctx.state.items()}
        return [results, None if value is None else list(value), list(self.items), named, self.fold.value, state, more]


@oracle("state")
def _state(draw: Draw) -> Scenario:
    """Whatever is done to them, states are what a value, a list, a dict and a fold are; each key has its own."""
    pipeline, keys = Pipeline("p"), draw.choice(("a", "ab", "abcd"))

    def one() -> Row:
        many = draw.choice((1, 2, 6))
        return {"k": draw.choice(keys), "do": [operation() for _ in range(many)]}

    def operation() -> Any:
        return [draw.choice(OPERATIONS), draw.choice(["x", "y", "z", 1, (1, "t")]), draw.randint(0, 9)]

    rows = draw.listed(40, one)
    stream, keyed = source(pipeline), draw.flip(0.8)
    if keyed:
        stream = stream.key_by(lambda r: r["k"])
    sink(stream.process("p", Stateful(), parallelism=1, state=draw.choice(("memory", "disk"))))
    model: dict[Any, Plain] = {}
    expected = []
    for row in rows:
        key = row["k"] if keyed else None
        plain = model.setdefault(key, Plain())
        expected.append([key, plain.shown([plain.do(*each) for each in row["do"]])])
    return Scenario(pipeline, {"in": rows}, exact("out", expected))


TTL_S = 8
AGED = ("append", "extend", "set one", "pop last", "last three", "cut all", "clear list")
CLEARED = ("clear value", "clear read", "clear map", "clear total")


class Aging(Operator):
    """Reads everything of its key, then does what the record says."""

    value = ValueState[int](ttl_s=TTL_S)
    read = ValueState[list[int]](ttl_s=TTL_S, default=list)
    items = ListState[int](ttl_s=TTL_S)
    named = MapState[str, int](ttl_s=TTL_S)
    total = ReducingState[int](lambda a, b: a + b, ttl_s=TTL_S)

    def process(self, record: Row, ctx: Any) -> Any:
        row = [self.value.value, list(self.items), len(self.named), dict(self.named), self.total.value]
        for what, name, v in record["do"]:
            if what == "value":
                self.value.value = v
            elif what == "read":  # what could change counts as written
                row.append(list(self.read.value))
                self.read.value.append(v)
            elif what in AGED:
                LISTS[what](self.items, v)
            elif what == "put":
                self.named[name] = v
            elif what == "pop":
                self.named.pop(name, None)
            elif what == "popitem":
                row.append(list(self.named.popitem()) if self.named else [])
            elif what == "clear value":
                self.value.clear()
            elif what == "clear read":
                self.read.clear()
            elif what == "clear map":
                self.named.clear()
            elif what == "clear total":
                self.total.clear()
            else:
                self.total.add(v)
        yield row


class Aged:
    """The model of one place: a value, and the latest event time at which it was written.

    Attributes:
        expired: how often the place was written after it had expired.
    """

    def __init__(self) -> None:
        self.value: Any = None
        self.at: float | None = None
        self.expired = 0

    def get(self, at: float) -> Any:
        """Return the value for a record of this time."""
        return None if self.at is None or at >= self.at + TTL_S else self.value

    def put(self, at: float, value: Any) -> None:
        """Write; None and an empty list are nothing, and put only where there is something."""
        fresh = self.get(at) is None
        self.expired += fresh and self.at is not None
        self.value = value
        self.at = None if value in (None, []) else at if fresh or self.at is None else max(at, self.at)


def _aged(places: dict[str, Aged], record: Row) -> list[Any]:
    """Return what `Aging` emits; what has expired for a record is nothing to it, but stays for earlier ones."""
    at = record["at"]

    def entries() -> dict[str, Any]:
        named = {name[2:]: place.get(at) for name, place in places.items() if name.startswith("n ")}
        return {name: value for name, value in named.items() if value is not None}

    def delete(name: str) -> None:
        if places[name].get(at) is not None:
            places[name].put(at, None)

    row = [places["value"].get(at), list(places["items"].get(at) or []), len(entries()), entries()]
    row.append(places["total"].get(at))
    for what, name, v in record["do"]:
        if what == "value":
            places["value"].put(at, v)
        elif what == "read":
            row.append(list(places["read"].get(at) or []))
            places["read"].put(at, [*row[-1], v])
        elif what in AGED:
            items = list(places["items"].get(at) or [])
            changed = list(items)
            LISTS[what](changed, v)
            if changed or items:
                places["items"].put(at, changed)
        elif what == "put":
            place = places.get(f"n {name}", Aged())
            if place.get(at) is None:
                places.pop(f"n {name}", None)  # an entry that is put again is the last one
            places[f"n {name}"] = place
            place.put(at, v)
        elif what == "pop":
            if name in entries():
                delete(f"n {name}")
        elif what == "popitem":
            last = next(reversed(entries().items()), ())
            row.append(list(last))
            if last:
                delete(f"n {last[0]}")
        elif what == "clear map":
            for entry in entries():
                delete(f"n {entry}")
        elif what in CLEARED:
            delete(what.removeprefix("clear "))
        else:
            places["total"].put(at, (places["total"].get(at) or 0) + v)
    return row


@oracle("ttl")
def _lives(draw: Draw) -> Scenario:
    """State lives for its time by the times of records; where some are late, it is alike in every run."""
    pipeline, disorder, late = Pipeline("p"), draw.choice((0, 3, 6, 20)), draw.flip(0.2)
    at, rows = 0.0, list[Row]()
    for _ in range(draw.randint(0, 40)):
        at += draw.choice((0, 0, 1, 1, 2, 3, 9, 40))
        do = [
            [
                draw.choice(("value", "read", *AGED, "put", "put", "pop", "popitem", "total", *CLEARED)),
                draw.choice("xyz"),
                draw.randint(1, 9),
            ]
            for _ in range(draw.randint(0, 4))
        ]
        rows.append({"k": draw.choice("ab"), "at": at - draw.randint(0, disorder), "do": do})
    stream = source(pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=disorder / 4 if late else disorder)
    sink(stream.key_by(lambda r: r["k"]).process("p", Aging(), parallelism=1, state=draw.choice(("memory", "disk"))))
    model = {key: {name: Aged() for name in ("value", "read", "items", "total")} for key in "ab"}
    expected = [_aged(model[row["k"]], row) for row in rows]
    watermark = max((row["at"] for row in rows), default=0) - disorder
    places = [place for of_key in model.values() for place in of_key.values()]
    expired = sum(place.expired + (place.at is not None and place.at + TTL_S <= watermark) for place in places)
    check = every(exact("out", expected), counted("p", {"expired": expired}))

    def alike(result: TrialResult) -> None:
        one_by_one = run(pipeline, {"in": rows})
        same("out", result["out"], one_by_one["out"])
        counted("p", one_by_one.counts.get("p", {}))(result)

    return Scenario(pipeline, {"in": rows}, alike if late else check, shown=f"disorder {disorder}")


AFTER_S = {"event": 7.5, "processing": 1e6}
"""The delay of a timer that another timer sets: in event time due immediately, by the wall clock after all input."""


class Timed(Operator):
    """Does what records say with timers; a timer may set another one."""

    def __init__(self, clock: str) -> None:
        self.clock = clock

    def process(self, record: Row, ctx: Any) -> Any:
        for what, name, at in record["do"]:
            if what == "set":
                ctx.set_timer(at, name, clock=self.clock)
            else:
                ctx.clear_timer(name, clock=self.clock)
        yield ["record", ctx.key, record["id"]]

    def on_timer(self, name: str, ctx: Any) -> Any:
        if name in "xy":
            ctx.set_timer(AFTER_S[self.clock], name + "'", clock=self.clock)
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield ["timer", ctx.key, name, n]


def _followed(
    pending: dict[Any, Any], until: float | None, rows: list[Any], counts: dict[str, int], tick: Any, clock: str
) -> None:
    """Fire due timers in the order (time, when set), one at a time."""
    while True:
        due = [(at, number, key, name) for (key, name), (at, number) in pending.items() if until is None or at <= until]
        if not due:
            return
        at, _, key, name = min(due)
        del pending[key, name]
        if name in "xy":
            pending[key, name + "'"] = (max(at, AFTER_S[clock]), next(tick))  # event time never goes back
        counts[key] = counts.get(key, 0) + 1
        rows.append(["timer", key, name, counts[key]])


def _timer_rows(draw: Draw, times: list[float]) -> list[Row]:
    """Records that set timers which are still to come, and clear some."""

    def operation(after: float) -> Any:
        return [draw.choice(("set", "set", "set", "clear")), draw.choice("xyabc"), after + draw.choice((0.5, 1.5, 9))]

    rows = []
    for number, at in enumerate(times):
        latest = max(times[: number + 1])
        do = [operation(latest) for _ in range(draw.randint(0, 3))]
        rows.append({"k": draw.choice("ab"), "at": at, "id": number, "do": do})
    return rows


@oracle("timers-event")
def _event_timers(draw: Draw) -> Scenario:
    """Event-time timers fire once the watermark has reached them, at the end all that are left."""
    pipeline, bound = Pipeline("p"), draw.choice((0, 2))
    at, times = 10.0, []
    for _ in range(draw.randint(0, 15)):
        at += draw.choice((0, 1, 2, 5, -2))
        times.append(at)
    rows = _timer_rows(draw, times)
    ordered = draw.flip(0.4)
    stream = source(pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=bound).key_by(lambda r: r["k"])
    sink(stream.process("p", Timed("event"), parallelism=1, delivery="ordered" if ordered else "arrival"))
    pending: dict[Any, Any] = {}
    counts: dict[str, int] = {}
    expected: list[Any] = []
    tick, largest = count(), None
    taken = rows
    if ordered:  # what is not late, by time
        marks = [max(times[:number], default=-1e9) - bound for number in range(len(times))]
        taken = sorted((r for r, mark in zip(rows, marks, strict=True) if r["at"] >= mark), key=lambda r: r["at"])
    for row in taken:
        if ordered:  # timers due by the time of a record comes before it
            _followed(pending, row["at"], expected, counts, tick, "event")
        for what, name, when in row["do"]:
            pending.pop((row["k"], name), None)
            if what == "set":
                pending[row["k"], name] = (when, next(tick))
        expected.append(["record", row["k"], row["id"]])
        largest = row["at"] if largest is None else max(largest, row["at"])
        if not ordered:
            _followed(pending, largest - bound, expected, counts, tick, "event")
    _followed(pending, None, expected, counts, tick, "event")
    return Scenario(pipeline, {"in": rows}, exact("out", expected), batches=(1,) if not ordered else (1, 3, 100))


@oracle("timers-processing")
def _clock_timers(draw: Draw) -> Scenario:
    """Timers of the wall clock fire in their order, one at a time; those that are pending at the end do not."""
    pipeline = Pipeline("p")
    at, times = 10.0, []
    for _ in range(draw.randint(0, 12)):
        at += draw.choice((1, 2, 5, 11))
        times.append(at)
    rows = _timer_rows(draw, times)
    sink(source(pipeline).key_by(lambda r: r["k"]).process("p", Timed("processing"), parallelism=1))
    pending: dict[Any, Any] = {}
    counts: dict[str, int] = {}
    expected: list[Any] = []
    tick = count()
    for row in rows:
        _followed(pending, row["at"], expected, counts, tick, "processing")
        for what, name, when in row["do"]:
            pending.pop((row["k"], name), None)
            if what == "set":
                pending[row["k"], name] = (when, next(tick))
        expected.append(["record", row["k"], row["id"]])
    if times:  # time passes after the last record
        _followed(pending, times[-1] + 0.25, expected, counts, tick, "processing")
        _followed(pending, times[-1] + 20.25, expected, counts, tick, "processing")
    inputs: list[Any] = [At(row["at"], row) for row in rows]
    if times:
        inputs.append(At(times[-1] + 20.25))
    return Scenario(pipeline, {"in": inputs}, exact("out", expected), batches=(1,))
