"""Keeps the stock of each product, from movements that other programs add to a stream of Redis."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import RedisStreamSource


class Stock(Operator):
    def process(self, movement, ctx):
        stock = ctx.state["stock"] = ctx.state.get("stock", 0) + int(movement["value"]["pieces"])
        yield {"id": movement["id"], "product": ctx.key, "stock": stock, "seen_at": ctx.now()}


pipeline = Pipeline("from-redis")
movements = RedisStreamSource(pipeline.settings.get("url", "redis://localhost:6379/0"), "movements", with_metadata=True)
(
    pipeline.source("movements", movements)
    .key_by(lambda movement: movement["value"]["product"])
    .process("stock", Stock(), parallelism=2)
    .sink("out", SqliteSink("stock.db"))
)
