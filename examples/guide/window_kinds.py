"""The same clicks in sliding windows, in sessions, in windows of two, and through a function."""

from operators import Aggregate, CountWindow, Pipeline, Session, Sliding, Sum, Tumbling
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import run


def pages(user, records, window):
    """Return one record per window: its end, and the pages in the order in which they were read."""
    return [(user, window.end, [r["page"] for r in records])]


pipeline = Pipeline("clicks")
clicks = pipeline.source("clicks", GeneratedSource(lambda p, i: {}, count=0))
clicks = clicks.watermarks("time", lambda r: r["at_s"]).key_by(lambda r: r["user"])
longest = Aggregate(int, lambda best, r: max(best, r["n"]), merge=max)
windows = {
    "sliding": clicks.window("sliding", Sliding(60, 30), Sum(lambda r: r["n"]), lateness_s=10),
    "session": clicks.window("session", Session(30), longest),
    "two": clicks.window("two", CountWindow(2), Sum(lambda r: r["n"])),
    "function": clicks.window("function", Tumbling(60), pages),
}
for name, stream in windows.items():
    stream.sink(f"{name}-out", SqliteSink("out.db"))

rows = [("/a", 5, 1), ("/b", 20, 2), ("/c", 59, 3), ("/d", 62, 4), ("/e", 57, 5)]
clicked = [{"user": "ann", "page": page, "at_s": at_s, "n": n} for page, at_s, n in rows]
result = run(pipeline, {"clicks": clicked}, crash={"sliding/0": 3}, batch=1)
for name in windows:
    print(name)
    for row in result[f"{name}-out"]:
        print("   ", row)
