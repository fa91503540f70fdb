"""Five tasks in a row, each with dice of its own and a hash over all it received: a determinant lost anywhere shows.

The last one links every row to the row before it, so what was visible cannot be contradicted unseen.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import CallbackSink, JsonLinesSink
from tests.faults.pipelines.held_source import HeldSource


class Link(Operator):
    def process(self, record: Any, ctx: Any) -> Any:
        before = ctx.state.get("hash", "")
        dice = ctx.random.randrange(1 << 30)
        content = repr((before, record["i"], record["hash"], dice))
        ctx.state["hash"] = blake2b(content.encode(), digest_size=8).hexdigest()
        yield {"i": record["i"], "before": before, "seen": record["hash"], "dice": dice, "hash": ctx.state["hash"]}


pipeline = Pipeline("row")
settings = pipeline.settings


def numbered(partition: int, position: int) -> dict[str, Any]:
    return {"i": position, "hash": ""}


stream = pipeline.source("read", HeldSource(numbered, int(settings["count"]), 400.0, Path(settings["gate"])))
for name in ("a", "b", "c", "d"):
    stream = stream.key_by(lambda record: 0).process(name, Link())


def put(delivery: Any) -> None:
    with open(settings["put"], "a") as file:
        file.writelines(line + "\n" for line in delivery.lines)


rows = Path(settings["out"])
stream.sink("out", CallbackSink(put) if "put" in settings else JsonLinesSink(rows))
