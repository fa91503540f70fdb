"""The kit for sinks with `upsert=True`: what its records are as revisions, and the rows that a reader then sees.

    Subject(MySink(upsert=True), read=rows_by_key, seen=rows_seen, row=revision_of)

Revisions change seven keys per task over and over, and some delete a row. `rows_seen` is the oracle: a dict with the
latest value per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from operators.sinks.contract.key_text import key_text

KEYS, DELETES = 7, 11
"""The number of keys of a task, and how many revisions there are for one that deletes a row."""


def revision_of(record: Any) -> tuple[Any, None, Any]:
    """Return the revision that the kit writes for one of its records."""
    number = record["n"]
    return (record.get("task"), number % KEYS), None, None if number % DELETES == DELETES - 1 else record


def rows_seen(records: Sequence[Any]) -> dict[str, Any]:
    """Return the rows by the text of their key, after the revisions of these records."""
    rows: dict[str, Any] = {}
    for record in records:
        key, _, new = revision_of(record)
        rows[key_text(key)] = new
    return {key: row for key, row in rows.items() if row is not None}
