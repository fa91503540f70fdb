"""Clicks per user and minute, with one click that arrives too late."""

from operators import Count, Pipeline, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run

pipeline = Pipeline("clicks")
clicks = pipeline.source("clicks", GeneratedSource(lambda p, i: {}, count=0))
clicks = clicks.watermarks("time", lambda r: r["at_s"], out_of_order_s=2).key_by(lambda r: r["user"])
counts = clicks.window("per-minute", Tumbling(60), Count())
counts.sink("counts", SqliteSink("counts.db"))
counts.side("late").sink("late", SqliteSink("late.db"))

rows = [{"user": "ann", "at_s": at_s} for at_s in (5, 20, 59, 70, 50)]
result = run(pipeline, {"clicks": rows})
print("(key, value, start, end)")
for row in result["counts"]:
    print(row)
print("late:", result["late"])
