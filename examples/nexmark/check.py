"""Checks the rows of a query: as a multiset they are those of the model; for query 12 the properties of any run.

python -m examples.nexmark.check OUT.db QUERY [SETTING=VALUE]...     # settings as the job was given them
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.nexmark import model
from examples.nexmark.events import Event, Events
from examples.nexmark.terms import Terms

Row = dict[str, Any]


def compare(query: int, rows: Sequence[Row], events: Sequence[Event], terms: Terms) -> dict[str, int]:
    """Count rows, lost (missing) ones and false ones (wrong or doubled); the last two are 0 for a correct job."""
    if query == 12:
        return by_clock(rows, events, terms)
    actual, wanted = model.canonical(rows), model.canonical(model.rows(query, events, terms))
    return {"rows": len(rows), "lost": sum((wanted - actual).values()), "false": sum((actual - wanted).values())}


def by_clock(rows: Sequence[Row], events: Sequence[Event], terms: Terms) -> dict[str, int]:
    """Check query 12: each bid is in one window, no window has two rows, and windows begin at multiples of their size.

    The bids in a window depend on the clock, but no window may have two rows, and the sums must be right.
    """
    size_ms = round(terms.clock_s * 1000)
    sums: Counter[int] = Counter()
    seen: set[tuple[int, int]] = set()
    false = 0
    for row in rows:
        window = (row["bidder"], row["start_ms"])
        false += window in seen or row["start_ms"] % size_ms != 0 or row["bids"] < 1
        seen.add(window)
        sums[row["bidder"]] += row["bids"]
    wanted = model.bids_of(events)
    return {
        "rows": len(rows),
        "lost": sum((wanted - sums).values()),
        "false": false + sum((sums - wanted).values()),
    }


def rows_of(database: Path) -> list[Row]:
    """Return the rows in the sink's database, in the order of each task."""
    connection = sqlite3.connect(database)
    try:
        records = connection.execute("SELECT record FROM output ORDER BY task, position").fetchall()
    finally:
        connection.close()
    return [json.loads(record) for (record,) in records]


def events_of(settings: Mapping[str, str]) -> Events:
    """Return the events that the settings of a job describe."""
    return Events(int(settings.get("events_per_s", "10000")), int(settings.get("out_of_order", "1")))


def read_events(settings: Mapping[str, str]) -> list[Event]:
    """Return all events that the job reads."""
    partitions = int(settings.get("partitions", "2"))
    return events_of(settings).listed(int(settings.get("events", "10000")) // partitions * partitions)


def main(arguments: Sequence[str]) -> int:
    """Run the check; returns 1 if a row is missing or false."""
    if len(arguments) < 2 or not all("=" in argument for argument in arguments[2:]):
        print("usage: python -m examples.nexmark.check OUT.db QUERY [SETTING=VALUE]...", file=sys.stderr)
        return 2
    settings = dict(argument.split("=", 1) for argument in arguments[2:])
    counts = compare(int(arguments[1]), rows_of(Path(arguments[0])), read_events(settings), Terms.of_settings(settings))
    print(json.dumps(counts))
    return int(counts["lost"] + counts["false"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
