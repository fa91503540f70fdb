"""Totals orders per customer, first historical ones and then live ones, in a job that is upgraded meanwhile."""

from operators import Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

HISTORY = 20_000


def past_order(partition, number):
    return {"order": number, "customer": f"c{number % 50}", "at_s": number / 10, "cents": 100 + number * 37 % 900}


def live_order(partition, number):
    return past_order(partition, HISTORY + number)


class Spent(Operator):
    total = ValueState[int](default=0)

    def process(self, order, ctx):
        self.total.value += order["cents"]
        yield {"order": order["order"], "customer": ctx.key, "total": self.total.value}


pipeline = Pipeline("backfill")
history = pipeline.source("history", GeneratedSource(past_order, count=HISTORY))  # as fast as it can be read
live = pipeline.source("live", GeneratedSource(live_order, count=20_000, rate=500))
(
    history.watermarks("past", lambda order: order["at_s"])
    .union(live.watermarks("now", lambda order: order["at_s"]))
    .key_by(lambda order: order["customer"])
    # Ordered: live orders wait until history has passed their time, or has ended.
    .process("spent", Spent(), parallelism=int(pipeline.settings.get("tasks", "1")), delivery="ordered")
    .sink("out", SqliteSink("backfill.db"))
)
