"""Tables that change their code, in plain Python: what each reader has of each row, and what it gets next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from operators.kinds.tables.sameness import same
from operators.kinds.windows.aggregates import Aggregate

MAPS: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda key, value: value,
    "tenfold": lambda key, value: {**value, "v": value["v"] * 10},
    "constant": lambda key, value: {"v": 7},
    "odd ones": lambda key, value: {**value, "v": -value["v"]} if value["v"] % 2 else None,
}
FILTERS: dict[str, Callable[[Any, Any], Any]] = {
    "all": lambda key, value: True,
    "from 3": lambda key, value: value["v"] >= 3,
    "even": lambda key, value: value["v"] % 2 == 0,
    "none": lambda key, value: False,
}
GROUPS: dict[str, Callable[[Any, Any], Any]] = {
    "one": lambda key, value: 0,
    "key": lambda key, value: key % 2,
    "value": lambda key, value: value["v"] % 3,
}
RESULTS: dict[str, Callable[[Any], Any] | None] = {
    "total": None,
    "hundredfold": lambda total: {"v": total * 100},
    "large": lambda total: {"v": total} if total > 9 else None,
}
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "left": lambda left, right: left,
    "sum": lambda left, right: {"v": left["v"] + right["v"]},
}


def total(result: str) -> Aggregate[Any, Any]:
    return Aggregate(
        int,
        lambda total, value: total + value["v"],
        RESULTS[result] or (lambda total: {"v": total}),
        subtract=lambda total, value: total - value["v"],
    )


@dataclass(frozen=True)
class Graph:
    """One version: `t`, then `first`, perhaps a `suppress`, `then`, and readers; an aggregate has readers of its own.

    Attributes:
        first, then, last: (name, function) of filters (f…) and of maps (m…).
        readers: names of readers: rv, ts; w and w2 are aggregates of one group_by.
        join: the function of a join with a table `u`; "" for none.
    """

    first: tuple[tuple[str, str], ...] = ()
    suppress: bool = False
    then: tuple[tuple[str, str], ...] = ()
    last: tuple[tuple[str, str], ...] = ()
    readers: tuple[str, ...] = ("rv", "ts", "w")
    group: str = "one"
    grouping: str = "g"
    result: str = "total"
    join: str = ""
    parallelism: int = 1

    def built(self, stream: Any) -> dict[str, Any]:
        """Return the streams of the pipeline by sink."""
        out: dict[str, Any] = {}
        timed = stream.watermarks("times", lambda r: r["t"]).filter("rows", lambda r: "k" in r)
        stream = timed.map("row", lambda r: {"k": r["k"], "v": r["v"]})
        table = stream.key_by(lambda r: r["k"]).table("t", parallelism=self.parallelism)
        other = stream.filter("us", lambda r: r["v"] > 4).key_by(lambda r: r["k"]).table("u")
        out["u-out"] = other.revisions("u-revisions")
        table = _derived(table, self.first)
        if self.join:
            out["j-out"] = table.join("j", other, PAIRS[self.join]).revisions("rj")
        if self.suppress:
            table = table.suppress("s", after_s=5, parallelism=self.parallelism)
        table = _derived(table, self.then)
        out["t-out"] = table.revisions("all")
        if "rv" in self.readers:
            out["rv-out"] = table.revisions("rv")
        if "ts" in self.readers:
            out["ts-out"] = table.to_stream("ts")
        grouped = table.group_by(self.grouping, GROUPS[self.group])
        for name in self.readers:
            if name.startswith("w"):
                rows = _derived(grouped.aggregate(name, total(self.result)), self.last, name)
                out[f"{name}-out"] = rows.revisions(f"r{name}")
        if not any(name.startswith("w") for name in self.readers):
            out["x-out"] = grouped.aggregate("x", total("total")).revisions("rx")
        return out


def _derived(table: Any, derivations: Any, of: str = "") -> Any:
    for name, fn in derivations:
        table = table.filter(name + of, FILTERS[fn]) if name[0] == "f" else table.map_values(name + of, MAPS[fn])
    return table


def derived(derivations: Any, key: Any, value: Any) -> Any:
    for name, fn in derivations:
        if value is None:
            return None
        if name[0] == "m":
            value = MAPS[fn](key, value)
        elif not FILTERS[fn](key, value):
            return None
    return value


class Model:
    """The rows that readers have, over all versions."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.rows: dict[Any, Any] = {}
        self.others: dict[Any, Any] = {}
        self.left: dict[Any, Any] = {}
        self.joined: dict[Any, Any] = {}
        """The rows of `u` that the join has."""
        self.waiting: dict[Any, Any] = {}
        self.has: dict[str, dict[Any, Any]] = {}
        """The rows that each reader has."""
        self.sums: dict[str, dict[Any, list[int]]] = {}
        """The [number, total] of each group, by aggregate."""
        self.out: dict[str, list[Any]] = {}

    def becomes(self, graph: Graph) -> None:
        for name in set(self.has) - set(self._names(graph)):
            del self.has[name]
            self.sums.pop(name, None)
        if self.graph.suppress and not graph.suppress:
            self.waiting = {}
        if not graph.join:
            self.left, self.joined = {}, {}
        self.graph = graph

    @staticmethod
    def _names(graph: Graph) -> list[str]:
        names = ["all", *graph.readers]
        names += [] if any(name.startswith("w") for name in graph.readers) else ["x"]
        names += ["rj", "j"] if graph.join else []
        return [*names, *(f"r{name}" for name in names), *(f"row {name}" for name in names)]

    def give(self, record: Any) -> None:
        key, graph = record["k"], self.graph
        if same(self.rows.get(key), record):
            changed = False
        else:
            self.rows[key] = record
            changed = True
        if record["v"] > 4 and not same(self.others.get(key), record):
            self.others[key] = record
            if graph.join:
                self.joined[key] = record
                self._joined(key)
        if not changed:
            return
        value = derived(graph.first, key, record)
        if graph.join and not same(self.left.get(key), value):
            self.left[key] = value
            self._joined(key)
        if graph.suppress:
            self.waiting[key] = value
        else:
            self._pass(key, value)

    def release(self) -> None:
        """Send all that a `suppress` holds."""
        waiting, self.waiting = self.waiting, {}
        for key, value in waiting.items():
            self._pass(key, value)

    def _joined(self, key: Any) -> None:
        left, right = self.left.get(key), self.joined.get(key)
        row = None if left is None or right is None else PAIRS[self.graph.join](left, right)
        self._changes("rj", "j-out", key, row)

    def _changes(self, name: str, sink: str, key: Any, new: Any) -> None:
        has = self.has.setdefault(name, {})
        if not same(has.get(key), new):
            self.out.setdefault(sink, []).append((key, has.get(key), new))
            has[key] = new

    def _pass(self, key: Any, value: Any) -> None:
        graph = self.graph
        value = derived(graph.then, key, value)
        self._changes("all", "t-out", key, value)
        for name in self._names(graph):
            if name == "rv":
                self._changes("rv", "rv-out", key, value)
            elif name == "ts":
                has = self.has.setdefault("ts", {})
                if not same(has.get(key), value):
                    has[key] = value
                    self.out.setdefault("ts-out", []).append((key, value))
            elif name[0] == "w" or name == "x":
                self._grouped(name, key, value)

    def _grouped(self, name: str, key: Any, value: Any) -> None:
        graph, has = self.graph, self.has.setdefault(name, {})
        old = has.get(key)
        new = None if value is None else (GROUPS[graph.group](key, value), value)
        if same(old, new):
            return
        has[key] = new
        sums = self.sums.setdefault(name, {})
        for sign, each in ((-1, old), (1, new)):
            if each is not None:
                entry = sums.setdefault(each[0], [0, 0])
                entry[0] += sign
                entry[1] += sign * each[1]["v"]
        for group in dict.fromkeys(each[0] for each in (old, new) if each is not None):
            count, amount = sums[group]
            result = RESULTS["total" if name == "x" else graph.result] or (lambda total: {"v": total})
            row = result(amount) if count else None
            sent = self.has.setdefault(f"row {name}", {})
            if not same(sent.get(group), row):
                sent[group] = row
                self._changes(f"r{name}", f"{name}-out", group, derived(graph.last if name != "x" else (), group, row))


