"""Events above the limit of their kind; every task knows all limits."""

from operators import BroadcastOperator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


class Limit(BroadcastOperator):
    """Keeps events above the limit of their kind."""

    def process(self, record, ctx):
        if record["v"] > ctx.broadcast.get(record["kind"], 0):
            yield record

    def process_broadcast(self, rule, ctx):
        ctx.broadcast[rule["kind"]] = rule["limit"]


pipeline = Pipeline("limits")
rules = pipeline.source("rules", GeneratedSource(lambda p, i: {}, count=0))
events = pipeline.source("events", GeneratedSource(lambda p, i: {}, count=0)).key_by(lambda r: r["kind"])
events.broadcast("limit", rules, Limit(), wait=True, parallelism=2).sink("out", SqliteSink("out.db"))

result = run(
    pipeline,
    {
        "rules": [{"kind": "a", "limit": 5}],
        "events": [{"kind": "a", "v": 4}, {"kind": "a", "v": 6}, {"kind": "b", "v": 1}],
    },
)
for row in sorted(result["out"], key=lambda row: row["kind"]):
    print(row)
