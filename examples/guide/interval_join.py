"""Orders with the payment that arrives from 5 s before to 60 s after them."""

from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run

pipeline = Pipeline("paid")
orders = pipeline.source("orders", GeneratedSource(lambda p, i: {}, count=0))
payments = pipeline.source("payments", GeneratedSource(lambda p, i: {}, count=0))


def pair(order, payment):
    return {"order": order["id"], "paid": None if payment is None else payment["at"]}


left = orders.watermarks("order-time", lambda r: r["at"]).key_by(lambda r: r["id"])
right = payments.watermarks("payment-time", lambda r: r["at"], out_of_order_s=2).key_by(lambda r: r["id"])
paid = left.join("paid", right, within=(-5, 60), how="left", fn=pair)  # from 5 s before the order to 60 s after it
paid.sink("out", SqliteSink("paid.db"))

result = run(
    pipeline,
    {
        "orders": [{"id": 1, "at": 100}, {"id": 2, "at": 110}],
        "payments": [{"id": 1, "at": 97}, {"id": 2, "at": 171}],
    },
)
for row in sorted(result["out"], key=lambda row: row["order"]):
    print(row)
