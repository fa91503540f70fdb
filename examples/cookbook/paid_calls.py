"""Charges every order exactly once through a payment service, although tasks and calls fail."""

import json
from urllib.request import Request, urlopen

from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

pipeline = Pipeline("paid-calls")
url = pipeline.settings.get("url", "http://127.0.0.1:8402/charges")


def order(partition, number):
    return {"order": number, "customer": f"c{number % 40}", "cents": 100 + number * 37 % 900}


def charge(order, key):
    """Run in one of 32 threads; if it raises, it is retried with the same key."""
    request = Request(url, json.dumps(order).encode(), {"Idempotency-Key": key})
    with urlopen(request, timeout=10) as response:
        return json.load(response)


(
    pipeline.source("orders", GeneratedSource(order, count=1_000, rate=500))
    .key_by(lambda order: order["customer"])
    .call("charge", charge, combine=lambda order, answer: {**order, **answer}, concurrency=32, retries=5, parallelism=2)
    .sink("out", SqliteSink("paid_calls.db"))
)
