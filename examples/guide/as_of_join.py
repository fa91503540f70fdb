"""Orders with the exchange rate of their own time."""

from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run

pipeline = Pipeline("paid-in-euro")
rates = pipeline.source("rates", GeneratedSource(lambda p, i: {}, count=0)).watermarks("rate-time", lambda r: r["at"])
orders = pipeline.source("orders", GeneratedSource(lambda p, i: {}, count=0)).watermarks("time", lambda r: r["at"])
table = rates.key_by(lambda r: r["currency"]).table("rate")
paid = orders.key_by(lambda r: r["currency"]).join_table(
    "paid", table, as_of=True, how="left", fn=lambda order, rate: (order["at"], rate and order["cents"] * rate["euro"])
)
paid.sink("out", SqliteSink("paid.db"))

inputs: dict[str, list[dict]] = {
    "rates": [{"currency": "x", "at": at, "euro": euro} for at, euro in ((0, 2), (100, 3), (200, 4))],
    "orders": [{"currency": "x", "at": at, "cents": 10} for at in (-1, 50, 100, 150, 250)],
}
for seed in range(3):  # the seed decides which side is faster
    print(run(pipeline, inputs, seed=seed)["out"])
