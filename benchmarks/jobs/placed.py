"""The pipeline of `hosts`: a keyed count of small rows, or ordinary records through an operator of the user's own, on
hosts that the settings name.

Ordinary records are dicts of five fields; `Profile` keeps a few sums per user and gives a dict for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.harness.tally import TallySink
from benchmarks.jobs.keyed_count import TableSource, key_of
from operators import Context, Operator, Pipeline
from operators.sources import GeneratedSource

USERS = 10_000
CATEGORIES = ("food", "fuel", "travel", "toys", "books")
PARTITIONS = PARALLELISM = 2


def payment(partition: int, i: int) -> dict[str, Any]:
    """Payment i of a partition."""
    return {
        "user": (i * 7919 + partition * 31) % USERS,
        "amount": (i * 37 % 10007) / 7.0,
        "category": CATEGORIES[i % 5],
        "ts": 1_700_000_000.0 + i * 0.01,
        "note": f"n{i % 1000}",
    }


class Profile(Operator):
    """Sums, mean and large payments of each user."""

    def process(self, record: Any, ctx: Context) -> Iterator[dict[str, Any]]:
        """Yield one row per payment."""
        state = ctx.state
        n = state["n"] = state.get("n", 0) + 1
        total = state["total"] = state.get("total", 0.0) + record["amount"]
        if record["amount"] > 700:
            state["large"] = state.get("large", 0) + 1
        yield {
            "user": record["user"], "n": n, "mean": total / n, "large": state.get("large", 0),
            "category": record["category"],
        }  # fmt: skip


pipeline = Pipeline("placed")
settings = pipeline.settings
per_partition = int(settings.get("count", "1000000")) // PARTITIONS
out = TallySink(settings.get("out", "tally.db"))
if settings.get("work", "count") == "count":
    rows = pipeline.source("rows", TableSource(per_partition, PARTITIONS), PARTITIONS)
    rows.key_by(key_of).count("work", parallelism=PARALLELISM).sink("out", out)
else:
    rate = 1 / float(settings["pace_s"]) if "pace_s" in settings else None
    payments = pipeline.source("rows", GeneratedSource(payment, per_partition, PARTITIONS, rate), PARTITIONS)
    payments.key_by(lambda record: record["user"]).process("work", Profile(), parallelism=PARALLELISM).sink("out", out)
for place in settings.get("place", "").split():  # for example `rows=a work=b out=a`
    operator, _, host = place.partition("=")
    pipeline.place(operator, host=host)
