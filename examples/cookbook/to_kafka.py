"""Writes the balance of each customer to a topic of Kafka; each booking counts exactly once."""

from operators import Operator, Pipeline
from operators.sinks import KafkaSink
from operators.sources import GeneratedSource


def booking(partition, number):
    return {"booking": number, "customer": f"c{number * 7 % 100}", "cents": number * 37 % 2_000 - 800}


class Balance(Operator):
    def process(self, booking, ctx):
        balance = ctx.state["balance"] = ctx.state.get("balance", 0) + booking["cents"]
        yield {**booking, "balance": balance, "booked_at": ctx.now()}


pipeline = Pipeline("to-kafka")
topic = KafkaSink(
    pipeline.settings.get("servers", "localhost:9092"),
    "balances",
    key=lambda row: row["customer"],  # the rows of a customer are in one partition, in order
)
(
    pipeline.source("bookings", GeneratedSource(booking, count=6_000, rate=3_000))
    .key_by(lambda booking: booking["customer"])
    .process("balance", Balance(), parallelism=2)
    .sink("out", topic)
)
