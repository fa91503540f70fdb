"""The running total of each customer's large orders, on Arrow columns."""

import pyarrow as pa
import pyarrow.compute as pc

from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import ArrowSource
from operators.testing import run


def read(partition, start, stop):  # columns customer, amount
    rows = range(start, stop)
    return pa.record_batch({"customer": [i % 2 for i in rows], "amount": [i * 50 for i in rows]})


pipeline = Pipeline("spent")
orders = pipeline.source("orders", ArrowSource(read, count=6))
large = orders.filter("large", lambda batch: pc.greater(batch.column("amount"), 100))
large.key_by("customer").sum("spent", "amount").sink("out", SqliteSink("spent.db"))

result = run(pipeline, crash={"spent/0": 2})
for row in result["out"]:
    print(row)
