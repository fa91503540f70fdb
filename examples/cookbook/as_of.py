"""Converts each order with the exchange rate that was valid when the order was placed."""

from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

CURRENCIES = ["CHF", "GBP", "USD"]


def rate(partition, number):
    """Return an exchange rate: each currency has a new one every three seconds."""
    return {"currency": CURRENCIES[number % 3], "at_s": number, "euro": (80 + number * 7 % 40) / 100}


def order(partition, number):
    return {"order": number, "currency": CURRENCIES[number % 3], "at_s": 3 + number / 10, "cents": 100 + number % 900}


def converted(order, rate):
    return {**order, "rate": rate["euro"], "euro_cents": round(order["cents"] * rate["euro"])}


pipeline = Pipeline("as-of")
rates = (
    pipeline.source("rates", GeneratedSource(rate, count=700, rate=350))
    .watermarks("rate-time", lambda rate: rate["at_s"])
    .key_by(lambda rate: rate["currency"])
    .table("rate")
)
(
    pipeline.source("orders", GeneratedSource(order, count=6_000, rate=3_000))
    .watermarks("order-time", lambda order: order["at_s"])
    .key_by(lambda order: order["currency"])
    .join_table("converted", rates, as_of=True, fn=converted)
    .sink("out", SqliteSink("as_of.db"))
)
