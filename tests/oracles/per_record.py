"""`map`, `filter`, `flat_map`, `union`, a stream used twice, `count`, `reduce`: docs/operators.md."""

from __future__ import annotations

from typing import Any

from operators import Pipeline
from tests.oracles.frame import Draw, Scenario, bag, every, exact, oracle, per_key, sink, source

Row = dict[str, Any]


def rows(draw: Draw, length_max: int = 25) -> list[Row]:
    """Records with a key and a value."""
    return draw.listed(length_max, lambda: {"k": draw.choice("abc"), "v": draw.randint(-4, 9)})


def partitioned(draw: Draw, records: list[Row]) -> list[list[Row]]:
    """The records in up to three partitions."""
    parts: list[list[Row]] = [[] for _ in range(draw.choice((1, 1, 2, 3)))]
    for record in records:
        draw.choice(parts).append(record)
    return parts


@oracle("map")
def _map(draw: Draw) -> Scenario:
    """A chain of functions of records, which emits the records of one partition in their order."""
    pipeline, records = Pipeline("p"), rows(draw)
    stream, expected = source(pipeline), list(records)
    for number in range(draw.randint(1, 4)):
        kind, name, n = draw.choice(("map", "filter", "flat_map")), f"s{number}", draw.randint(1, 3)
        if kind == "map":

            def scaled(r: Row, n: int = n) -> Row:
                return {**r, "v": r["v"] * 2 + n}

            stream = stream.map(name, scaled)
            expected = [{**r, "v": r["v"] * 2 + n} for r in expected]
        elif kind == "filter":

            def rest(r: Row, n: int = n) -> int:
                return int(r["v"] % (n + 1))

            stream = stream.filter(name, rest)
            expected = [r for r in expected if r["v"] % (n + 1)]
        else:

            def repeated(r: Row, n: int = n) -> list[Row] | None:
                return [r] * (r["v"] % (n + 1)) or None

            stream = stream.flat_map(name, repeated)
            expected = [r for r in expected for _ in range(r["v"] % (n + 1))]
    sink(stream)
    return Scenario(pipeline, {"in": records}, exact("out", expected))


@oracle("union")
def _union(draw: Draw) -> Scenario:
    """All records of all streams, those of one stream in their order; a stream may be used twice."""
    pipeline, left, right = Pipeline("p"), rows(draw), rows(draw)
    first, second = source(pipeline, "left"), source(pipeline, "right")
    named = first.map("named", lambda r: {**r, "of": "left"})
    both = named.union(second.map("other", lambda r: {**r, "of": "right"}))
    again = both.filter("again", lambda r: r["of"] == "left" or draws_second)
    draws_second = draw.flip()
    sink(both, parallelism=draw.choice((1, 2)))
    sink(again, "twice")
    lefts, rights = [{**r, "of": "left"} for r in left], [{**r, "of": "right"} for r in right]
    return Scenario(
        pipeline,
        {"left": left, "right": right},
        every(
            bag("out", lefts + rights),
            per_key("twice", lefts + (rights if draws_second else []), lambda r: r["of"]),
        ),
    )


@oracle("count")
def _count(draw: Draw) -> Scenario:
    """`(key, n)` per record: n is how many records of the key have come."""
    pipeline, records = Pipeline("p"), rows(draw)
    parts = partitioned(draw, records)
    keyed = source(pipeline, partitions=len(parts)).key_by(lambda r: r["k"])
    sink(keyed.count("count", parallelism=draw.choice((1, 2, 3))))
    counts: dict[str, int] = {}
    expected = []
    for record in records:
        counts[record["k"]] = counts.get(record["k"], 0) + 1
        expected.append((record["k"], counts[record["k"]]))
    return Scenario(pipeline, {"in": parts}, per_key("out", expected, lambda row: row[0]))


@oracle("reduce")
def _reduce(draw: Draw) -> Scenario:
    """`(key, accumulated)` per record; without `initial` the first record of a key is its first state."""
    pipeline, records = Pipeline("p"), rows(draw)
    how = draw.choice(("sum", "first", "mutates", "factory"))
    keyed = source(pipeline).key_by(lambda r: r["k"])
    expected: list[Any] = []
    state: dict[str, Any] = {}
    width = draw.choice((1, 2))
    if how == "first":
        sink(
            keyed.reduce("r", lambda accumulated, r: {**accumulated, "v": accumulated["v"] + r["v"]}, parallelism=width)
        )
        for r in records:
            accumulated = state.get(r["k"])
            state[r["k"]] = r if accumulated is None else {**accumulated, "v": accumulated["v"] + r["v"]}
            expected.append((r["k"], state[r["k"]]))
    elif how == "sum":
        sink(keyed.reduce("r", lambda total, r: total + r["v"], initial=10, parallelism=width))
        for r in records:
            state[r["k"]] = state.get(r["k"], 10) + r["v"]
            expected.append((r["k"], state[r["k"]]))
    else:

        def mutates(accumulated: list[int], r: Row) -> list[int]:
            accumulated.append(r["v"])
            return accumulated

        initial: Any = list if how == "factory" else []
        sink(keyed.reduce("r", mutates, initial=initial, parallelism=width))
        for r in records:
            state[r["k"]] = [*state.get(r["k"], []), r["v"]]
            expected.append((r["k"], state[r["k"]]))
    return Scenario(pipeline, {"in": records}, per_key("out", expected, lambda row: row[0]))
