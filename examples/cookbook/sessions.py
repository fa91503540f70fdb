"""Groups clicks into visits: a visit ends when its visitor has not clicked for fifteen seconds."""

from operators import Aggregate, Pipeline, Session
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource


def click(partition, number):
    """Yield the clicks of five of twenty visitors at a time, for twelve seconds each, up to two seconds out of
    order.
    """
    visitor = number // 100 * 5 % 20 + number % 5
    return {"visitor": visitor, "at_s": number / 8 + number * 31 % 16 / 8, "cents": number % 7 * 100}


visit = Aggregate(
    initial=lambda: (0, 0),
    add=lambda visit, click: (visit[0] + 1, visit[1] + click["cents"]),
    merge=lambda one, other: (one[0] + other[0], one[1] + other[1]),  # of two visits that a click between them joins
)


def row(result):
    visitor, (clicks, cents), start, end = result
    return {"visitor": visitor, "from_s": start, "to_s": end - 15, "clicks": clicks, "cents": cents}


pipeline = Pipeline("sessions")
(
    pipeline.source("clicks", GeneratedSource(click, count=6_000, rate=3_000))
    .watermarks("time", lambda click: click["at_s"], out_of_order_s=2)
    .key_by(lambda click: click["visitor"])
    .window("sessions", Session(15), visit, parallelism=2)
    .map("visits", row)
    .sink("out", SqliteSink("sessions.db"))
)
