"""Sums revenue per shop and half second of the wall clock, on Arrow columns, without a Python object per row."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import ArrowSource


def sales(partition, start, stop):
    number = np.arange(start, stop)
    return {"shop": number * 7919 % 20, "price": 100 + number * 37 % 900, "pieces": 1 + number % 3}


def with_revenue(batch):
    return pa.table({"shop": batch["shop"], "cents": pc.multiply(batch["price"], batch["pieces"])})


def per_shop(batch, window):
    """Return one row per shop of all rows of this task in the window."""
    return pa.table(batch).group_by("shop").aggregate([("cents", "sum"), ("cents", "count")])


pipeline = Pipeline("vectors")
(
    pipeline.source("sales", ArrowSource(sales, count=500_000, rate=250_000))
    .filter("large", lambda batch: pc.greater(batch["price"], 500))
    .map_batches("revenue", with_revenue)
    .key_by("shop")
    .window("per-shop", 0.5, per_shop, parallelism=2)
    .sink("out", SqliteSink("vectors.db"))
)
