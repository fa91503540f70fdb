"""A pipeline of `torture`: a keyed merge with a window, timers, calls and chance, twice out of the job.

Orders of two partitions and ticks of a third merge per key; each output is hashed onto the one before it.
Windows over the outputs come back to meet them in `join`, whose chain goes into a database and into files: both
must agree.  Records are large enough to go through the spill when memory is small.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from benchmarks.harness.written import lines_in, records_in
from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink, SqliteSink
from operators.sources import GeneratedSource

KEYS = 29
SOURCES = {"orders": 2, "ticks": 1}
LOAD_BYTES = 1200


def chained(previous: str, content: Any) -> str:
    """Return the hash of an output: over the previous one of its chain and its own content."""
    return blake2b((previous + json.dumps(content, sort_keys=True)).encode(), digest_size=12).hexdigest()


def make(name: str) -> Any:
    """Return the element function of a source."""

    def element(partition: int, i: int) -> dict[str, Any]:
        key = (i * 17 + partition * 11 + len(name)) % KEYS
        return {"id": f"{name}-{partition}-{i}", "key": key, "load": f"{i:08d}" * (LOAD_BYTES // 8)}

    return element


class Merge(Operator):
    """Per key: chains what comes, with the clock, dice and an answer of the outside, and reminds itself later."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        event: dict[str, Any] = {"id": record["id"], "bytes": len(record["load"]), "at": ctx.now()}
        if ctx.random.random() < 0.2:
            event["asked"] = ctx.call(lambda: os.urandom(6).hex())
        if not ctx.state.get("armed"):
            ctx.state["armed"] = True
            ctx.set_timer(ctx.now() + 0.02 + ctx.random.random() / 20, "later")
        yield self._linked(ctx, {**event, "load": record["load"]})

    def on_timer(self, name: str, ctx: Any) -> Iterator[Any]:
        ctx.state["armed"] = False
        yield self._linked(ctx, {"id": None, "timer": name, "uuid": str(ctx.uuid()), "load": ""})

    @staticmethod
    def _linked(ctx: Any, event: dict[str, Any]) -> dict[str, Any]:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        content = {"what": "merged", "key": ctx.key, "n": n, **event}
        ctx.state["hash"] = chained(ctx.state.get("hash", ""), content)
        return {**content, "hash": ctx.state["hash"]}


class Join(Operator):
    """Per key: numbers outputs and windows together, in the order in which they met."""

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        event = {name: value for name, value in record.items() if name != "load"}
        content = {"key": ctx.key, "joined": n, "event": event, "dice": ctx.random.randrange(1 << 20)}
        ctx.state["hash"] = chained(ctx.state.get("hash", ""), content)
        yield {**content, "hash": ctx.state["hash"]}


def pane(key: int, records: list[Any], window: Any) -> Iterator[Any]:
    """Yield which outputs of a key one window held."""
    yield {"what": "window", "key": key, "start": window.start, "ns": [record["n"] for record in records]}


def check(database: Path, lines: Path, elements: int) -> dict[str, int]:
    """Verify both outputs.

    Args:
        lines: the directory of the files.
        elements: per partition of each source.

    Returns:
        Counts: rows, lost, doubled, contradicted (a chain, a window or the two outputs disagree).
    """
    rows, filed = list(records_in(database)), list(lines_in(lines))
    due = {
        f"{name}-{p}-{i}" for name, partitions in SOURCES.items() for p in range(partitions) for i in range(elements)
    }
    seen = [row["event"]["id"] for row in rows if row["event"].get("id") is not None]
    wrong = 0
    for key in range(KEYS):
        chain = [row for row in rows if row["key"] == key]
        wrong += _broken(chain) + (chain != [row for row in filed if row["key"] == key])
    return {
        "rows": len(rows) + len(filed),
        "lost": len(due - set(seen)),
        "doubled": len(seen) - len(set(seen)),
        "contradicted": wrong,
    }


def _broken(chain: list[Any]) -> int:
    """Return how many links of one key's chain do not follow from the one before."""
    previous, merged, windowed, broken = "", 0, list[int](), 0
    for n, row in enumerate(chain, 1):
        content = {name: value for name, value in row.items() if name != "hash"}
        broken += row["joined"] != n or row["hash"] != chained(previous, content)
        previous = row["hash"]
        if row["event"]["what"] == "window":
            windowed += row["event"]["ns"]
        else:
            merged += 1
            broken += row["event"]["n"] != merged
    return broken + (windowed != list(range(1, merged + 1)))


pipeline = Pipeline("torture-mix")
settings = pipeline.settings
count = int(settings.get("count", "2000"))
rate = float(settings.get("rate", "200"))
width = int(settings.get("parallelism", "2"))
out = Path(settings.get("out", "mix.db"))

orders = pipeline.source(
    "orders", GeneratedSource(make("orders"), count, SOURCES["orders"], 2 * rate), parallelism=width
)
ticks = pipeline.source("ticks", GeneratedSource(make("ticks"), count, SOURCES["ticks"], rate))
merged = orders.union(ticks).key_by(lambda r: r["key"]).process("merge", Merge(), parallelism=width)
panes = merged.key_by(lambda r: r["key"]).window("panes", 0.25, pane, parallelism=1)
joined = merged.union(panes).key_by(lambda r: r["key"]).process("join", Join(), parallelism=width)
joined.sink("out", SqliteSink(out))
joined.sink("lines", JsonLinesSink(settings.get("lines", str(out.with_suffix(".lines"))), existing="refuse"))
