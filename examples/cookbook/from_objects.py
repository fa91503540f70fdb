"""Keeps a total for each customer, from files of orders that other programs put into a bucket."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import FilesSource


class Total(Operator):
    def process(self, order, ctx):
        cents = ctx.state["cents"] = ctx.state.get("cents", 0) + order["cents"]
        yield {**order, "total": cents, "counted_at": ctx.now()}


pipeline = Pipeline("from-objects")
orders = FilesSource(
    pipeline.settings.get("orders", "s3://shop/orders/*.jsonl"),
    follow=True,  # new objects are read as they appear
    partitions=2,
)
(
    pipeline.source("orders", orders, parallelism=2)
    .key_by(lambda order: order["customer"])
    .process("total", Total(), parallelism=2)
    .sink("out", SqliteSink("totals.db"))
)
