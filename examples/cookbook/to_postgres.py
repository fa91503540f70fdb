"""Keeps the balance of each customer in a table of PostgreSQL; each booking counts exactly once."""

from operators import Operator, Pipeline
from operators.sinks import PostgresSink
from operators.sources import GeneratedSource


def booking(partition, number):
    return {"booking": number, "customer": f"c{number * 7 % 100}", "cents": number * 37 % 2_000 - 800}


class Balance(Operator):
    def process(self, booking, ctx):
        balance = ctx.state["balance"] = ctx.state.get("balance", 0) + booking["cents"]
        yield {**booking, "balance": balance, "booked_at": ctx.now()}


pipeline = Pipeline("to-postgres")
table = PostgresSink(
    pipeline.settings.get("dsn", "postgresql://localhost/shop"),
    table="bookings",  # booking int PRIMARY KEY, customer text, cents int, balance bigint, booked_at double precision
    columns=["booking", "customer", "cents", "balance", "booked_at"],
)
(
    pipeline.source("bookings", GeneratedSource(booking, count=6_000, rate=3_000))
    .key_by(lambda booking: booking["customer"])
    .process("balance", Balance(), parallelism=2)
    .sink("out", table)
)
