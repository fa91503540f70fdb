"""Writes each order, with its customer's total, into a Delta table exactly once."""

from operators import Operator, Pipeline
from operators.sinks import DeltaSink
from operators.sources import GeneratedSource


def order(partition, number):
    record = {"order": number, "customer": f"c{number * 7 % 100}", "cents": 100 + number * 37 % 2_000}
    return record | {"coupon": f"spring-{number % 5}"} if number % 3 == 2 else record  # a column of later orders


class Total(Operator):
    def process(self, order, ctx):
        total = ctx.state["total"] = ctx.state.get("total", 0) + order["cents"]
        yield {**order, "total": total, "counted_at": ctx.now()}


pipeline = Pipeline("lakehouse")
(
    pipeline.source("orders", GeneratedSource(order, count=6_000, rate=3_000))
    .key_by(lambda order: order["customer"])
    .process("total", Total())
    .sink("out", DeltaSink("orders", new_columns="add", publish_s=0.5), parallelism=2)
)
