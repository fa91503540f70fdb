"""Orders and payments joined within an interval, and counts per window as a table; every answer follows from i.

An order has number i and time i / 10; each third one is never paid. A payment comes 1 to 3 s after its order. Neither
source ends before the file `gate` is there.
"""

from __future__ import annotations

from typing import Any

from operators import Count, Pipeline, Sum, Tumbling
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from tests.faults.pipelines.held_source import hold_end

pipeline = Pipeline("joined")
count = int(pipeline.settings.get("count", "2000"))
rate = float(pipeline.settings.get("rate", "500"))


def order(partition: int, i: int) -> dict[str, Any]:
    return {"order": i * 2 + partition, "at_s": i / 10}


def payment(partition: int, i: int) -> dict[str, Any]:
    number = i * 2 + partition
    return {"order": number if number % 3 else -1 - number, "at_s": i / 10 + 1 + number % 3}


def time_of(record: dict[str, Any]) -> float:
    return float(record["at_s"])


def key_of(record: dict[str, Any]) -> int:
    return int(record["order"])


def paired(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any]:
    return {"order": left and left["order"], "paid": right and right["order"]}


gate = pipeline.settings.get("gate")
orders = pipeline.source(
    "orders", hold_end(GeneratedSource(order, count, partitions=2, rate=rate), gate), parallelism=2
)
payments = pipeline.source("payments", hold_end(GeneratedSource(payment, count, partitions=2, rate=rate), gate))
left = orders.watermarks("order-time", time_of).key_by(key_of)
right = payments.watermarks("payment-time", time_of, out_of_order_s=2).key_by(key_of)
(
    left.join("pay", right, within=(0, 5), how="left", fn=paired, parallelism=2).sink(
        "out", JsonLinesSink(pipeline.settings.get("out", "out"))
    )
)

counts = (
    pipeline.stream("order-time")
    .key_by(lambda record: record["order"] % 7)
    .window_table("counts", Tumbling(10), Count(), grace_s=5, parallelism=2)
)
revisions = JsonLinesSink(pipeline.settings.get("revisions", "revisions"))
counts.revisions("revisions").sink("revised", revisions)
(
    counts.suppress("final", until="closed")
    .group_by("windows", lambda key, value: key[1])
    .aggregate("sums", Sum(lambda value: value))
    .revisions("summed")
    .sink("sums-out", JsonLinesSink(pipeline.settings.get("sums", "sums")))
)
