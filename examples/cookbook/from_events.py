"""Counts the edits of each page, from the server-sent events of a wiki."""

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import SseSource


class Edits(Operator):
    def process(self, edit, ctx):
        edits = ctx.state["edits"] = ctx.state.get("edits", 0) + 1
        yield {**edit, "edits": edits, "seen_at": ctx.now()}


pipeline = Pipeline("from-events")
edits = SseSource(pipeline.settings.get("url", "http://localhost:8000/events"))
(
    pipeline.source("edits", edits)
    .key_by(lambda edit: edit["page"])
    .process("counted", Edits(), parallelism=2)
    .sink("out", SqliteSink("edits.db"))
)
