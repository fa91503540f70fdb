"""Triggers: one of your own, and one that counts."""

from operators import Count, Firing, Global, Pipeline, Trigger, Tumbling, every
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


class Expensive(Trigger):
    """Emits a window as soon as its orders amount to 100, then starts again."""

    def on_record(self, state, record, window, mark_s):
        state["sum"] = state.get("sum", 0) + record["price"]
        if state["sum"] < 100:
            return Firing.NOTHING
        state["sum"] = 0
        return Firing.PURGE


pipeline = Pipeline("orders")
orders = pipeline.source("orders", GeneratedSource(lambda p, i: {}, count=0)).watermarks("time", lambda r: r["at_s"])
shops = orders.key_by(lambda r: r["shop"])
shops.window("big", Tumbling(3600), Count(), trigger=Expensive()).sink("amounts", SqliteSink("o.db"))
shops.window("pairs", Global(), Count(), trigger=every(2, purge=True)).sink("twos", SqliteSink("o.db"))

rows = [{"shop": "s", "at_s": at_s, "price": price} for at_s, price in [(1, 60), (2, 50), (3, 10)]]
result = run(pipeline, {"orders": rows}, crash={"big/0": 2})
print("amounts:", *result["amounts"])
print("twos:", *result["twos"])