def some_graph(chance: Random) -> Graph:
    def derivations(*names: str) -> tuple[tuple[str, str], ...]:
        chosen = [name for name in names if chance.random() < 0.5]
        return tuple((name, chance.choice(list(FILTERS if name[0] == "f" else MAPS))) for name in chosen)

    return Graph(
        derivations("f1", "m1"), chance.random() < 0.3, derivations("m2", "f2"), derivations("f3", "m3"),
        tuple(name for name in ("rv", "ts", "w", "w2") if chance.random() < 0.7),
        chance.choice(list(GROUPS)), "g", chance.choice(list(RESULTS)),
        chance.choice(["", "", *PAIRS]), chance.choice([1, 1, 2]),
    )  # fmt: skip


def another(graph: Graph, chance: Random) -> Graph:
    """Return a graph with some changes."""
    fresh = some_graph(chance)
    names = ["first", "then", "last", "readers", "group", "result", "join", "parallelism", "suppress", "grouping"]
    chosen = chance.sample(names, chance.choice([1, 1, 2, 3]))
    changes = {name: getattr(fresh, name) for name in chosen}
    if "grouping" in chosen:
        changes["grouping"] = "g2"
    return replace(graph, **changes)


def folded(records: list[Any]) -> dict[Any, tuple[Any, Any]]:
    """Return the first old and the last new value of each key, where they differ; each old is the new before it."""
    first: dict[Any, Any] = {}
    last: dict[Any, Any] = {}
    for key, old, new in records:
        assert key not in last or same(last[key], old), (key, last[key], old)
        first.setdefault(key, old)
        last[key] = new
    return {key: (first[key], last[key]) for key in first if not same(first[key], last[key])}
