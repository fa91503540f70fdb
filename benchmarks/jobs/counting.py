"""Counts the records of each key; the random number would differ if a record were performed again otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from operators import Context, Operator

KEYS = 50


class Count(Operator):
    """Gives a row per record, with the number of its turn within its key."""

    def process(self, record: Any, ctx: Context) -> Iterator[Any]:
        n = ctx.state.get("n", 0) + 1
        ctx.state["n"] = n
        yield {"key": ctx.key, "n": n, "v": record["v"], "partition": record["p"], "dice": ctx.random.random()}


def key_of(partition: int, index: int) -> int:
    """Return the key of an element."""
    return (partition * 31 + index * 7) % KEYS
