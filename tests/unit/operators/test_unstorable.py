"""A value that no state or no record can hold makes one dead letter, and has no effect."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from operator import setitem
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from operators import (
    Aggregate,
    BroadcastOperator,
    CountWindow,
    Global,
    ListState,
    MapState,
    Operator,
    ReducingState,
    Session,
    Sliding,
    Sum,
    Tumbling,
    ValueState,
)
from operators.tracebacks import shown
from tests.unit.operators.scene import NoSink, ran, source

NAN = float("nan")
ROWS = [{"k": 1, "id": number, "t": number} for number in range(4)]


class Text(str):
    """A text of another class."""


def nested(depth: int, kind: Any = list) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = kind([value])
    return value


def circle() -> Any:
    items: list[Any] = []
    items.append(items)
    return items


NASTY: dict[str, Callable[[], Any]] = {
    "a NaN key": lambda: {NAN: 1},
    "a NaN in a key": lambda: {"a": [{(1, NAN): 1}]},
    "a NaN of Decimal as key": lambda: {Decimal("NaN"): 1},
    "a huge int": lambda: 10**5000,
    "a huge int in a list": lambda: [-(10**5000)],
    "a huge int as key": lambda: {10**5000: 1},
    "deep nesting": lambda: nested(1100),
    "tuples": lambda: nested(40, tuple),
    "a circle": circle,
    "a set": lambda: {1},
    "a frozenset as key": lambda: {frozenset((1,)): 1},
    "a subclass of dict": lambda: OrderedDict(a=1),
    "a subclass of str": lambda: [Text("a")],
    "an object": lambda: [object()],
    "a time zone": lambda: datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    "a time zone in a dict": lambda: {"at": datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))},
}
LARGE: dict[str, Callable[[], Any]] = {
    "a long text": lambda: "x" * 5000,
    "a Decimal of many digits": lambda: Decimal(10**4000),
    "an int of many digits": lambda: 10**4000,
}
LIMIT = 4000
"""`record_bytes_max` in these tests."""
STRICT: dict[str, Callable[[], Any]] = {"a bytearray": lambda: [bytearray(b"a")]}
"""Values that a record may hold, where they become bytes, and a state may not: they could change in place."""
FAIR: dict[str, Callable[[], Any]] = {
    "a surrogate": lambda: "\ud800",
    "mixed keys": lambda: {1: 1, "1": 2, (1, 2): 3, None: 4, 1.5: 5},
    "a NaN": lambda: [NAN, Decimal("NaN"), {"NaN": NAN}],
    "an int of 80 bits": lambda: 1 << 80,
    "a text of NaN": lambda: {"NaN": {1: "NaN"}},
}


VALUES = NASTY | LARGE | STRICT | FAIR
Build = Callable[[Any], Any]


def key_of(record: Any) -> Any:
    return record["k"]


def grown(total: Any, record: Any) -> Any:
    return [total[0] + 1, VALUES[record["bad"]]() if "bad" in record else 0]


def aggregate() -> Aggregate[Any, Any]:
    return Aggregate(
        lambda: [0, 0],
        lambda total, record: grown(total, record),
        result=lambda total: total[0],
        merge=lambda first, second: [first[0] + second[0], 0],
        subtract=lambda total, record: [total[0] - 1, 0],
    )


def row_of(key: Any, row: Any) -> Any:
    return row


def timed(stream: Any) -> Any:
    return stream.watermarks("wm", lambda r: r["t"])


def windowed(assigner: Any) -> Build:
    def build(stream: Any) -> Any:
        keyed = (stream if isinstance(assigner, CountWindow) else timed(stream)).key_by(key_of)
        return keyed.window("w", assigner, aggregate())

    return build


Keep = Callable[[Any, Any, Any], object]
"""A function of (operator, value, ctx)."""


class Keeps(Operator):
    """Counts the records, and keeps the value of a bad one."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if "bad" in record:
            self._keep(self, VALUES[record["bad"]](), ctx)
        yield [record["id"], ctx.state["n"]]


