"""Keeps the open amount of each customer, from the changes of a table of orders in PostgreSQL."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import PostgresChanges


def bookings(change):
    for row, sign in ((change["before"], -1), (change["after"], 1)):
        if row is not None:
            yield {"customer": row["customer"], "order": row["id"], "cents": sign * row["cents"]}


class Open(Operator):
    def process(self, booking, ctx):
        cents = ctx.state["cents"] = ctx.state.get("cents", 0) + booking["cents"]
        yield {**booking, "open": cents, "seen_at": ctx.now()}


pipeline = Pipeline("from-postgres")
orders = PostgresChanges(
    pipeline.settings.get("dsn", "postgresql://localhost/shop"),
    ["orders"],  # id int PRIMARY KEY, customer text, cents int; REPLICA IDENTITY FULL
    operations=["insert", "update", "delete"],
)
(
    pipeline.source("orders", orders)
    .flat_map("bookings", bookings)
    .key_by(lambda booking: booking["customer"])
    .process("open", Open(), parallelism=2)
    .sink("out", SqliteSink("open.db"))
)
