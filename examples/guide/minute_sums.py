"""Sums per sensor and minute, emitted once, when the minute is over."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


class Sum(Operator):
    """Per sensor: the sum of each minute, emitted once, when the minute is over."""

    def process(self, record, ctx):
        end = record["at"] // 60 * 60 + 60
        if ctx.watermark() is not None and end <= ctx.watermark():
            ctx.aside("late", record)
            return
        sums = ctx.state.setdefault("sums", {})
        sums[end] = sums.get(end, 0) + record["v"]
        ctx.set_timer(end, f"{end}", clock="event")

    def on_timer(self, name, ctx):
        yield {"sensor": ctx.key, "minute": int(name) - 60, "sum": ctx.state["sums"].pop(int(name))}


pipeline = Pipeline("minutes")
readings = pipeline.source("readings", GeneratedSource(lambda p, i: {}, count=0))
timed = readings.watermarks("time", lambda r: r["at"], out_of_order_s=5)
sums = timed.key_by(lambda r: r["sensor"]).process("sum", Sum())
sums.sink("out", SqliteSink("minutes.db"))
sums.side("late").sink("late", SqliteSink("late.db"))


def reading(at, v):
    return {"sensor": "a", "at": at, "v": v}


result = run(pipeline, {"readings": [reading(10, 1), reading(62, 2), reading(58, 3), reading(70, 4), reading(59, 9)]})
for row in result["out"]:
    print(row)
print("late:", result["late"])
