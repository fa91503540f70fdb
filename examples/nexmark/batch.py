"""The answers in Spark SQL, as a batch over all events: written independently of the model, to be compared with it.

    python -m examples.nexmark.batch EVENTS.jsonl 3 window_s=20      # [query, row] as JSON lines

Views: person, auction, bid (the events of `examples.nexmark.events`, one JSON document per line) and side (key, value).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.nexmark.events import Event
from examples.nexmark.terms import QUERIES, Terms, side_value
from operators.spark.java import find_java, java_home

FIELDS = {
    "person": ("id bigint, name string, email string, credit_card string, city string, state string, "
               "time_ms bigint, extra string"),
    "auction": ("id bigint, item string, description string, initial_bid bigint, reserve bigint, time_ms bigint, "
                "expires_ms bigint, seller bigint, category bigint, extra string"),
    "bid": "auction bigint, bidder bigint, price bigint, time_ms bigint, extra string",
}  # fmt: skip
"""Columns of each kind of event, as Spark writes them."""

_WINNING = """
  select a.id as auction, a.seller, a.category, a.expires_ms, b.bidder, b.price, b.time_ms,
         row_number() over (partition by a.id order by b.price desc, b.time_ms, b.bidder) as place
  from auction a join bid b on b.auction = a.id
  where b.price >= a.reserve and b.time_ms < a.expires_ms and b.time_ms >= a.time_ms - {waiting_s} * 1000"""

_WON = f"select * from ({_WINNING}) where place = 1"

_SESSIONS = """
  select bidder, count(*) as bids, min(time_ms) as start_ms, max(time_ms) + {gap_s} * 1000 as end_ms
  from (select *, sum(begins) over (partition by bidder order by time_ms rows unbounded preceding) as session
        from (select bidder, time_ms,
                     case when time_ms - lag(time_ms) over (partition by bidder order by time_ms) < {gap_s} * 1000
                          then 0 else 1 end as begins
              from bid))
  group by bidder, session"""

_SLIDING = "window(timestamp_millis({time}), '{{window_s}} seconds', '{{every_s}} seconds')"
_TUMBLING = "window(timestamp_millis({time}), '{{window_s}} seconds')"
_START = "unix_millis(w.start) as start_ms"

SQL: dict[int, str] = {
    0: "",
    1: "select 'bid' as kind, auction, bidder, price * 89 div 100 as price, time_ms, extra from bid",
    2: "select auction, price from bid where auction % {auction_skip} = 0",
    3: """select p.name, p.city, p.state, a.id as auction from auction a join person p on a.seller = p.id
          where p.state in ('OR', 'ID', 'CA') and a.category = 10
            and abs(a.time_ms - p.time_ms) <= {waiting_s} * 1000""",
    4: f"""select category, sum(price) / count(*) as mean, {_START}
           from (select *, {_SLIDING.format(time="expires_ms")} as w from ({_WON})) group by category, w""",
    5: f"""select auction, bids, {_START}
           from (select *, max(bids) over (partition by w) as most
                 from (select auction, w, count(*) as bids
                       from (select *, {_SLIDING.format(time="time_ms")} as w from bid) group by auction, w))
           where bids = most""",
    6: f"""select seller, auction, sum(price) over last / count(*) over last as mean from ({_WON})
           window last as (partition by seller order by expires_ms, auction
                           rows between {{auctions_mean}} - 1 preceding and current row)""",
    7: f"""select auction, bidder, price, time_ms, {_START}
           from (select *, max(price) over (partition by w) as highest
                 from (select *, {_TUMBLING.format(time="time_ms")} as w from bid))
           where price = highest""",
    8: f"""select p.id, p.name, a.reserve, unix_millis(p.w.start) as start_ms
           from (select *, {_TUMBLING.format(time="time_ms")} as w from person) p
           join (select *, {_TUMBLING.format(time="time_ms")} as w from auction) a on p.id = a.seller and p.w = a.w""",
    9: f"select auction, seller, category, expires_ms, bidder, price, time_ms from ({_WON})",
    11: _SESSIONS,
    13: """select b.auction, b.bidder, b.price, b.time_ms, s.value from bid b
           join side s on s.key = b.auction % {side_rows}""",
    14: f"select t.*, s.value from ({_SESSIONS}) t join side s on s.key = t.bidder % {{side_rows}}",
}
"""The SQL of each query.  0 has none: the events are the answer.  12 is absent: it depends on the clock."""


def write_events(events: list[Event], path: Path) -> None:
    """Write the events as JSON lines."""
    path.write_text("".join([json.dumps(event) + "\n" for event in events]))


def prepare(spark: Any, events: Path, terms: Terms) -> None:
    """Make the views of a file of events."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for kind, fields in FIELDS.items():
        events_of_all_kinds = spark.read.schema(f"kind string, {fields}").json(str(events))
        events_of_all_kinds.where(f"kind = '{kind}'").drop("kind").createOrReplaceTempView(kind)
    side = [(key, side_value(key)) for key in range(terms.side_rows)]
    spark.createDataFrame(side, "key bigint, value string").createOrReplaceTempView("side")


def rows(spark: Any, query: int, events: Path, terms: Terms | None = None) -> list[dict[str, Any]]:
    """Return the rows of one query; `prepare` has been called."""
    if query == 0:
        return [json.loads(row.value) for row in spark.read.text(str(events)).collect()]
    known = terms or Terms()
    named = {name: getattr(known, name) for name in Terms.__slots__}
    return [row.asDict() for row in spark.sql(SQL[query].format(**named)).collect()]


def session(work: Path) -> Any:
    """Return a Spark session of one process with one thread; the Java installation that it needs is put below
    `work`.
    """
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(java_home(find_java(), work))
    builder = SparkSession.builder.master("local[1]").appName("nexmark")
    # Code generation is off: compiling takes longer than these queries do.
    for name in ("spark.ui.enabled", "spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage"):
        builder = builder.config(name, "false")
    return builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()


def main(arguments: Sequence[str]) -> int:
    """Print the rows of the queries, each as [query, row]."""
    queries = [int(argument) for argument in arguments[1:] if argument.isdecimal()]
    settings = dict(argument.split("=", 1) for argument in arguments[1:] if "=" in argument)
    if not arguments or len(queries) + len(settings) < len(arguments) - 1:
        print("usage: python -m examples.nexmark.batch EVENTS.jsonl [QUERY | TERM=VALUE]...", file=sys.stderr)
        return 2
    terms = Terms.of_settings(settings)
    with tempfile.TemporaryDirectory() as work:
        spark = session(Path(work))
        prepare(spark, Path(arguments[0]), terms)
        for query in queries or [known for known in QUERIES if known != 12]:
            for row in rows(spark, query, Path(arguments[0]), terms):
                print(json.dumps([query, row]))
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
