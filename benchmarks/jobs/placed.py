"""The pipeline of `hosts`: a keyed count of small rows, or ordinary records through an operator of the user's own, on
hosts that the settings name.

Ordinary records are the purchases of `ordinary`, and the operator is its profile of each user.
"""

from __future__ import annotations

from benchmarks.harness.tally import TallySink
from benchmarks.jobs.keyed_count import TableSource, key_of
from benchmarks.peers.programs.ordinary.pipelines import Profile
from benchmarks.peers.programs.ordinary.user_code import Record, enriched, purchase, user_of
from operators import Pipeline
from operators.sources import GeneratedSource

PARTITIONS = PARALLELISM = 2


def charged(partition: int, i: int) -> Record:
    """Return purchase i of a partition, as the profile takes it."""
    return enriched(purchase(partition, i))


pipeline = Pipeline("placed")
settings = pipeline.settings
per_partition = int(settings.get("count", "1000000")) // PARTITIONS
out = TallySink(settings.get("out", "tally.db"))
if settings.get("work", "count") == "count":
    rows = pipeline.source("rows", TableSource(per_partition, PARTITIONS), PARTITIONS)
    rows.key_by(key_of).count("work", parallelism=PARALLELISM).sink("out", out)
else:
    rate = 1 / float(settings["pace_s"]) if "pace_s" in settings else None
    purchases = pipeline.source("rows", GeneratedSource(charged, per_partition, PARTITIONS, rate), PARTITIONS)
    purchases.key_by(user_of).process("work", Profile(), parallelism=PARALLELISM).sink("out", out)
for place in settings.get("place", "").split():  # for example `rows=a work=b out=a`
    operator, _, host = place.partition("=")
    pipeline.place(operator, host=host)