class Declares(Keeps):
    """The same with declared states."""

    one: Any = ValueState()
    several: Any = ValueState(default=list)
    fold: Any = ReducingState(lambda one, other: other)
    items: Any = ListState()
    entries: Any = MapState()


def kept(op: Any, value: Any, ctx: Any) -> None:
    ctx.state["v"] = value


def processed(keep: Keep, **options: Any) -> Build:
    def build(stream: Any) -> Any:
        operator = (Keeps if options else Declares)(keep)
        out = (timed(stream) if options else stream).key_by(key_of).process("w", operator, **options)
        return out.to_stream("s", row_of) if options.get("delivery") == "speculative" else out

    return build


KEEPS: dict[str, Build] = {
    "reduce": lambda s: (
        s.key_by(key_of)
        .reduce("w", lambda total, r: grown(total, r), initial=[0, 0])
        .map("m", lambda pair: [pair[0], pair[1][0]])
    ),
    "aggregate_table": lambda s: s.key_by(key_of).aggregate_table("w", aggregate()).to_stream("s", row_of),
    "aggregate": lambda s: (
        s.key_by(lambda r: r["id"])
        .table("t")
        .group_by("g", lambda key, row: 0)
        .aggregate("w", aggregate())
        .to_stream("s", row_of)
    ),
    "window_table": lambda s: (
        timed(s).key_by(key_of).window_table("w", Tumbling(10), aggregate()).to_stream("s", row_of)
    ),
    "tumbling": windowed(Tumbling(10)),
    "sliding": windowed(Sliding(10, 5)),
    "session": windowed(Session(10)),
    "global": windowed(Global()),
    "count": windowed(CountWindow(3)),
    "ctx.state": processed(kept),
    "ctx.state in order": processed(kept, delivery="ordered"),
    "ctx.state speculative": processed(kept, delivery="speculative"),
    "ValueState": processed(lambda op, value, ctx: setattr(op.one, "value", value)),
    "ValueState in place": processed(lambda op, value, ctx: op.several.value.append(value)),
    "ReducingState": processed(lambda op, value, ctx: (op.fold.add(0), op.fold.add(value))),
    "ListState": processed(lambda op, value, ctx: op.items.append(value)),
    "ListState item": processed(lambda op, value, ctx: (op.items.extend([1, 2]), setitem(op.items, 0, value))),
    "MapState": processed(lambda op, value, ctx: setitem(op.entries, "a", value)),
    "MapState in place": processed(lambda op, value, ctx: (op.entries.update(a=[]), op.entries["a"].append(value))),
}


