"""Keeps the last price of each symbol, from a WebSocket whose server can continue after a number."""

import json

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import WebSocketSource


class Last(Operator):
    def process(self, trade, ctx):
        before, ctx.state["price"] = ctx.state.get("price"), trade["price"]
        yield {**trade, "before": before, "seen_at": ctx.now()}


pipeline = Pipeline("from-websocket")
trades = WebSocketSource(
    pipeline.settings.get("url", "ws://localhost:8765/trades"),
    subscribe='{"after": -1}',
    resume=lambda trade: json.dumps({"after": trade["number"]}),
)
(
    pipeline.source("trades", trades)
    .key_by(lambda trade: trade["symbol"])
    .process("last", Last(), parallelism=2)
    .sink("out", SqliteSink("prices.db"))
)
