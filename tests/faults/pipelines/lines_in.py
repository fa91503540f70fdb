"""Lines from standard input or over HTTP, each with the dice that were thrown for it."""

from __future__ import annotations

from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.sources import HttpSource, Source, StdinSource


class Number(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield {"line": record, "n": n, "dice": ctx.random.random()}


pipeline = Pipeline("lines")
listen, poll = pipeline.settings.get("listen", ""), pipeline.settings.get("poll", "")
source: Source[Any] = StdinSource()
if listen:
    source = HttpSource(listen, format="text", token="secret")
elif poll:
    source = HttpSource(poll=poll, every_s=0.05)
lines = pipeline.source("lines", source)
lines.key_by(lambda line: "all").process("number", Number()).sink("out", SqliteSink("out.db"))