class Sends(Operator):
    """Gives the value of a bad record, or puts it aside."""

    def __init__(self, aside: bool = False) -> None:
        self._aside = aside

    def process(self, record: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        output = [record["id"], ctx.state["n"], VALUES[record["bad"]]() if "bad" in record else 0]
        return ctx.aside("late", output) if self._aside else [output]


def rows_of(result: Build) -> Build:
    def build(stream: Any) -> Any:
        rows: Aggregate[Any, Any] = Aggregate(
            lambda: [0, 0],
            lambda total, r: [total[0] + 1, r],
            result=lambda total: [total[0], VALUES[total[1]["bad"]]() if "bad" in total[1] else 0],
        )
        return result(stream.key_by(key_of).aggregate_table("w", rows))

    return build


def filtered(build: Build) -> Build:
    return lambda stream: build(stream).filter("last", lambda r: True)


SENDS: dict[str, Build] = {
    "process": lambda stream: stream.key_by(key_of).process("w", Sends()),
    "side": lambda stream: stream.key_by(key_of).process("w", Sends(aside=True)).side("late"),
    "reduce": lambda stream: stream.key_by(key_of).reduce(
        "w", lambda total, r: VALUES[r["bad"]]() if "bad" in r else [r["id"]], initial=0
    ),
    "revisions": rows_of(lambda table: table.revisions("r")),
    "revisions of a filter": rows_of(lambda table: table.filter("f", lambda key, row: True).revisions("r")),
}
SENDS |= {f"{name}, filtered": filtered(build) for name, build in SENDS.items()}


def outcome(build: Build, records: Any, sinks: int = 1, **settings: Any) -> tuple[Any, list[Any]]:
    """Return the rows of each sink, and the letters."""

    def branched(stream: Any) -> Any:
        out = build(stream)
        for number in range(1, sinks):
            out.sink(f"out{number}", NoSink())
        return out

    result = ran(branched, records, on_error="dead-letter", checkpoint_every=1, **settings)
    letters = result.rows.get("dead-letters", [])
    return {name: rows for name, rows in result.rows.items() if name != "dead-letters"}, letters


def records_with(values: Iterable[str]) -> list[Any]:
    return [*ROWS[:2], *({"k": 1, "id": 2, "t": 2, "bad": name} for name in values), ROWS[3]]


def expect_no_effect(build: Build, values: Iterable[str], **settings: Any) -> None:
    rows, letters = outcome(build, records_with(values), **settings)
    expected, none = outcome(build, records_with(()), **settings)
    blamed = [(each["operator"], bad_of(each)) for each in letters]
    assert (blamed, none) == ([("w", name) for name in values], [])
    assert repr(rows) == repr(expected)


def bad_of(letter: Any) -> Any:
    record = letter["record"]
    return record["bad"] if isinstance(record, dict) else record[2]["bad"] if type(record) is list else record


@pytest.mark.parametrize("build", KEEPS)
def test_what_no_state_can_hold_has_no_effect(build: str) -> None:
    expect_no_effect(KEEPS[build], [*NASTY, *STRICT])


@pytest.mark.parametrize("build", SENDS)
@pytest.mark.parametrize("sinks", [1, 2])
def test_what_no_record_can_hold_has_no_effect(build: str, sinks: int) -> None:
    expect_no_effect(SENDS[build], [*NASTY, *LARGE], sinks=sinks, record_bytes_max=LIMIT)


@pytest.mark.parametrize("build", KEEPS)
def test_what_a_state_can_hold_is_kept(build: str) -> None:
    _, letters = outcome(KEEPS[build], records_with(FAIR))
    assert letters == []


class ByRules(BroadcastOperator):
    """Keeps rules, the value of a bad one among them."""

    def process_broadcast(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.broadcast["n"] = [ctx.broadcast.get("n", [0])[0] + 1]
        if "bad" in record:
            ctx.broadcast["n"].append(VALUES[record["bad"]]())
        yield ctx.broadcast["n"]

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        return iter(())


def test_a_rule_that_no_state_can_hold_has_no_effect() -> None:
    def build(stream: Any) -> Any:
        empty = stream.pipeline.source("none", source())
        return empty.broadcast("w", stream, ByRules())

    expect_no_effect(build, NASTY)


def test_a_record_with_nan_as_a_key_is_one_letter_for_all_that_read_it() -> None:
    def build(stream: Any) -> Any:
        spoilt = stream.map("w", lambda r: {**r, "v": {NAN: 1}} if r["id"] == 2 else r)
        by_id = spoilt.key_by(lambda r: r["id"])
        by_id.window("c", CountWindow(1), lambda key, rows, window: rows).sink("rows", NoSink())
        return spoilt.key_by(key_of).reduce("n", lambda total, r: total + 1, initial=0)

    result = ran(build, ROWS, on_error="dead-letter", checkpoint_every=1)
    assert result["out"] == [(1, 1), (1, 2), (1, 3)] and sorted(r["id"] for r in result["rows"]) == [0, 1, 3]
    assert [(letter["operator"], letter["position"]) for letter in result.rows["dead-letters"]] == [("w", 2)]


SIZES = [10, 600, 20, 400, 900, 410, 30]
"""The bytes of rows; of those above half of a record no revision to another one could leave."""


def text_of(record: Any) -> Any:
    return {"text": "x" * record["size"]}


def latest_text() -> Aggregate[Any, Any]:
    return Aggregate(int, lambda total, record: record["size"], result=lambda size: "x" * size)


TABLES: dict[str, Build] = {
    "table": lambda stream: stream.map("m", text_of).key_by(lambda r: 1).table("w"),
    "aggregate_table": lambda stream: stream.key_by(key_of).aggregate_table("w", latest_text()),
    "map_values": lambda stream: stream.key_by(key_of).table("t").map_values("w", lambda key, row: text_of(row)),
    "join": lambda stream: (
        stream.key_by(key_of).table("t").join("w", stream.key_by(key_of).table("o"), lambda left, right: text_of(left))
    ),
    "window_table": lambda stream: (
        stream.watermarks("wm", lambda r: 0).key_by(key_of).window_table("w", Tumbling(10), latest_text())
    ),
}


def rows_of_sizes(build: Build, sizes: list[int]) -> tuple[Any, list[Any]]:
    def grouped_rows(stream: Any) -> Any:
        groups = build(stream).group_by("g", lambda key, row: 0)
        return groups.aggregate("sum", Sum(lambda row: len(str(row)))).to_stream("ts", row_of)

    return outcome(grouped_rows, [{"k": 1, "size": size} for size in sizes], record_bytes_max=1000)


@pytest.mark.parametrize("table", TABLES)
def test_a_row_of_which_no_revision_could_leave_is_refused_where_it_is_made(table: str) -> None:
    rows, letters = rows_of_sizes(TABLES[table], SIZES)
    assert {letter["operator"] for letter in letters} == {"w"}
    assert len(letters) == (4 if table == "join" else 2)  # each of the two tables has a revision
    assert all("a revision has two such rows" in letter["error"] for letter in letters)
    expected, none = rows_of_sizes(TABLES[table], [size for size in SIZES if size < 500])
    assert rows["out"][-1] == expected["out"][-1] and none == []
    if table not in ("map_values", "join"):  # there the row is gone until the next value
        assert rows == expected


# Values that cannot be carried.


CARRIED_ROWS = [{"k": 1, "id": 0}, {"k": 1, "id": 1, "bad": 1}, {"k": 1, "id": 2}]
UNCARRIED = {1}
LIMITED: dict[str, Any] = {"record_bytes_max": 1000}


class Spoils(Operator):
    """Numbers the records of a key; a bad one gives what cannot leave as well."""

    def __init__(self, spoilt: Any = UNCARRIED) -> None:
        self._spoilt = spoilt

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield [record["id"], ctx.state["n"]]
        if "bad" in record:
            yield self._spoilt


def spoilt_rows(stream: Any) -> Any:
    rows = stream.key_by(key_of).table("t")
    return rows.map_values("w", lambda key, row: [row["id"], UNCARRIED] if "bad" in row else [row["id"]])


def spoilt_group(stream: Any) -> Any:
    groups = spoilt_rows(stream).group_by("g", lambda key, row: 0)
    return groups.aggregate("a", Sum(lambda row: row[0] + 1)).to_stream("ts", lambda key, row: row)


def sets(stream: Any) -> Any:
    ids: Aggregate[Any, Any] = Aggregate(list, lambda total, r: [*total, r["id"]], result=set)
    rows = stream.key_by(key_of).aggregate_table("t", ids)
    return rows.map_values("m", lambda key, row: sorted(row)).to_stream("ts", lambda key, row: row)


def totals(stream: Any) -> Any:
    total = stream.key_by(key_of).reduce("t", lambda total, r: {"text": total["text"] + r["text"]})
    return total.map("m", lambda pair: len(pair[1]["text"]))


def speculative(stream: Any) -> Any:
    keyed = stream.watermarks("t", lambda r: r["id"]).key_by(key_of)
    return keyed.process("w", Spoils("x" * 2000), delivery="speculative").revisions("r")


def two_readers(stream: Any) -> Any:
    mapped = stream.map("w", lambda r: {**r, "v": UNCARRIED} if "bad" in r else r)
    keyed = mapped.key_by(lambda r: 1 // (r["id"] - 2) or 1)
    keyed.reduce("n", lambda total, r: total + 1, initial=0).sink("second", NoSink())
    return mapped


X, Y = "x" * 600, "y" * 600
UNCARRIED_CASES: dict[str, tuple[Any, list[Any], dict[str, Any], list[Any], list[Any]]] = {
    "watermarks pass on what leaves the task": (
        lambda s: s.key_by(key_of).process("w", Spoils()).watermarks("t", lambda r: 0), CARRIED_ROWS, {},
        [[0, 1], [2, 2]], [("w", 1, CARRIED_ROWS[1])],
    ),
    "the same one by one": (
        lambda s: s.key_by(key_of).process("w", Spoils()).watermarks("t", lambda r: 0), CARRIED_ROWS, {"batch": 1},
        [[0, 1], [2, 2]], [("w", 1, CARRIED_ROWS[1])],
    ),
    "watermarks after a map": (
        lambda s: s.map("w", lambda r: UNCARRIED if "bad" in r else r["id"]).watermarks("t", lambda r: 0), CARRIED_ROWS,
        {"batch": 1}, [0, 2], [("t", 1, "{1}")],
    ),
    "a row of a table that leaves through revisions is as if its function had raised": (
        lambda s: spoilt_rows(s).revisions("rev"), CARRIED_ROWS, {},
        [(1, None, [0]), (1, [0], None), (1, None, [2])], [("w", 1, CARRIED_ROWS[1])],
    ),
    "a row of a table that leaves for a group is never taken back": (
        spoilt_group, CARRIED_ROWS, {}, [1, None, 3], [("w", 1, CARRIED_ROWS[1])],
    ),
    "what stays in its task need not be carried": (sets, CARRIED_ROWS, {}, [[0], [0, 1], [0, 1, 2]], []),
    "a total may be larger than a record where it stays in its task": (
        totals, [{"k": 1, "text": X}] * 3, LIMITED, [600, 1200, 1800], [],
    ),
    "a text that is too large to leave has had no effect": (
        lambda s: s.key_by(lambda r: 1).reduce("w", lambda total, text: total + text, initial=""), [X, Y, "z"], LIMITED,
        [(1, X), (1, X + "z")], [("w", 1, shown(Y))],
    ),
    "speculative output that is too large has had no effect": (
        speculative, CARRIED_ROWS, LIMITED, [((0.0, 0, 0, 0, 0), None, [0, 1]), ((2.0, 0, 0, 4, 0), None, [2, 2])],
        [("w", None, CARRIED_ROWS[1])],
    ),
    "a key that fails after a record was refused names its own record": (
        two_readers, [*CARRIED_ROWS, {"k": 1, "id": 3}], {"batch": 10},
        [CARRIED_ROWS[0], CARRIED_ROWS[2], {"k": 1, "id": 3}],
        [("w", 1, str({**CARRIED_ROWS[1], "v": UNCARRIED})), ("key_by before n", 2, CARRIED_ROWS[2])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNCARRIED_CASES)
def test_a_value_that_cannot_be_carried_is_one_letter_and_has_no_effect(case: str) -> None:
    build, records, settings, rows, letters = UNCARRIED_CASES[case]
    result = ran(build, records, on_error="dead-letter", **settings)
    assert result["out"] == rows
    actual = [(each["operator"], each["position"], each["record"]) for each in result.rows.get("dead-letters", [])]
    assert actual == letters
