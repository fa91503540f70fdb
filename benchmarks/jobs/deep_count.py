"""The pipeline of `overhead`: the rows of `keyed_count`, counted repeatedly by `depth` tasks in a row."""

from __future__ import annotations

from benchmarks.harness.tally import TallySink
from benchmarks.jobs.keyed_count import TableSource, key_of
from operators import Pipeline

pipeline = Pipeline("deep-count")
count = int(pipeline.settings.get("count", "1000000"))
depth = int(pipeline.settings.get("depth", "5"))
rate = float(pipeline.settings["rate"]) if pipeline.settings.get("rate") else None

unmeasured = int(pipeline.settings.get("unmeasured", "0"))

stream = pipeline.source("rows", TableSource(count, 1, rate, unmeasured))
for stage in range(depth - 1):
    stream = stream.key_by(key_of).count(f"count{stage}")
stream.sink("out", TallySink(pipeline.settings.get("out", "tally.db")))
