"""The pipeline of the lessons: tills of ten shops, whose receipts hash the receipt before, a lot and the time.

No second execution produces the same receipts, so a row that was lost, doubled or changed breaks the chain of its shop.

The last quarter of the sales waits for the file `evening` next to it, so that a lesson decides when the job ends.

Settings:
    count: sales; rate: of them per second.
    forgetful: the till counts in an attribute of its own instead of its state, which no checkpoint covers.
    mistake: the sale at which a later version of the till fails.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import SqliteSink
from operators.source import PartitionReader, Read, SourceContext
from operators.sources import GeneratedSource

SHOPS = 10
EVENING = "evening"
LOOK_S = 0.05


class _HeldBack:
    """A reader whose late positions become available once a file exists."""

    def __init__(self, reader: PartitionReader, late: int, evening: Path) -> None:
        self._reader, self._late, self._evening = reader, late, evening

    def read(self, position: int, count_max: int) -> Read | None:
        if not self._evening.exists():
            count_max = min(count_max, self._late - position)
        return self._reader.read(position, count_max) if count_max > 0 else None

    def ready_in_s(self, position: int) -> float:
        return max(LOOK_S * (position >= self._late), self._reader.ready_in_s(position))

    def completed(self, position: int) -> None:
        self._reader.completed(position)

    def close(self) -> None:
        self._reader.close()


class Sales(GeneratedSource[dict[str, int]]):
    """The sales of a day, of which the last quarter waits for the evening."""

    def __init__(self, count: int, rate: float) -> None:
        super().__init__(lambda partition, i: {"shop": i % SHOPS, "sale": i}, count, rate=rate)
        self._late, self._evening = count * 3 // 4, Path(EVENING).absolute()

    def open(self, partition: int, context: SourceContext) -> PartitionReader:
        return _HeldBack(super().open(partition, context), self._late, self._evening)


def receipt(before: str, content: list[Any]) -> str:
    """Return the hash of a receipt: over the one before it and its own content."""
    return blake2b((before + json.dumps(content)).encode(), digest_size=12).hexdigest()


class Till(Operator):
    """Writes the receipts of one shop."""

    def __init__(self, forgetful: bool, mistake: int) -> None:
        self.forgetful, self.mistake, self.count = forgetful, mistake, 0

    def process(self, sale: dict[str, int], ctx: Any) -> Iterator[dict[str, Any]]:
        """Yield one receipt."""
        if sale["sale"] == self.mistake:
            raise ValueError("this version of the till cannot sell that")
        self.count += 1
        lot = self.count if self.forgetful else ctx.random.randrange(1 << 32)
        content, before = [sale["sale"], lot, ctx.now()], ctx.state.get("receipt", "")
        ctx.state["receipt"] = receipt(before, content)
        yield {"shop": ctx.key, "content": content, "before": before, "receipt": ctx.state["receipt"]}


def wrong(database: Path, count: int) -> dict[str, int]:
    """Return how many sales are lost or doubled, and how many receipts do not follow from the one before."""
    last: dict[int, str] = {}
    seen: dict[int, int] = {}
    broken = 0
    with sqlite3.connect(database) as connection:
        for (text,) in connection.execute("SELECT record FROM output ORDER BY task, position"):
            row = json.loads(text)
            before = last.get(row["shop"], "")
            broken += row["before"] != before or row["receipt"] != receipt(before, row["content"])
            last[row["shop"]] = row["receipt"]
            seen[row["content"][0]] = seen.get(row["content"][0], 0) + 1
    doubled = sum(times - 1 for times in seen.values())
    return {"lost": count - len(seen), "doubled": doubled, "contradicted": broken}


pipeline = Pipeline("tills")
settings = pipeline.settings
sales = Sales(int(settings.get("count", 4000)), float(settings.get("rate", 1000)))
till = Till(bool(settings.get("forgetful")), int(settings.get("mistake", -1)))
pipeline.source("sales", sales).key_by(lambda sale: sale["shop"]).process("till", till, parallelism=2).sink(
    "receipts", SqliteSink("receipts.db")
)
