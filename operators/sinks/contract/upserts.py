"""One row per key of a table, as a sink with `upsert=True` stores it, and what undoes its changes.

An upsert overwrites, so a store keeps an `Undo` for each key that a bundle changes, in the same atomic step.
`restored` computes from these what a withdrawal, or a return to a savepoint, gives back. This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from causal.ports import Bundle
from operators.sinks.contract.sink import lines_of

UNDO_ROWS = 100_000
"""The number of its latest revisions that a sink task can undo by default; see `Undo`."""
UNDO_ROWS_MAX = 1_000_000_000


def upserts_of(bundle: Bundle) -> Iterator[tuple[int, str, str | None]]:
    """Yield position, key and new record of each row to store; the record None deletes the row of the key."""
    for position, line in zip(*lines_of(bundle)):
        key, _, record = line.partition("\t")
        yield position, key, record or None


def latest(bundle: Bundle) -> dict[str, str | None]:
    """Return the last record of each key that the bundle changes, in the order of the last changes."""
    last: dict[str, str | None] = {}
    for _, key, record in upserts_of(bundle):
        last.pop(key, None)
        last[key] = record
    return last


class Undo(NamedTuple):
    """The row of a key before a bundle of one sink task changed it.

    Attributes:
        position: the position at which the bundle begins.
        record: the row as JSON; None if there was none.
    """

    task: str
    epoch: int
    position: int
    key: str
    record: str | None


@dataclass(slots=True)
class Restored:
    """The changes that undo the bundles of one task.

    Attributes:
        rows: key → the record that its row has again; None if it had no row.
        others: (task, position, key) of the entry of another task → the record that it has from now on.
    """

    rows: dict[str, str | None] = field(default_factory=dict)
    others: dict[tuple[str, int, str], str | None] = field(default_factory=dict)


def restored(entries: Iterable[Undo], task: str, next_: int) -> Restored:
    """Return what undoes the bundles of `task` from position `next_` on; its entries from there on are then obsolete.

    A key that moved to another task has entries of both. What this task did before another one did is undone in the
    entry of the other one, so that the tasks of a sink can be undone in any order.

    Args:
        entries: at least the entries of `task` from `next_` on, and all that are not older than the first of these;
            the newest first, by (epoch, position).
    """
    result = Restored()
    later: dict[str, tuple[str, int, str]] = {}
    for entry in entries:
        if entry.task != task or entry.position < next_:
            later[entry.key] = (entry.task, entry.position, entry.key)
        elif entry.key in later:
            result.others[later[entry.key]] = entry.record
        else:
            result.rows[entry.key] = entry.record
    return result


def undo_floor(next_: int, marks_from: int | None, undo_rows: int) -> int:
    """Return the position below which a complete checkpoint makes entries obsolete.

    Args:
        marks_from: the lowest position to which rows may still be withdrawn; None if there are no marks.
    """
    return max(0, min(next_ - undo_rows, next_ if marks_from is None else marks_from))


def undo_limit(undo_rows: int, rows: int) -> str:
    """Return the `causal.ports.ReturningStore.limit` of a store that keeps undo entries."""
    return "" if rows <= undo_rows else f"withdraws at most about its last {undo_rows:,} revisions (undo_rows)"


def undo_obstacle(oldest: int | None, position: int, next_: int) -> str:
    """Return why a store at `position` cannot return to `next_`; empty if it can.

    Args:
        oldest: the position of the oldest undo entry of the task; None if there is none.
    """
    if next_ == position or (oldest is not None and oldest <= next_):
        return ""
    kept = position if oldest is None else oldest
    return f"keeps overwritten rows only from revision {kept:,} on (undo_rows=), and revision {next_:,} was asked for"
