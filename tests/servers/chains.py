"""Rows of which each is hashed onto the one before it: whether any is lost, doubled or contradicted."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from operators import Operator

FIELDS = ("source", "i", "key", "n", "dice", "hash")
KEYS = 7


def linked(before: str, row: dict[str, Any]) -> str:
    """Return the hash of a row: over the hash of the one before it and all that it says."""
    return blake2b((before + json.dumps(row, sort_keys=True)).encode(), digest_size=8).hexdigest()


class Link(Operator):
    """Throws a die for each record, and hashes each row of a key onto the one before it."""

    def process(self, record: Any, ctx: Any) -> Any:
        n, before = ctx.state.get("n", 0) + 1, ctx.state.get("hash", "")
        row = {**record, "n": n, "dice": ctx.random.randrange(1 << 30)}
        ctx.state["n"], ctx.state["hash"] = n, linked(before, row)
        yield {**row, "hash": ctx.state["hash"]}


def numbered(source: int) -> Callable[[int, int], dict[str, Any]]:
    """Return the elements of a source, spread over the keys."""

    def make(partition: int, i: int) -> dict[str, Any]:
        return {"source": source, "i": i, "key": (i * 31 + source) % KEYS}

    return make


def assert_exactly_once(rows: Sequence[dict[str, Any]], count: int) -> None:
    """Each of `count` elements of both sources gave one row, and in the order of its key each row follows the last."""
    assert sorted((row["source"], row["i"]) for row in rows) == [(source, i) for source in (1, 2) for i in range(count)]
    assert_consistent(rows)


def assert_consistent(rows: Sequence[dict[str, Any]]) -> None:
    """Assert that the rows so far have no holes and no contradictions."""
    last: dict[int, tuple[int, str]] = {}
    for row in sorted(rows, key=lambda row: row["n"]):
        n, before = last.get(row["key"], (0, ""))
        said = {name: row[name] for name in FIELDS if name != "hash"}
        assert row["n"] == n + 1, f"key {row['key']}: row {row['n']} follows row {n}"
        assert row["hash"] == linked(before, said), f"key {row['key']}: row {row['n']} contradicts the one before it"
        last[row["key"]] = (row["n"], row["hash"])
