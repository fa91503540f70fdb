"""Raises an alert when a sensor has been silent for ten seconds, and reports when it sends again."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource

SILENCE_S = 10


def reading(partition, number):
    """Return a reading: each of twenty sensors sends one a second, and each minute one is silent for 25 s."""
    second, sensor = divmod(number, 20)
    silent = sensor == second // 60 % 20 and second % 60 < 25
    return {"sensor": (sensor + 1) % 20 if silent else sensor, "at_s": second + sensor / 20}


class Watch(Operator):
    """Keeps one timer per sensor, which every reading postpones."""

    def process(self, reading, ctx):
        if ctx.state.get("silent"):
            yield {"sensor": ctx.key, "at_s": reading["at_s"], "event": "back"}
        ctx.state["silent"] = False
        ctx.set_timer(reading["at_s"] + SILENCE_S, "silent", clock="event")  # replaces the one before

    def on_timer(self, name, ctx):
        ctx.state["silent"] = True
        yield {"sensor": ctx.key, "at_s": ctx.watermark(), "event": "silent"}


pipeline = Pipeline("alerts")
(
    pipeline.source("readings", GeneratedSource(reading, count=12_000, rate=6_000))
    .watermarks("time", lambda reading: reading["at_s"], out_of_order_s=1)
    .key_by(lambda reading: reading["sensor"])
    # Ordered: a timer that is due before a reading fires before it, however both were batched.
    .process("watch", Watch(), parallelism=2, delivery="ordered")
    .sink("out", SqliteSink("alerts.db"))
)
