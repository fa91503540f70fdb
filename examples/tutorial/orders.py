from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

CUSTOMERS = ["Ada", "Ben", "Cleo", "Dan", "Eve"]


def order(partition, number):
    return {"order": number, "customer": CUSTOMERS[number % 5], "cents": 100 + number * 37 % 900}


class Loyalty(Operator):
    def process(self, order, ctx):
        total = ctx.state["total"] = ctx.state.get("total", 0) + order["cents"]
        lucky = ctx.random.random() < 0.1
        yield {**order, "total": total, "gift": ctx.random.choice(["mug", "book"]) if lucky else None, "at": ctx.now()}


pipeline = Pipeline("orders")
(
    pipeline.source("orders", GeneratedSource(order, count=20_000, rate=4_000))
    .key_by(lambda order: order["customer"])
    .process("loyalty", Loyalty(), parallelism=2)
    .sink("out", SqliteSink("orders.db"))
)
