"""Reads bookings from a stream of NATS, and writes the balance of each customer to another one, exactly once."""

from operators import Operator, Pipeline
from operators.sinks import NatsSink
from operators.sources import NatsSource


class Balance(Operator):
    def process(self, message, ctx):
        booking = message["value"]
        balance = ctx.state["balance"] = ctx.state.get("balance", 0) + booking["cents"]
        yield {**booking, "balance": balance, "booked_at": ctx.now()}


pipeline = Pipeline("nats-balances")
servers = pipeline.settings.get("servers", "localhost:4222")
(
    pipeline.source("bookings", NatsSource(servers, "bookings", "bookings.>", with_metadata=True))
    .key_by(lambda message: message["value"]["customer"])
    .process("balance", Balance(), parallelism=2)
    .sink("out", NatsSink(servers, "balances", subject=lambda row: f"balances.{row['customer']}"))
)
