"""Clicks with the name of their user, read as a side input."""

from operators import Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import At, run

pipeline = Pipeline("named")
people = pipeline.source("people", GeneratedSource(lambda p, i: {}, count=0)).key_by(lambda r: r["id"]).table("users")
clicks = pipeline.source("clicks", GeneratedSource(lambda p, i: {}, count=0)).key_by(lambda r: r["user"])
named = clicks.join_table(
    "named", people, how="left", wait=True, fn=lambda click, user: [click["page"], user and user["name"]]
)
named.sink("out", SqliteSink("named.db"))

result = run(pipeline, {"clicks": [{"user": 7, "page": "/"}], "people": [At(60, {"id": 7, "name": "Ann"})]})
print(result["out"])
