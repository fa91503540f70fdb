"""Timers fire in the test's own time."""

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import At, run


class Reminder(Operator):
    def process(self, record, ctx):
        ctx.set_timer(ctx.now() + 60, "idle")

    def on_timer(self, name, ctx):
        yield (ctx.key, name, ctx.now())


pipeline = Pipeline("reminders")
events = pipeline.source("events", GeneratedSource(lambda p, i: i, count=0))
events.key_by(lambda user: user).process("remind", Reminder()).sink("out", JsonLinesSink("."))

result = run(pipeline, {"events": ["ann", At(30, "bob"), At(100)]}, clock_s=0, crash={"remind/0": 1})
for row in result["out"]:
    print(row)
