"""The pipeline of `replay`: orders per customer, with a random number and a clock reading per order, and a flag.

With `limit`, an order of more cents is flagged, so that another value of it changes some of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from operators import Context, Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

PARTITIONS = 2
CENTS = 1_000


class Total(Operator):
    """Adds up the orders of each customer."""

    sums = ValueState[int]()

    def process(self, order: dict[str, Any], ctx: Context) -> Iterator[dict[str, Any]]:
        """Yield one row per order."""
        total = self.sums.value = (self.sums.value or 0) + order["cents"]
        lucky, at = ctx.random.random() < 0.01, ctx.now()
        yield {**order, "total": total, "lucky": lucky, "at": at, "large": order["cents"] > limit}


pipeline = Pipeline("recorded-orders")
settings = pipeline.settings
count = int(settings.get("count", "10000"))
rate = float(settings.get("rate", "0")) or None  # 0: as fast as they are taken
keys = int(settings.get("keys", "1000"))
width = int(settings.get("parallelism", "2"))
limit = int(settings.get("limit", str(CENTS)))


def order_of(partition: int, i: int) -> dict[str, Any]:
    """Order i of a partition: the customers in turn, scattered."""
    return {"order": i, "customer": (i * 7919 + partition * 4001) % keys, "cents": 1 + i * 37 % CENTS}


(
    pipeline.source("orders", GeneratedSource(order_of, count // PARTITIONS, PARTITIONS, rate), parallelism=width)
    .key_by(lambda order: order["customer"])
    .process("total", Total(), parallelism=width)
    .sink("out", SqliteSink(settings.get("out", "orders.db")))
)
