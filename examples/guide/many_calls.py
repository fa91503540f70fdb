"""Orders with the rate that another system answers, each asked once."""

from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import every_crash, run

asked = []


def fetch_rate(order, key):
    asked.append(key)
    return {"EUR": 1.0, "USD": 0.9}[order["currency"]]


pipeline = Pipeline("rates")
orders = pipeline.source("orders", GeneratedSource(lambda p, i: {"id": i, "currency": ["EUR", "USD"][i % 2]}, count=6))
rated = orders.call("rate", fetch_rate, combine=lambda order, rate: {**order, "rate": rate}, concurrency=64, retries=3)
rated.sink("out", JsonLinesSink("out"))


def test_no_crash_shows():
    for crash in every_crash(pipeline):
        asked.clear()
        rows = run(pipeline, crash=crash)["out"]
        assert [(order["id"], order["rate"]) for order in rows] == [(i, [1.0, 0.9][i % 2]) for i in range(6)]
        assert len(set(asked)) == 6
