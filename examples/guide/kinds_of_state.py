"""A profile per user, in one state of each kind."""

from dataclasses import dataclass

from operators import ListState, MapState, Operator, Pipeline, ReducingState, ValueState
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


@dataclass
class Totals:
    visits: int = 0
    seconds: float = 0.0


class Profile(Operator):
    pages = ListState[str]()
    total = ValueState(Totals)
    by_day = MapState[str, int]()
    longest = ReducingState[float](max)

    def process(self, record, ctx):
        self.pages.append(record["page"])
        self.total.value.visits += 1
        self.total.value.seconds += record["seconds"]
        self.by_day[record["day"]] = self.by_day.get(record["day"], 0) + 1
        self.longest.add(record["seconds"])
        yield {
            "user": ctx.key,
            "visits": self.total.value.visits,
            "last": self.pages[-1],
            "longest": self.longest.value,
        }


pipeline = Pipeline("profiles")
(
    pipeline.source("clicks", GeneratedSource(lambda p, i: {}, count=0))
    .key_by(lambda click: click["user"])
    .process("profile", Profile())
    .sink("out", SqliteSink("out.db"))
)

clicks = [
    {"user": "ann", "page": "/a", "day": "mon", "seconds": 3.0},
    {"user": "bob", "page": "/b", "day": "mon", "seconds": 9.0},
    {"user": "ann", "page": "/c", "day": "tue", "seconds": 2.0},
]
result = run(pipeline, {"clicks": clicks}, crash={"profile/0": 2})
for row in result["out"]:
    print(row)
print("recoveries:", result.recoveries)
