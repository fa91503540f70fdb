"""The pipeline file: one Nexmark query on this machine.

    causal run examples/nexmark/job.py --set query=3 --set out=q3.db --kill q3/0@1.5
    python -m examples.nexmark.check q3.db 3

Settings (`--set`): query, events (10000), partitions (2), parallelism (2), rate (events/s; as fast as they are taken),
events_per_s (10000, in event time), out_of_order (1), out (nexmark.db), ingest (generated; or spark, with the
input=DIRECTORY that `spark_input` wrote), and those of `terms.Terms`.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # `causal run` puts only this file's directory there

from examples.nexmark import queries
from examples.nexmark.check import events_of
from examples.nexmark.spark_input import clean, spark_source
from examples.nexmark.terms import Terms
from operators import Pipeline
from operators.sinks import SqliteSink

settings = Pipeline("settings").settings
events = events_of(settings)
sink = SqliteSink(settings.get("out", "nexmark.db"))
terms, parallelism = Terms.of_settings(settings), int(settings.get("parallelism", "2"))
query = int(settings.get("query", "1"))

if settings.get("ingest", "generated") == "spark":
    source = spark_source(settings["input"])
    pipeline = queries.pipeline(query, source, sink, terms, parallelism, events.out_of_order_s, clean)
else:
    rate = float(settings["rate"]) if "rate" in settings else None
    generated = events.source(int(settings.get("events", "10000")), int(settings.get("partitions", "2")), rate)
    pipeline = queries.pipeline(query, generated, sink, terms, parallelism, events.out_of_order_s)
