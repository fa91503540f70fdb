"""Duplicates within eight seconds are marked."""

from operators import Operator, Pipeline, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


class Again(Operator):
    """Marks a record whose id was seen in the last eight seconds of event time."""

    seen = ValueState[bool](ttl_s=8)

    def process(self, record, ctx):
        yield {**record, "again": self.seen.value is True}
        self.seen.value = True


pipeline = Pipeline("again")
(
    pipeline.source("in", GeneratedSource(lambda p, i: {}, count=0))
    .watermarks("time", lambda record: record["at"])
    .key_by(lambda record: record["id"])
    .process("again", Again())
    .sink("out", SqliteSink("out.db"))
)
result = run(pipeline, {"in": [{"id": 1, "at": 100}, {"id": 1, "at": 107}, {"id": 2, "at": 130}, {"id": 1, "at": 131}]})
for row in result["out"]:
    print(row)
print(result.counts["again"])
