"""`on_error="dead-letter"`: nothing of a record stands on which user code raises (docs/operators.md).

The oracle is the same pipeline without those records: its rows, and one letter for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from operators import (
    Aggregate,
    BroadcastOperator,
    CountWindow,
    Global,
    ListState,
    MapState,
    Max,
    Operator,
    Pipeline,
    Reduce,
    ReducingState,
    Session,
    Sliding,
    Sum,
    Tumbling,
    ValueState,
)
from operators import every as every_n
from operators.testing import TrialResult, run
from tests.oracles.frame import LETTERS, Draw, Mismatch, Scenario, oracle, same, sink, source

Row = dict[str, Any]


UNCARRIED = [{"a set"}]
"""A value that no record can hold."""


class Refused(Exception):
    """The error that user code raises here."""


def refuse(record: Row) -> None:
    """Raise on a bad record."""
    if record.get("bad"):
        raise Refused(record["bad"])


@dataclass
class Totals:
    """A typed value."""

    n: int = 0
    seen: list[int] | None = None


class Everything(Operator):
    """Changes state of every kind in a random order, and raises anywhere among the changes."""

    value = ValueState(Totals)
    plain = ValueState[int](default=0)
    items = ListState[int]()
    named = MapState[str, list[int]]()
    fold = ReducingState[list[int]](lambda first, second: first + second)

    def process(self, record: Row, ctx: Any) -> Any:
        v = record["v"]
        for number, act in enumerate(record["acts"]):
            if record.get("bad") == f"at {number}":
                raise Refused(record["bad"])
            self.act(act, v, ctx)
            if act % 3 == 0:
                yield {"act": act, "n": ctx.state.get("n", 0)}
        if record.get("bad") == "carried aside":
            ctx.aside("side", UNCARRIED)
        if record.get("bad") == "carried":
            yield UNCARRIED
            return
        refuse(record)
        yield self.shown(ctx)

    def act(self, act: int, v: int, ctx: Any) -> None:
        """Make one change."""
        letter = "abcdefgh"[v % 8]
        if act == 0:
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            ctx.state.setdefault("deep", {}).setdefault("list", []).append(v)
        elif act == 1:
            total = self.value.value
            total.n += 1
            total.seen = [*(total.seen or []), v]
        elif act == 2:
            self.items.extend([v, v + 1])
        elif act == 3 and self.items:
            self.items[v % len(self.items)] = -v
        elif act == 4:
            self.named[letter] = [v]
        elif act == 5 and letter in self.named:
            del self.named[letter]
        elif act == 6 and self.named:
            self.named[next(iter(self.named))].append(v)
        elif act == 7:
            self.fold.add([v])
        elif act == 8:
            ctx.set_timer(record_time(v), letter, clock="event")
        elif act == 9:
            ctx.clear_timer(letter, clock="event")
        elif act == 10:
            ctx.aside("side", v)
        elif act == 11:
            [self.items.clear, self.named.clear, self.value.clear, self.fold.clear, ctx.state.clear][v % 5]()
        elif act == 12:
            self.plain.value += v
        elif act == 13 and self.named:
            self.named.popitem()

    def shown(self, ctx: Any) -> Any:
        """Return all state of the key."""
        total = self.value.value
        return [
            ctx.key, dict(ctx.state), total.n, total.seen, self.plain.value, list(self.items),
            [list(each) for each in self.named.items()], self.fold.value,
        ]  # fmt: skip

    def on_timer(self, name: str, ctx: Any) -> Any:
        ctx.state["fired"] = ctx.state.get("fired", 0) + 1
        self.items.append(len(name))
        yield {"timer": name, "at": ctx.event_time()}


class Aging(Everything):
    """The same where some of it has a time to live."""

    items = ListState[int](ttl_s=6)
    named = MapState[str, list[int]](ttl_s=5)
    plain = ValueState[int](default=0, ttl_s=4)


def record_time(v: int) -> float:
    """Return the time of a timer."""
    return 3.0 * v - 10


def draw_records(draw: Draw, bad: Callable[[Draw, Row], Any], back: int = -2) -> tuple[list[Row], list[Row]]:
    """Draw (records among which some are bad, the same without those).

    A bad record never has a time of its own, so that watermarks are the same without it.
    """
    at, mixed, good = 0, [], []
    for number in range(draw.randint(0, 25)):
        at += draw.choice((0, 1, 2, 5, back))
        row = {"k": draw.choice("ab"), "at": at, "v": draw.randint(0, 9), "acts": acts(draw), "id": number}
        good.append(row)
        mixed.append(row)
        while draw.flip(0.25):
            spoilt = {**row, "k": draw.choice("ab"), "v": draw.randint(0, 9), "acts": acts(draw), "id": -number}
            mixed.append({**spoilt, "bad": bad(draw, spoilt)})
    return mixed, good


def acts(draw: Draw) -> list[int]:
    """Draw the acts of `Everything` for one record."""
    return [draw.randint(0, 13) for _ in range(draw.randint(0, 6))]


def simply(draw: Draw, row: Row) -> Any:
    """Mark a record on which everything raises."""
    return "bad"


def somewhere(draw: Draw, row: Row) -> Any:
    """Mark a record on which `Everything` raises before one of its acts, or whose output cannot be carried."""
    return draw.choice(["end", "carried", "carried aside", *(f"at {number}" for number in range(len(row["acts"])))])


def sieve(pipeline: Pipeline, mixed: list[Row], good: list[Row], config: dict[str, Any], where: str) -> Scenario:
    """Expect the rows without the bad records, and a letter for each of these."""
    expected = run(pipeline, {"in": good}, **config)
    bad = [record["id"] for record in mixed if "bad" in record]

    def check(result: TrialResult) -> None:
        letters = [letter for letter in result.rows.get(LETTERS, []) if letter["operator"] == where]
        ids = [letter["record"]["id"] for letter in letters]
        if sorted(ids) != sorted(bad) or len(letters) != len(result.rows.get(LETTERS, [])):
            raise Mismatch(f"letters of {ids}, expected {bad}: {result.rows.get(LETTERS)!r:.500}")
        for name in expected.rows:
            if name != LETTERS:
                same(name, result.rows.get(name, []), expected.rows[name])

    return Scenario(pipeline, {"in": mixed}, check, {**config, "on_error": "dead-letter"})


def config_of(draw: Draw) -> dict[str, Any]:
    """State in memory, or on disk: the frame then leaves next to none of it in memory."""
    return draw.choice([{}, {"state": "disk"}])


@oracle("letters-process")
def _process(draw: Draw) -> Scenario:
    """State of all kinds, timers, side outputs and rows of an operator that raises somewhere in the middle."""
    pipeline, delivery = Pipeline("p"), draw.choice(("arrival", "arrival", "ordered"))
    mixed, good = draw_records(
        draw, somewhere, back=0 if delivery == "ordered" else -2
    )  # the operator gets none that is late
    stream = source(pipeline).watermarks("time", lambda r: r["at"]).key_by(lambda r: r["k"])
    operator = Aging() if draw.flip() else Everything()
    processed = stream.process("p", operator, delivery=delivery)
    sink(processed)
    sink(processed.side("side"), "side")
    scenario = sieve(pipeline, mixed, good, config_of(draw), "p")
    # Between which records a timer fires is a matter of batches where they are not ordered.
    return replace(scenario, batches=(1,)) if delivery == "arrival" else scenario


class Timed(Operator):
    """Changes state and timers in `on_timer`, and raises there at even times."""

    items = ListState[int]()

    def process(self, record: Row, ctx: Any) -> Any:
        ctx.set_timer(record["at"], "t", clock="event")

    def on_timer(self, name: str, ctx: Any) -> Any:
        before = [list(self.items), dict(ctx.state)]
        self.items.append(1)
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        at = ctx.event_time()
        if name == "t":
            ctx.set_timer(at + 3, f"after {at}", clock="event")
        yield [name, at, before]
        if at % 2 == 0:
            raise Refused(name)


@oracle("letters-timers")
def _timers(draw: Draw) -> Scenario:
    """A timer whose `on_timer` raises has fired, and done nothing."""
    pipeline, times = Pipeline("p"), sorted({draw.randint(0, 30) for _ in range(draw.randint(0, 10))})
    stream = source(pipeline).watermarks("time", lambda r: r["at"]).key_by(lambda r: 0)
    sink(stream.process("p", Timed()))
    # Each timer fires before the next record is there: the watermark is at its time.
    rows: list[Any] = []
    pending: list[tuple[int, str]] = []
    failed = n = 0
    for at in [*times, None]:
        for due in sorted(each for each in pending if at is None or each[0] < at):
            pending.remove(due)
            rows, failed, n = _fired(rows, failed, n, pending, due, at)
        if at is not None:
            pending.append((at, "t"))
            for due in sorted(each for each in pending if each[0] <= at):
                pending.remove(due)
                rows, failed, n = _fired(rows, failed, n, pending, due, at)
    while pending:
        due = min(pending)
        pending.remove(due)
        rows, failed, n = _fired(rows, failed, n, pending, due, None)

    def check(result: TrialResult) -> None:
        same("out", result["out"], rows)
        if len(result.rows.get(LETTERS, [])) != failed:
            raise Mismatch(f"{result.rows.get(LETTERS)}, expected {failed}")

    records = [{"at": at} for at in times]
    return Scenario(pipeline, {"in": records}, check, {"on_error": "dead-letter", **config_of(draw)}, batches=(1,))


def _fired(rows: list[Any], failed: int, n: int, pending: list[Any], due: Any, now: Any) -> tuple[list[Any], int, int]:
    at, name = due
    if at % 2 == 0:
        return rows, failed + 1, n
    if name == "t":
        pending.append((at + 3, f"after {float(at)}"))
    return [*rows, [name, float(at), [[1] * n, {"n": n} if n else {}]]], failed, n + 1


def adds(values: list[Any], record: Row) -> list[Any]:
    """Change the accumulator before it raises."""
    values.append(record["v"])
    refuse(record)
    return values


def spoils(values: list[Any], record: Row) -> list[Any]:
    """Return an accumulator that cannot be carried for a bad record."""
    values.append(UNCARRIED if "bad" in record else record["v"])
    return values


def joins(first: list[int], second: list[int]) -> list[int]:
    """Change its first argument."""
    first.extend(second)
    return first


def ofs(record: Row) -> int:
    """Return a value, or raise."""
    refuse(record)
    return int(record["v"])


def results(values: list[int]) -> list[int]:
    """Change its argument, the accumulator."""
    values.sort()
    return list(values)


def aggregate(draw: Draw) -> Any:
    """Draw an aggregate whose `add` raises on bad records."""
    return draw.choice(
        [
            Sum(ofs),
            Max(ofs),
            Aggregate(list, adds, merge=joins),
            Aggregate(list, adds, result=results, merge=joins),
            Reduce(lambda first, second: {**first, "v": ofs(first) + ofs(second)}),
        ]
    )


@oracle("letters-windows")
def _windows(draw: Draw) -> Scenario:
    """`add` raises: the record is in no window, and no session is as it would be with the record."""
    pipeline = Pipeline("p")
    mixed, good = draw_records(draw, simply, back=0)  # no function sees a late record
    stream = source(pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=draw.choice((0, 3)))
    if draw.flip(0.7):
        stream = stream.key_by(lambda r: r["k"])
    kind = draw.choice(("tumbling", "sliding", "slices", "session", "count", "sliding count", "global", "triggered"))
    options: dict[str, Any] = {}
    assigner: Any = {
        "tumbling": Tumbling(4),
        "sliding": Sliding(6, 2),
        "slices": Sliding(16, 2),
        "session": Session(3),
        "count": CountWindow(3),
        "sliding count": CountWindow(4, every=2),
        "global": Global(),
        "triggered": Sliding(6, 2),
    }[kind]
    if kind in ("global", "triggered"):
        options["trigger"] = every_n(2, purge=draw.flip())
    aggregation = aggregate(draw)
    if isinstance(aggregation, Reduce):  # the function does not see the first record of a window
        aggregation = Sum(ofs)
    sink(stream.window("w", assigner, aggregation, parallelism=1, **options))
    scenario = sieve(pipeline, mixed, good, {}, "w")
    return replace(scenario, batches=(1,)) if options else scenario


@oracle("letters-folds")
def _folds(draw: Draw) -> Scenario:
    """`reduce`, `aggregate_table`, `window_table`, `flat_map`: nothing of a bad record stands."""
    pipeline = Pipeline("p")
    mixed, good = draw_records(draw, simply, back=0)  # no aggregate sees a late record
    stream = source(pipeline).watermarks("time", lambda r: r["at"])
    kind = draw.choice(("reduce", "aggregate_table", "window_table", "flat_map", "map", "filter"))
    if kind == "flat_map":

        def several(record: Row) -> Any:
            yield record["v"]
            refuse(record)
            yield record["id"]

        sink(stream.flat_map("w", several))
    elif kind in ("map", "filter"):

        def value_of(record: Row) -> Any:
            refuse(record)
            return record["v"]

        sink(getattr(stream, kind)("w", value_of))
    elif kind == "reduce":
        sink(stream.key_by(lambda r: r["k"]).reduce("w", draw.choice((adds, spoils)), initial=list))
    elif kind == "aggregate_table":
        sink(stream.key_by(lambda r: r["k"]).aggregate_table("w", table_aggregate(draw)).revisions("rows"))
    else:
        assigners: list[Tumbling | Sliding] = [Tumbling(4), Sliding(6, 2)]
        assigner = draw.choice(assigners)
        keyed = stream.key_by(lambda r: r["k"])
        sink(keyed.window_table("w", assigner, table_aggregate(draw), grace_s=3).revisions("rows"))
    return sieve(pipeline, mixed, good, {}, "w")


def table_aggregate(draw: Draw) -> Any:
    """Draw an aggregate whose `add`, or whose `result`, raise."""

    def keeps(values: list[Any], record: Row) -> list[Any]:
        values.append([record["v"], record.get("bad")])
        return values

    def result(values: list[Any]) -> Any:
        if values and values[-1][1]:
            raise Refused(values[-1][1])
        return [v for v, _ in values]

    def uncarried(values: list[Any]) -> Any:
        return [UNCARRIED if bad else v for v, bad in values]

    return draw.choice(
        [
            Sum(ofs),
            Aggregate(list, adds),
            Aggregate(list, spoils),
            Aggregate(list, keeps, result=result),
            Aggregate(list, keeps, result=uncarried),
        ]
    )


@oracle("letters-readers")
def _readers(draw: Draw) -> Scenario:
    """A record that cannot be carried is one letter and reaches none of its readers, in this task or in another."""
    pipeline = Pipeline("p")
    mixed, good = draw_records(draw, simply)
    stream = source(pipeline)
    if draw.flip():
        stream = stream.map("before", lambda r: r)

    def spoilt(record: Row) -> Row:
        return {**record, "v": UNCARRIED} if "bad" in record else record

    def several(record: Row) -> Any:
        yield from [{"id": record["id"], "v": 0}, spoilt(record)] if "bad" not in record else [spoilt(record)]

    mapped = stream.map("w", spoilt) if draw.flip() else stream.flat_map("w", several)
    sink(mapped)
    if draw.flip():
        sink(mapped, "second")
    if draw.flip():
        sink(mapped.map("id", lambda r: r["id"]), "ids")
    if draw.flip():
        sink(mapped.key_by(lambda r: r["id"] % 3).process("n", Counting()), "counts")

    def late(record: Row) -> Any:
        if record["v"] == 5:
            raise Refused("five")
        return record["id"]

    if draw.flip():
        sink(mapped.map("five", late), "late")

    def key_of(record: Row) -> Any:
        if record["v"] == 6:
            raise Refused("six")
        return record["id"] % 3

    if draw.flip():
        sink(mapped.key_by(key_of).process("six", Counting()), "sixes")
    expected = run(pipeline, {"in": good}, on_error="dead-letter")

    def check(result: TrialResult) -> None:
        letters, known = result.rows.get(LETTERS, []), expected.rows.get(LETTERS, [])
        if len([each for each in letters if each["operator"] == "w"]) != len(mixed) - len(good):
            raise Mismatch(f"{letters}, expected {len(mixed) - len(good)}")
        others = sorted([each["operator"], each["record"]["id"]] for each in letters if each["operator"] != "w")
        if others != sorted([each["operator"], each["record"]["id"]] for each in known):
            raise Mismatch(f"letters of {others}, expected {known}")
        positions = [each["position"] for each in letters if each["operator"] == "five"]
        at = [index for index, record in enumerate(mixed) if "bad" not in record and record["v"] == 5]
        if positions and positions != at and None not in positions:
            raise Mismatch(f"letters at {positions}, expected {at}")
        for name in expected.rows:
            if name != LETTERS:
                same(name, result.rows.get(name, []), expected.rows[name])

    return Scenario(pipeline, {"in": mixed}, check, {"on_error": "dead-letter"})


class Counting(Operator):
    """Numbers the records of a key."""

    def process(self, record: Row, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return [[record["id"], ctx.state["n"]]]


class Ruled(BroadcastOperator):
    """Counts records by rules; both kinds may be bad."""

    def process(self, record: Row, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        refuse(record)
        yield record["id"], ctx.state["n"], {k: list(v) for k, v in ctx.broadcast.items()}

    def process_broadcast(self, rule: Row, ctx: Any) -> Any:
        ctx.broadcast.setdefault(rule["k"], []).append(rule["v"])
        if rule["v"] == 3:
            ctx.broadcast.pop("a", None)
        yield "rule", rule["id"]
        refuse(rule)


@oracle("letters-broadcast")
def _broadcast(draw: Draw) -> Scenario:
    """A bad rule has changed nothing, and neither has a bad record."""
    pipeline = Pipeline("p")
    mixed, good = draw_records(draw, simply)
    rules, right = draw_records(draw, simply)
    stream = source(pipeline).key_by(lambda r: r["k"])
    sink(stream.broadcast("w", source(pipeline, "rules"), Ruled(), wait=True, parallelism=1))
    expected = run(pipeline, {"in": good, "rules": right})
    bad = len(mixed) - len(good) + len(rules) - len(right)

    def check(result: TrialResult) -> None:
        same("out", sorted(result["out"], key=repr), sorted(expected["out"], key=repr))
        if len(result.rows.get(LETTERS, [])) != bad:
            raise Mismatch(f"{len(result.rows.get(LETTERS, []))} letters, expected {bad}")

    return Scenario(pipeline, {"in": mixed, "rules": rules}, check, {"on_error": "dead-letter"})


class Latest(Operator):
    """Lists in its state the values that came: the speculative operator."""

    def process(self, record: Row, ctx: Any) -> Any:
        ctx.state.setdefault("seen", []).append(record["v"])
        yield record["id"], list(ctx.state["seen"])
        refuse(record)


@oracle("letters-speculative")
def _speculative(draw: Draw) -> Scenario:
    """A record that fails has no rows, and the state behind it is that before it."""
    pipeline = Pipeline("p")
    mixed, good = draw_records(draw, simply)
    stream = source(pipeline).watermarks("time", lambda r: r["at"], out_of_order_s=50).key_by(lambda r: r["k"])
    sink(stream.process("w", Latest(), delivery="speculative").revisions("rows"))
    expected = _standing(run(pipeline, {"in": good})["out"])

    def check(result: TrialResult) -> None:
        same("out", _standing(result["out"]), expected)
        ids = sorted(letter["record"]["id"] for letter in result.rows.get(LETTERS, []))
        if ids != sorted(record["id"] for record in mixed if "bad" in record):
            raise Mismatch(f"letters of {ids}")

    return Scenario(pipeline, {"in": mixed}, check, {"on_error": "dead-letter"})


def _standing(revisions: list[Any]) -> list[Any]:
    rows: dict[Any, Any] = {}
    for place, _, new in revisions:
        rows[place] = new
    return sorted([row for row in rows.values() if row is not None], key=repr)


@oracle("letters-groups")
def _groups(draw: Draw) -> Scenario:
    """A value that a group refuses is in no group, and is not taken back when it goes."""
    pipeline = Pipeline("p")
    stream = source(pipeline).key_by(lambda r: r["id"])
    groups = stream.table("t").group_by("by", lambda key, row: row["k"])
    kind = draw.choice(("sum", "result"))
    if kind == "sum":
        aggregation: Any = Sum(lambda row: 10 // row["v"])
    else:

        def result(total: int) -> int:
            return total - total % (10 // (total % 4))

        aggregation = Aggregate(
            int, lambda total, row: total + row["v"], result=result, subtract=lambda total, row: total - row["v"]
        )
    sink(groups.aggregate("w", aggregation).revisions("rows"))

    def drawn() -> Row:
        return {"id": draw.randint(0, 3), "k": draw.choice("ab"), "v": draw.randint(0, 3)}

    rows = draw.listed(25, drawn)
    table: dict[int, Row] = {}
    taken: dict[str, list[int]] = {"a": [], "b": []}
    accepted: dict[int, bool] = {}
    letters, standing = 0, dict[str, Any]()

    def value(group: str) -> Any:
        values = taken[group]
        if not values:
            return None
        if kind == "sum":
            return sum(10 // v for v in values)
        total = sum(values)
        return total - total % (10 // (total % 4))

    for row in rows:
        old, problem = table.get(row["id"]), 0
        if old == row:
            continue
        moved = old is not None and old["k"] != row["k"]
        if old is not None and accepted[row["id"]]:
            taken[old["k"]].remove(old["v"])
            if moved:
                problem += _settle(old["k"], value, standing)
        table[row["id"]] = row
        taken[row["k"]].append(row["v"])
        try:
            standing[row["k"]] = value(row["k"])
            accepted[row["id"]] = True
        except ZeroDivisionError:
            taken[row["k"]].remove(row["v"])
            accepted[row["id"]] = False
            _settle(row["k"], value, standing)
            problem += 1
        letters += problem

    def check(result: TrialResult) -> None:
        last = {key: new for key, _, new in result["out"]}
        wanted = {key: row for key, row in standing.items() if row is not None}
        rows = {key: row for key, row in last.items() if row is not None}
        if rows != wanted:
            raise Mismatch(f"rows {rows}, expected {wanted}: {result['out']}")
        if len(result.rows.get(LETTERS, [])) != letters:
            raise Mismatch(f"{result.rows.get(LETTERS)}, expected {letters}")
        before: dict[Any, Any] = {}
        for key, old, new in result["out"]:
            if before.get(key) != old:
                raise Mismatch(f"a revision of {key} says {old!r}, it was {before.get(key)!r}")
            before[key] = new

    return Scenario(pipeline, {"in": rows}, check, {"on_error": "dead-letter"})


def _settle(group: str, value: Callable[[str], Any], standing: dict[str, Any]) -> int:
    """The row of a group that has lost a value; 1 where there is none because `result` raises."""
    try:
        standing[group] = value(group)
    except ZeroDivisionError:
        standing[group] = None
        return 1
    return 0
