"""Deduplicates events of a producer that sends some of them twice."""

from operators import Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource


def event(partition, number):
    """Return an event; every fourth one repeats the event that is 41 records older, as after a retry."""
    event = number - 41 if number % 4 == 3 and number > 41 else number
    return {"id": f"e{event}", "at_s": event / 100, "cents": 10 + event % 90}


class First(Operator):
    """Emits the first event of each id, and forgets the id after an hour of event time."""

    seen = ValueState[bool](ttl_s=3600)

    def process(self, event, ctx):
        if not self.seen.value:
            self.seen.value = True
            yield event


pipeline = Pipeline("deduplication")
(
    pipeline.source("events", GeneratedSource(event, count=6_000, rate=3_000))
    .watermarks("time", lambda event: event["at_s"], out_of_order_s=60)
    .key_by(lambda event: event["id"])
    .process("first", First(), parallelism=2)
    .sink("out", SqliteSink("deduplication.db"))
)
