"""Windows by event time: per minute, sliding, and sessions, with late records."""

from operators import Aggregate, Count, Pipeline, Session, Sliding, Sum, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run

pipeline = Pipeline("clicks")
clicks = (
    pipeline.source("clicks", GeneratedSource(lambda p, i: {}, count=0))
    .watermarks("time", lambda r: r["at_s"], out_of_order_s=2)
    .key_by(lambda r: r["user"])
)
clicks.window("per-minute", Tumbling(60), Count()).sink("counts", SqliteSink("o.db"))
clicks.window("recent", Sliding(60, 30), Sum(lambda r: r["n"]), lateness_s=10).sink("sums", SqliteSink("o.db"))
clicks.window("visits", Session(30), lambda user, records, window: [(user, len(records), window.end)]).sink(
    "visited", SqliteSink("o.db")
)
longest = Aggregate(int, lambda best, r: max(best, r["n"]), merge=max)
clicks.window("longest", Session(30), longest).sink("most", SqliteSink("o.db"))
pipeline.stream("per-minute").side("late").sink("late", SqliteSink("o.db"))

rows = [{"user": "ann", "at_s": at_s, "n": n} for at_s, n in [(5, 1), (20, 2), (59, 3), (70, 4), (50, 5)]]
result = run(pipeline, {"clicks": rows}, crash={"time/0": 3}, checkpoint_every=2)
assert result["counts"] == [("ann", 3, 0.0, 60.0), ("ann", 1, 60.0, 120.0)]
assert result["late"] == [rows[4]]  # the watermark stood at 68: [0, 60) was emitted
assert ("ann", 6, 0.0, 60.0) in result["sums"] and ("ann", 11, 0.0, 60.0) in result["sums"]  # emitted again
assert result["visited"] == [("ann", 2, 50.0), ("ann", 3, 100.0)]
assert result["most"] == [("ann", 2, 5.0, 50.0), ("ann", 5, 50.0, 100.0)]
