"""Upgrades in which the graph changes: operators added, removed, changed, in another order; sources, sinks, tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from operators import (
    Aggregate,
    BroadcastOperator,
    Count,
    CountWindow,
    Global,
    ListState,
    MapState,
    Operator,
    Pipeline,
    Session,
    Sliding,
    Sum,
    Tumbling,
    after_each,
    every,
    every_s,
)
from operators.sources import GeneratedSource
from tests.oracles.frame import AnySink
from tests.properties.upgrades.driving import Channel, Scene
from tests.properties.upgrades.options import interleaved

Record = dict[str, Any]
Step = tuple[str, str, int]
"""(name, kind, a number that its function depends on)"""


@dataclass(frozen=True)
class Version:
    """One version of a pipeline.

    Attributes:
        first: operators without state before the core, by name.
        core: the operator with state.
        options: of the core.
        last: operators without state after it; of a table, its `filter` and `map_values`.
        widths: parallelism by name.
        united: a second source is united with the first.
        branch: another operator with a sink of its own reads what the core reads.
        again: an operator with state behind it.
        disorder_s: the bound of the watermarks.
        partitions: of the first source; its channels are late by their own watermarks where time orders records.
    """

    first: tuple[Step, ...] = ()
    core: str = "count"
    options: Mapping[str, Any] = field(default_factory=dict)
    last: tuple[Step, ...] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    united: bool = False
    branch: str = ""
    again: bool = False
    disorder_s: int = 2
    partitions: int = 2

    def wide(self, name: str) -> int:
        """Return the parallelism of an operator."""
        return self.widths.get(name, 1)


def at_of(record: Record) -> Any:
    """Return the time of a record."""
    return record["at"]


def key_of(record: Record) -> Any:
    """Return the key of a record."""
    return record["k"]


def value_of(record: Record) -> Any:
    """Return the value of a record."""
    return record["v"]


def listing(key: Any, records: list[Record], window: Any) -> Any:
    """A function of a window."""
    yield key, sorted(each["v"] for each in records), window.start, window.end


def pair(left: Any, right: Any) -> Any:
    """A record of two."""
    return [left and left["v"], right and right["v"]]


class Summing(Operator):
    """Keeps the sum of each key, and shows a number that is part of its code."""

    def __init__(self, number: int) -> None:
        self.number = number

    def process(self, record: Record, ctx: Any) -> Any:
        """Emit the sum."""
        ctx.state["sum"] = ctx.state.get("sum", 0) + record["v"]
        yield [ctx.key, self.number, ctx.state["sum"]]


class Numbered(Summing):
    """The same, and what it declares; timers may be left of a version that sets some."""

    values = ListState[int]()
    counts = MapState[int, int]()

    def process(self, record: Record, ctx: Any) -> Any:
        """Emit the sum, and all that it declares."""
        self.values.append(record["v"])
        self.counts[record["v"] % 3] = self.counts.get(record["v"] % 3, 0) + 1
        for row in super().process(record, ctx):
            yield [*row, list(self.values), dict(self.counts)]

    def on_timer(self, name: str, ctx: Any) -> Any:
        """Emit the sum, in whatever version a timer was set."""
        yield [ctx.key, self.number, name, ctx.state["sum"]]


class Timed(Numbered):
    """Emits the sum when event time has advanced."""

    def process(self, record: Record, ctx: Any) -> Any:
        """Set a timer."""
        ctx.state["sum"] = ctx.state.get("sum", 0) + record["v"]
        ctx.set_timer(record["at"] + 4, f"{record['v'] % 3}", clock="event")

    def finish(self, ctx: Any) -> Any:
        """Emit the rest."""
        yield [ctx.key, "end", ctx.state["sum"]]


class Ruled(BroadcastOperator):
    """Shows the rules that it knows."""

    def __init__(self, number: int) -> None:
        self.number = number

    def process(self, record: Record, ctx: Any) -> Any:
        """Emit the rules."""
        yield [record["v"], self.number, dict(ctx.broadcast)]

    def process_broadcast(self, record: Record, ctx: Any) -> None:
        """Take a rule."""
        ctx.broadcast[record["k"]] = record["v"]


ASSIGNERS: Mapping[str, Callable[[], Any]] = {
    "tumbling": lambda: Tumbling(6),
    "sliding": lambda: Sliding(8, 4),
    "session": lambda: Session(3),
    "count": lambda: CountWindow(3),
    "counts": lambda: CountWindow(4, 2),
    "global": Global,
    "clock": lambda: Tumbling(5, clock="processing"),
    "clock session": lambda: Session(2, clock="processing"),
}
CONTENTS: Mapping[str, Callable[[], Any]] = {
    "count": Count,
    "sum": lambda: Sum(value_of),
    "records": lambda: listing,
    "own": lambda: Aggregate(int, lambda total, r: total + r["v"], lambda total: [total], lambda a, b: a + b),
}
TRIGGERS: Mapping[str, Callable[[], Any]] = {
    "": lambda: None,
    "each": after_each,
    "2": lambda: every(2),
    "3": lambda: every(3, purge=True),
    "3 s": lambda: every_s(3),
    "7 s": lambda: every_s(7),
    "clock": lambda: every_s(2, clock="processing"),
}
RESULTS: Mapping[str, Callable[[int], Any] | None] = {
    "total": None,
    "hundredfold": lambda total: total * 100,
    "large": lambda total: total if total > 60 else None,
}
AGGREGATES: Mapping[str, Callable[[], Any]] = {"count": Count, "sum": lambda: Sum(value_of)}

CHOICES: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "count": {"delivery": ("arrival", "ordered")},
    "reduce": {"number": (1, 2), "delivery": ("arrival", "ordered")},
    "process": {"number": (1, 2), "delivery": ("arrival", "ordered")},
    "timers": {"number": (1, 2)},
    "speculative": {"number": (1,)},
    "window": {
        "assigner": tuple(ASSIGNERS),
        "contents": tuple(CONTENTS),
        "trigger": tuple(TRIGGERS),
        "lateness_s": (0, 0, 3, 20),
    },
    "table": {
        "ends": ("revisions", "groups", "join", "suppress", "join groups"),
        "number": (2, 3),
        "how": ("inner", "outer"),
        "result": tuple(RESULTS),
        "more": ("", "stream", "aggregate", "derived"),
        "behind": ("", "", "filter", "map"),
    },
    "aggregate_table": {"aggregate": tuple(AGGREGATES), "ends": ("revisions", "join", "suppress")},
    "window_table": {"assigner": ("tumbling", "sliding"), "grace_s": (0, 3, 20), "aggregate": tuple(AGGREGATES)},
    "join": {"within": ((-2, 2), (0, 5), (-20, 20)), "how": ("inner", "left", "outer")},
    "window_join": {"assigner": ("tumbling", "sliding"), "how": ("inner", "left", "outer")},
    "join_table": {"wait": (False, True), "as_of": (False, True), "how": ("inner", "left"), "timed": (False, True)},
    "broadcast": {"wait": (False, True), "number": (1, 2)},
}
"""Core → option → its values."""

TWO_SIDED = ("join", "window_join", "join_table", "broadcast")
TABLES = ("table", "aggregate_table", "window_table")


# Building.


def built(version: Version) -> Pipeline:
    """Build a version."""
    pipeline = Pipeline("p")
    timed = version.options.get("timed", True) is not False or version.options.get("as_of")
    stream = _source(pipeline, version, "a")
    for step in version.first:
        stream = _applied(stream, step)
    if timed:
        stream = stream.watermarks("a-time", at_of, out_of_order_s=version.disorder_s)
    if version.united:
        other = _source(pipeline, version, "c").map("c-map", lambda r: {**r, "v": r["v"] + 100})
        if timed:
            other = other.watermarks("c-time", at_of, out_of_order_s=version.disorder_s)
        stream = stream.union(other)
    keyed = stream.key_by(key_of)
    if version.branch:
        keyed.count(version.branch, parallelism=version.wide(version.branch)).sink(f"{version.branch}-out", AnySink())
    core = CORES[version.core](pipeline, keyed, version)
    for step in () if version.core in TABLES else version.last:
        core = _behind(core, step)
    if version.again and version.options.get("ends") != "suppress":
        core.key_by(lambda row: repr(row)[:6]).count("again", parallelism=version.wide("again")).sink("out", AnySink())
    else:
        core.sink("out", AnySink())
    return pipeline


def _source(pipeline: Pipeline, version: Version, name: str) -> Any:
    partitions = version.partitions if name == "a" else 1
    source = GeneratedSource(lambda partition, number: number, count=0, partitions=partitions)
    return pipeline.source(name, source, parallelism=min(partitions, version.wide(name)))


def _applied(stream: Any, step: Step) -> Any:
    name, kind, number = step
    if kind == "map":
        return stream.map(name, lambda r: {**r, "v": r["v"] * 2 + number})
    if kind == "filter":
        return stream.filter(name, lambda r: r["v"] % (number + 2))
    return stream.flat_map(name, lambda r: [{**r, "v": r["v"] + place} for place in range(number)])


def _behind(stream: Any, step: Step) -> Any:
    name, kind, number = step
    if kind == "map":
        return stream.map(name, lambda row: [number, row])
    if kind == "filter":
        return stream.filter(name, lambda row: len(repr(row)) % (number + 2))
    return stream.flat_map(name, lambda row: [[place, row] for place in range(number)])


def _other(pipeline: Pipeline, version: Version, timed: bool = True) -> Any:
    stream = _source(pipeline, version, "b")
    return stream.watermarks("b-time", at_of, out_of_order_s=version.disorder_s) if timed else stream


def _common(version: Version, *names: str) -> dict[str, Any]:
    return {"parallelism": version.wide("core"), **{name: version.options[name] for name in names}}


def _reduce(pipeline: Pipeline, keyed: Any, version: Version) -> Any:
    number = version.options["number"]
    return keyed.reduce(
        "core", lambda total, r: total + number * r["v"], initial=number, **_common(version, "delivery")
    )


def _window(pipeline: Pipeline, keyed: Any, version: Version) -> Any:
    options = version.options
    assigner, contents = ASSIGNERS[options["assigner"]](), CONTENTS[options["contents"]]()
    late: dict[str, Any] = {}
    if options["assigner"] in ("tumbling", "sliding", "session"):
        late["lateness_s"] = options["lateness_s"]
    if options["assigner"] in ("tumbling", "sliding", "global"):
        late["trigger"] = TRIGGERS[options["trigger"]]()
    return keyed.window("core", assigner, contents, parallelism=version.wide("core"), **late)


def _table(pipeline: Pipeline, keyed: Any, version: Version) -> Any:
    rows = keyed.table("core", parallelism=version.wide("core"))
    return _ended(pipeline, version, _derived(rows, version))


def _aggregate_table(pipeline: Pipeline, keyed: Any, version: Version) -> Any:
    rows = keyed.aggregate_table("core", AGGREGATES[version.options["aggregate"]](), parallelism=version.wide("core"))
    return _ended(pipeline, version, _derived(rows, version))


def _window_table(pipeline: Pipeline, keyed: Any, version: Version) -> Any:
    options = version.options
    rows = keyed.window_table(
        "core", ASSIGNERS[options["assigner"]](), AGGREGATES[options["aggregate"]](), grace_s=options["grace_s"],
        parallelism=version.wide("core"),
    )  # fmt: skip
    return _derived(rows, version).revisions("rows")


def _derived(table: Any, version: Version) -> Any:
    for name, kind, number in version.last:
        if kind == "filter":
            table = table.filter(name, lambda key, value, n=number: len(repr(value)) % (n + 2))
        else:
            table = table.map_values(name, lambda key, value, n=number: {"v": n, "of": value})
    return table


def _ended(pipeline: Pipeline, version: Version, table: Any) -> Any:
    ends, number = version.options["ends"], version.options.get("number", 2)
    if "join" in ends:
        other = _other(pipeline, version).key_by(key_of).table("other")
        table = table.join("joined", other, how=version.options.get("how", "inner"), parallelism=version.wide("joined"))
    more, behind, result = (version.options.get(name, "") for name in ("more", "behind", "result"))
    if "groups" in ends:
        groups = table.group_by("by", lambda key, value: len(repr(value)) % number)
        table = groups.aggregate("groups", _sizes(result) if result else Count(), parallelism=version.wide("groups"))
        if more in ("aggregate", "derived"):
            others = groups.aggregate("more", Count())
            others = others.map_values("one-more", lambda key, n: n + number) if more == "derived" else others
            others.revisions("more-rows").sink("more-out", AnySink())
    if ends == "suppress":
        table = table.suppress("less", after_s=4, parallelism=version.wide("less"))
    if more == "stream":
        table.to_stream("stream").sink("more-out", AnySink())
    if behind == "filter":
        table = table.filter("behind", lambda key, value: len(repr(value)) % number)
    elif behind == "map":
        table = table.map_values("behind", lambda key, value: [number, value])
    return table.revisions("rows")


def _sizes(result: str) -> Any:
    """An aggregate that retracts, with a result of its own."""
    return Aggregate(
        int,
        lambda total, value: total + len(repr(value)),
        RESULTS[result],
        subtract=lambda total, value: total - len(repr(value)),
    )


def _join(pipeline: Pipeline, keyed: Any, version: Version) -> Any:
    other = _other(pipeline, version).key_by(key_of)
    return keyed.join("core", other, fn=pair, **_common(version, "within", "how"))


def _window_join(pipeline: Pipeline, keyed: Any, version: Version) -> Any:
    other = _other(pipeline, version).key_by(key_of)
    assigner = ASSIGNERS[version.options["assigner"]]()
    return keyed.window_join("core", other, assigner, fn=pair, **_common(version, "how"))


def _join_table(pipeline: Pipeline, keyed: Any, version: Version) -> Any:
    timed = version.options["timed"] or version.options["as_of"]
    table = _other(pipeline, version, timed).key_by(key_of).table("rows")
    return keyed.join_table("core", table, fn=pair, **_common(version, "how", "wait", "as_of"))


def _broadcast(pipeline: Pipeline, keyed: Any, version: Version) -> Any:
    rules = _other(pipeline, version)
    return keyed.broadcast("core", rules, Ruled(version.options["number"]), **_common(version, "wait"))


CORES: Mapping[str, Callable[[Pipeline, Any, Version], Any]] = {
    "count": lambda pipeline, keyed, version: keyed.count("core", **_common(version, "delivery")),
    "reduce": _reduce,
    "process": lambda pipeline, keyed, version: keyed.process(
        "core", Numbered(version.options["number"]), **_common(version, "delivery")
    ),
    "timers": lambda pipeline, keyed, version: keyed.process(
        "core", Timed(version.options["number"]), **_common(version)
    ),
    "speculative": lambda pipeline, keyed, version: keyed.process(
        "core", Summing(version.options["number"]), delivery="speculative", **_common(version)
    ).revisions("rows"),
    "window": _window,
    "table": _table,
    "aggregate_table": _aggregate_table,
    "window_table": _window_table,
    "join": _join,
    "window_join": _window_join,
    "join_table": _join_table,
    "broadcast": _broadcast,
}


# Drawing.


def _steps(chance: Random, prefix: str, most: int, kinds: tuple[str, ...]) -> tuple[Step, ...]:
    return tuple(
        (f"{prefix}{place}", chance.choice(kinds), chance.randint(0, 3)) for place in range(chance.randint(0, most))
    )


def drawn(core: str, chance: Random) -> Version:
    """Draw a version."""
    options = {name: chance.choice(values) for name, values in CHOICES[core].items()}
    if core == "speculative":  # its revisions are named by the places of its records
        return Version(
            core=core,
            options=options,
            partitions=1,
            widths={"core": chance.randint(1, 2)},
            disorder_s=chance.choice((0, 2, 50)),
        )
    return Version(
        first=_steps(chance, "first", 3, ("map", "filter", "flat_map")),
        core=core,
        options=options,
        last=_steps(chance, "last", 2, _kinds(core)),
        widths={name: chance.randint(1, 3) for name in ("a", "core", "again", "joined", "groups", "less", "branch")},
        united=chance.random() < 0.2,
        branch="branch" if chance.random() < 0.2 else "",
        again=chance.random() < 0.2,
        disorder_s=chance.choice((0, 2, 50)),
    )


def _kinds(core: str) -> tuple[str, ...]:
    return ("map", "filter") if core in TABLES else ("map", "filter", "flat_map")


def changed(version: Version, chance: Random, kinds: str = "graph") -> tuple[Version, list[str]]:
    """Draw what changes, of these kinds; returns the other version and the names of the changes."""
    names = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        name = chance.choice(tuple(KINDS[kinds]))
        other = KINDS[kinds][name](version, chance)
        if other != version:
            names.append(name)
            version = other
    return version, names


def _with(version: Version, where: str, steps: list[Step]) -> Version:
    return replace(version, first=tuple(steps)) if where == "first" else replace(version, last=tuple(steps))


def _added(version: Version, chance: Random) -> Version:
    where, kinds = chance.choice((("first", ("map", "filter", "flat_map")), ("last", _kinds(version.core))))
    steps = list(getattr(version, where))
    steps.insert(chance.randint(0, len(steps)), (f"new-{where}", chance.choice(kinds), chance.randint(0, 3)))
    known = [step[0] for step in steps]
    return _with(version, where, steps) if len(set(known)) == len(known) else version


def _removed(version: Version, chance: Random) -> Version:
    where = chance.choice(("first", "last"))
    steps = list(getattr(version, where))
    if steps:
        del steps[chance.randrange(len(steps))]
    return _with(version, where, steps)


def _other_code(version: Version, chance: Random) -> Version:
    where = chance.choice(("first", "last"))
    steps = list(getattr(version, where))
    if steps:
        place = chance.randrange(len(steps))
        name, kind, number = steps[place]
        steps[place] = (name, kind, (number + chance.randint(1, 3)) % 4)
    return _with(version, where, steps)


def _swapped(version: Version, chance: Random) -> Version:
    where = chance.choice(("first", "last"))
    steps = list(getattr(version, where))
    chance.shuffle(steps)
    return _with(version, where, steps)


def _option(version: Version, chance: Random) -> Version:
    name, values = chance.choice(tuple(CHOICES[version.core].items()))
    return replace(version, options={**version.options, name: chance.choice(values)})


def _width(version: Version, chance: Random) -> Version:
    name = chance.choice(tuple(version.widths))
    return replace(version, widths={**version.widths, name: chance.randint(1, 3)})


def _tasks(version: Version, chance: Random) -> Version:
    """Draw another number of tasks of the core, and of what is behind it."""
    others = {name: chance.randint(1, 3) for name in version.widths}
    return replace(
        version, widths={**others, "core": chance.choice([n for n in (1, 2, 3) if n != version.wide("core")])}
    )


def _order(version: Version, chance: Random) -> Version:
    """Draw another order in which the core gets its records, often with a source that is added or removed."""
    choices = CHOICES[version.core].get("delivery", ())
    if "delivery" in version.options:
        [delivery] = [each for each in choices if each != version.options["delivery"]]
        version = replace(version, options={**version.options, "delivery": delivery})
    return replace(version, united=version.united != (chance.random() < 0.7))


CHANGES: Mapping[str, Callable[[Version, Random], Version]] = {
    "operator added": _added,
    "operator removed": _removed,
    "operator changed": _other_code,
    "order of operators": _swapped,
    "option": _option,
    "parallelism": _width,
    "source added or removed": lambda version, chance: replace(version, united=not version.united),
    "branch added or removed": lambda version, chance: replace(version, branch="" if version.branch else "branch"),
    "operator with state added or removed": lambda version, chance: replace(version, again=not version.again),
    "watermarks": lambda version, chance: replace(version, disorder_s=chance.choice((0, 2, 50))),
    "another core": lambda version, chance: drawn(chance.choice(tuple(CHOICES)), chance),
}


KINDS: Mapping[str, Mapping[str, Callable[[Version, Random], Version]]] = {
    "graph": CHANGES,
    "tasks": {"parallelism": _tasks},
    "options": {"option": _option, "parallelism": _tasks},
    "order": {"order": _order, "parallelism": _tasks},
}
"""Kind of upgrade → what may change in it."""


def scene(kinds: str, core: str, chance: Random) -> Scene:
    """Draw an upgrade of a graph."""
    before = drawn(core, chance)
    after, names = changed(before, chance, kinds)
    if "speculative" in (before.core, after.core):
        after = replace(after, last=(), again=False, united=False)
    by_time = any(each.options.get("delivery") == "ordered" or "as_of" in each.options for each in (before, after))
    partitions = 1 if by_time or before.partitions == 1 else 2
    before, after = (replace(each, partitions=partitions) for each in (before, after))
    suppressed = "suppress" in (before.options.get("ends"), after.options.get("ends"))
    channels: dict[Channel, list[Any]] = {}
    for version in (before, after):
        for node in built(version).nodes:
            if node.kind == "source":
                for number in range(node.subject.partitions):
                    channels.setdefault((node.name, number), [])
    for channel in channels:
        at, records = chance.randint(0, 5), list[Any]()
        for number in range(chance.randint(2, 9)):
            at += chance.choice((0, 1, 2, 3, -2, 7))
            records.append({"k": chance.choice("xyz"), "at": at, "v": chance.randint(0, 9) + 10 * number})
        channels[channel] = records
    events = interleaved(channels, chance)
    barrier = chance.randint(1, len(events) - 1)
    known = {node.name for node in built(before).nodes if node.kind == "source"}
    # A source that is new has no records before.
    early = [event for event in events[:barrier] if event.channel[0] in known]
    if not early:
        early = [next(event for event in events if event.channel[0] in known)]
    events = [*early, *(event for event in events if not any(event is each for each in early))]
    shown = f"{', '.join(names) or 'nothing'}: {before} -> {after}"
    return Scene(
        partial(built, before), partial(built, after), events, len(early),
        chance.random() < 0.3 and not suppressed, shown=shown,
    )  # fmt: skip
