"""Rows of which each is hashed onto the one before it: whether any is lost, doubled or contradicted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

FIELDS = ("source", "i", "key", "n", "dice", "hash")


def linked(before: str, row: dict[str, Any]) -> str:
    """The hash of a row: over the hash of the one before it and all that it says."""
    return blake2b((before + json.dumps(row, sort_keys=True)).encode(), digest_size=8).hexdigest()


def assert_exactly_once(rows: Sequence[dict[str, Any]], count: int) -> None:
    """Each of `count` elements of both sources gave one row, and in the order of its key each row follows the last."""
    assert sorted((row["source"], row["i"]) for row in rows) == [(source, i) for source in (1, 2) for i in range(count)]
    assert_consistent(rows)


def assert_consistent(rows: Sequence[dict[str, Any]]) -> None:
    """What is there so far has no holes and no contradictions."""
    last: dict[int, tuple[int, str]] = {}
    for row in sorted(rows, key=lambda row: row["n"]):
        n, before = last.get(row["key"], (0, ""))
        said = {name: row[name] for name in FIELDS if name != "hash"}
        assert row["n"] == n + 1, f"key {row['key']}: row {row['n']} follows row {n}"
        assert row["hash"] == linked(before, said), f"key {row['key']}: row {row['n']} contradicts the one before it"
        last[row["key"]] = (row["n"], row["hash"])
