"""Emits the three best-selling products of each minute."""

from heapq import nlargest

from operators import Aggregate, Pipeline, Sum, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

MINUTE = Tumbling(60)


def sale(partition, number):
    return {"product": f"p{number * number % 97}", "at_s": number / 10, "cents": 100 + number * 37 % 900}


def rank(total):
    """Return the sum, and of equal sums the name: a tie must not depend on which total came first."""
    product, cents, start, end = total
    return cents, product


def row(top):
    minute_s, totals, start, end = top
    return {"minute": int(minute_s) // 60, "top": [[product, cents] for product, cents, *_ in totals]}


best = Aggregate(initial=list, add=lambda best, total: nlargest(3, [*best, total], key=rank))

pipeline = Pipeline("top-n")
totals = (
    pipeline.source("sales", GeneratedSource(sale, count=6_000, rate=3_000))
    .watermarks("time", lambda sale: sale["at_s"], out_of_order_s=5)
    .key_by(lambda sale: sale["product"])
    .window("totals", MINUTE, Sum(lambda sale: sale["cents"]), parallelism=2)
)
(
    # A total is (product, cents, start, end), and its event time lies in its minute: a window may follow a window.
    totals.key_by(lambda total: total[2])
    .window("minutes", MINUTE, best, parallelism=1)
    .map("top", row)
    .sink("out", SqliteSink("top_n.db"))
)
