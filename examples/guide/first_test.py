"""A crash at any record does not show."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import every_crash, run


class Visits(Operator):
    def process(self, record, ctx):
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"user": ctx.key, "n": n, "dice": ctx.random.randint(1, 6)}


pipeline = Pipeline("visits")
clicks = pipeline.source("clicks", GeneratedSource(lambda p, i: {"user": "ab"[i % 2]}, count=6))
clicks.key_by(lambda r: r["user"]).process("visits", Visits()).sink("out", SqliteSink("out.db"))


def test_a_crash_does_not_show():
    result = run(pipeline, {"clicks": [{"user": "a"}, {"user": "b"}, {"user": "a"}]}, crash={"visits/0": 2})
    assert sorted((row["user"], row["n"]) for row in result["out"]) == [("a", 1), ("a", 2), ("b", 1)]
    assert result.recoveries == 1


def test_no_crash_shows():
    for crash in every_crash(pipeline):
        assert [row["n"] for row in run(pipeline, crash=crash)["out"] if row["user"] == "a"] == [1, 2, 3]
