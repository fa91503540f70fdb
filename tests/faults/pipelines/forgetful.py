"""An operator that keeps a count where no checkpoint sees it, in the way that the setting `how` says.

Settings: out, how, count, rate.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from operators import Operator, Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource

pipeline = Pipeline("forgetful")
HOW = pipeline.settings["how"]
seen: dict[Any, int] = {}
total = 0


class Count(Operator):
    """Counts by key."""

    everything: dict[Any, int] = {}

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}
        self.last = 0
        self.pattern = re.compile("x+")
        self.log = logging.getLogger("forgetful")
        self.client: Any = None
        self.cached: dict[Any, int] = {}

    def process(self, record: Any, ctx: Any) -> Iterator[Any]:
        key = ctx.key
        if HOW == "attribute":
            counts = self.counts
        elif HOW == "class":
            counts = self.everything
        elif HOW == "global":
            counts = seen
        else:
            counts = ctx.state
            if HOW == "cache":
                self._remember(key)
        counts[key] = counts.get(key, 0) + 1
        if HOW == "scalar":
            self.last += 1
            yield {**record, "n": self.last}
            return
        yield {**record, "n": counts[key]}

    def _remember(self, key: Any) -> None:
        """All that may change and makes no difference."""
        global total
        total += 1
        self.client = self.client or object()
        self.cached[key] = self.cached.get(key, 0) + 1
        self.log.debug("seen %s", key)
        square(key)


@functools.lru_cache(maxsize=4)
def square(number: int) -> int:
    return number * number


def numbering() -> Callable[[Any], Any]:
    n = 0

    def number(record: Any) -> Any:
        nonlocal n
        n += 1
        return {**record, "n": n}

    return number


def defaulting(record: Any, kept: list[int] = []) -> Any:  # noqa: B006  this is the mistake
    kept.append(1)
    return {**record, "n": len(kept)}


def numbered(partition: int, position: int) -> dict[str, int]:
    return {"k": position % 7, "i": position}


rate = float(pipeline.settings.get("rate", 2000))
numbers = pipeline.source("numbers", GeneratedSource(numbered, count=int(pipeline.settings["count"]), rate=rate))
if HOW in ("closure", "default"):
    counted = numbers.map("count", numbering() if HOW == "closure" else defaulting)
else:
    counted = numbers.key_by(lambda record: record["k"]).process("count", Count())
counted.sink("out", JsonLinesSink(Path(pipeline.settings["out"])))
