"""Counts clicks per minute, corrects a count when late clicks arrive, and keeps clicks that are too late."""

from operators import Count, Pipeline, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource


def click(partition, number):
    """Return a click: most are in order, every tenth is 30 seconds late, and every hundredth five minutes."""
    delay_s = 300 if number % 100 == 50 else 30 if number % 10 == 3 else 0
    return {"page": f"/{number % 3}", "at_s": 300 + number / 10 - delay_s, "number": number}


def row(result):
    page, clicks, start, end = result
    return {"page": page, "minute": int(start) // 60, "clicks": clicks}


pipeline = Pipeline("late-data")
windows = (
    pipeline.source("clicks", GeneratedSource(click, count=6_000, rate=3_000))
    .watermarks("time", lambda click: click["at_s"], out_of_order_s=2)
    .key_by(lambda click: click["page"])
    .window("per-minute", Tumbling(60), Count(), lateness_s=60, parallelism=2)
)
windows.map("counts", row).sink("out", SqliteSink("late_data.db"))
windows.side("late").sink("late", SqliteSink("too_late.db"))
