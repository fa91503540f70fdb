"""`stream.call`: docs/guide/outside.md.  Vectors: docs/operators.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operators import Pipeline
from operators.sources import ArrowSource
from tests.oracles.frame import Draw, Scenario, bag, exact, letters, oracle, per_key, sink, source
from tests.oracles.frame import every as all_of

Row = dict[str, Any]
FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {"count": len, "sum": sum, "min": min, "max": max}


@oracle("call")
def _call(draw: Draw) -> Scenario:
    """Each record with its answer; what fails for good is a dead letter."""
    pipeline, order = Pipeline("p"), draw.choice(("input", "completion"))
    rows = draw.listed(20, lambda: {"id": draw.randint(0, 99), "v": draw.randint(0, 5)})
    fails = draw.flip(0.4)

    def ask(record: Row, key: str) -> int:
        if fails and record["v"] == 0:
            raise ValueError("no")
        return int(record["v"]) * 2

    options = draw.maybe(
        {"concurrency": (1, 3, 64), "retries": (0, 2), "backoff_s": (0.0, 0.001), "timeout_s": (60.0,)}
    )
    combined = draw.flip()
    if combined:
        options["combine"] = lambda record, answer: [record["id"], answer]
    stream = source(pipeline)
    if draw.flip():
        stream = stream.key_by(lambda r: r["v"])
    sink(stream.call("c", ask, order=order, parallelism=1, **options))
    good = [r for r in rows if not (fails and r["v"] == 0)]
    expected = [[r["id"], r["v"] * 2] if combined else (r, r["v"] * 2) for r in good]
    refused = [("c", r) for r in rows if fails and r["v"] == 0]
    check = exact("out", expected) if order == "input" else bag("out", expected)
    return Scenario(pipeline, {"in": rows}, all_of(check, letters(refused)), {"on_error": "dead-letter"})


@oracle("vectors")
def _vectors(draw: Draw) -> Scenario:
    """Columns instead of rows: `filter`, `map_batches`, `count`, `sum`, `min`, `max` per row and key."""
    import pyarrow.compute as pc

    pipeline = Pipeline("p")
    values = draw.choice([(-3, 0, 1, 2, 2**40), (0.5, -1.0, 2.0, 1e300)])
    key = draw.choice([("a", "b", ""), (0, 1, -7, 2**62), (b"x", b""), (True, False), (0.5, -1.5, 1e300), ("a", None)])
    rows: list[Row] = [{"k": draw.choice(key), "v": draw.choice(values)} for _ in range(draw.randint(1, 25))]
    stream: Any = pipeline.source("in", ArrowSource(lambda partition, start, stop: {}, count=0))
    kept = rows
    if draw.flip():
        stream = stream.filter("f", lambda batch: pc.greater(batch.column("v"), 0))
        kept = [row for row in kept if row["v"] > 0]
    if draw.flip():

        def doubled(batch: Any) -> Any:
            return {"k": batch.column("k"), "v": pc.add(batch.column("v"), batch.column("v"))}

        stream = stream.map_batches("m", doubled)
        kept = [{"k": row["k"], "v": row["v"] + row["v"]} for row in kept]
    what = draw.choice(("count", "sum", "min", "max", "rows"))
    values_by_key: dict[Any, list[Any]] = {}
    expected = []
    for row in kept:
        so_far = values_by_key.setdefault(row["k"], [])
        so_far.append(row["v"])
        if what == "rows":
            expected.append(row)
        else:
            expected.append({"k": row["k"], what: FUNCTIONS[what](so_far)})
    if what != "rows":
        keyed = stream.key_by("k")
        width = draw.choice((1, 2))
        stream = keyed.count("a", parallelism=width) if what == "count" else getattr(keyed, what)(
            "a", "v", parallelism=width
        )  # fmt: skip
    sink(stream.to_rows("rows"))
    return Scenario(pipeline, {"in": rows}, per_key("out", expected, lambda row: row["k"]), batches=(1, 3, 100))
