"""An operator of your own: visits per user, and what happens when a minute passes or the input ends."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import GeneratedSource
from operators.testing import At, run


class Visits(Operator):
    def process(self, record, ctx):  # may yield, return an iterable, or return None
        ctx.state["n"] = ctx.state.get("n", 0) + 1  # a dict per key, checkpointed
        if ctx.state["n"] == 1:
            ctx.set_timer(ctx.now() + 60, "idle")
        yield {"key": ctx.key, "n": ctx.state["n"]}

    def on_timer(self, name, ctx):
        yield {"key": ctx.key, "event": name}

    def finish(self, ctx):  # a bounded input has ended: once per key that has state
        yield {"key": ctx.key, "total": ctx.state["n"]}


pipeline = Pipeline("visits")
clicks = pipeline.source("clicks", GeneratedSource(lambda p, i: i, count=0))
clicks.key_by(lambda user: user).process("visits", Visits()).sink("out", SqliteSink("out.db"))

result = run(pipeline, {"clicks": ["ann", At(100, "ann")]})
for row in result["out"]:
    print(row)
