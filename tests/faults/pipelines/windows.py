"""Every kind of window on one stream; every answer follows from i, and from the wall clock for those that count it.

Record i has key i % 5 and time i / 20, some of them up to 0.4 s behind; each 97th comes 9 s late.  `clock` = 1: the
windows of the wall clock instead.  It does not end before the file `gate` is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operators import Count, CountWindow, Global, Mean, Pipeline, Session, Sliding, Sum, Tumbling, Window, every
from operators.builder.pipeline import Stream
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

BOUND_S = 0.5
LATENESS_S = 5.0

pipeline = Pipeline("windows")
count = int(pipeline.settings.get("count", "3000"))
rate = float(pipeline.settings.get("rate", "1000"))


def record(partition: int, i: int) -> dict[str, Any]:
    at_s = i / 20 - (i % 5) / 10 - (9 if i % 97 == 96 else 0) - (3 if i % 89 == 88 else 0)
    # Now and then a key falls silent, so that there are sessions.
    return {"key": i % 5 if i // 100 % 3 else 5 + i % 2, "at_s": round(max(0.0, at_s), 2), "i": i}


def key_of(row: dict[str, Any]) -> int:
    return int(row["key"])


def number(row: dict[str, Any]) -> int:
    return int(row["i"])


def named(name: str) -> Callable[[Any], dict[str, Any]]:
    return lambda row: {"window": name, "key": row[0], "value": row[1], "start": row[2], "end": row[3]}


def contents(key: int, records: list[dict[str, Any]], window: Window) -> Any:
    yield (key, sorted(map(number, records)), window.start, window.end)


source = pipeline.source("in", hold_end(GeneratedSource(record, count, rate=rate), pipeline.settings.get("gate")))
rows: list[Stream[Any]] = []


def add_window(name: str, assigner: Any, aggregate: Any, **options: Any) -> None:
    window = by_key.window(name, assigner, aggregate, parallelism=1, **options)
    rows.append(window.map(f"{name}-row", named(name)))


if int(pipeline.settings.get("clock", "0")):
    by_key: Stream[Any] = source.key_by(key_of)
    add_window("tumbling", Tumbling(0.4, clock="processing"), Sum(number))
    add_window("sliding", Sliding(0.6, 0.3, clock="processing"), contents)
    add_window("session", Session(0.15, clock="processing"), Sum(number))
    add_window("global", Global(), Count(), trigger=every(70, purge=True))
else:
    by_key = source.watermarks("time", lambda r: r["at_s"], out_of_order_s=BOUND_S).key_by(key_of)
    add_window("tumbling", Tumbling(4), Count(), lateness_s=LATENESS_S)
    add_window("sliding", Sliding(6, 2), contents)
    add_window("session", Session(2), Sum(number))
    add_window("count", CountWindow(10, every=4), Mean(number))
    late = pipeline.stream("tumbling").side("late")
    rows.append(late.map("late-row", lambda r: {"window": "late", "value": r["i"]}))

rows[0].union(*rows[1:]).sink("out", SqliteSink(pipeline.settings.get("out", "out.db")))
