"""Whether the rows of a query are right: as a multiset those of the model; for query 12 what can be said of any run.

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


def compare(query: int, found: Sequence[Row], events: Sequence[Event], terms: Terms) -> dict[str, int]:
    """Counts: rows; lost, that should be there; false, that should not (a doubled row is one).  Right: neither."""
    if query == 12:
        return by_clock(found, events, terms)
    told, wanted = model.canonical(found), model.canonical(model.rows(query, events, terms))
    return {"rows": len(found), "lost": sum((wanted - told).values()), "false": sum((told - wanted).values())}


def by_clock(found: Sequence[Row], events: Sequence[Event], terms: Terms) -> dict[str, int]:
    """Query 12: each bid is in one window, no window has two rows, and windows are where windows are.

    Which bids a window has is chance; that no second row contradicts the first, and that all of them add up, is not.
    """
    size_ms = round(terms.clock_s * 1000)
    sums: Counter[int] = Counter()
    seen: set[tuple[int, int]] = set()
    false = 0
    for row in found:
        window = (row["bidder"], row["start_ms"])
        false += window in seen or row["start_ms"] % size_ms != 0 or row["bids"] < 1
        seen.add(window)
        sums[row["bidder"]] += row["bids"]
    wanted = model.bids_of(events)
    return {
        "rows": len(found),
        "lost": sum((wanted - sums).values()),
        "false": false + sum((sums - wanted).values()),
    }


def rows_of(database: Path) -> list[Row]:
    """The rows in the sink's database, in order per task."""
    connection = sqlite3.connect(database)
    try:
        told = connection.execute("SELECT record FROM output ORDER BY task, position").fetchall()
    finally:
        connection.close()
    return [json.loads(record) for (record,) in told]


def events_told(settings: Mapping[str, str]) -> Events:
    """The shape of the events that a job's settings say."""
    return Events(int(settings.get("events_per_s", "10000")), int(settings.get("out_of_order", "1")))


def read_events(settings: Mapping[str, str]) -> list[Event]:
    """All events that the job was given."""
    partitions = int(settings.get("partitions", "2"))
    return events_told(settings).listed(int(settings.get("events", "10000")) // partitions * partitions)


def main(arguments: Sequence[str]) -> int:
    """Exit status 1 if a row is missing or too many."""
    if len(arguments) < 2 or not all("=" in told for told in arguments[2:]):
        print("usage: python -m examples.nexmark.check OUT.db QUERY [SETTING=VALUE]...", file=sys.stderr)
        return 2
    settings = dict(told.split("=", 1) for told in arguments[2:])
    found = compare(int(arguments[1]), rows_of(Path(arguments[0])), read_events(settings), Terms.told(settings))
    print(json.dumps(found))
    return int(found["lost"] + found["false"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
