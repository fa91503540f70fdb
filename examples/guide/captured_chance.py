"""Clock and chance of plain Python, the same after any crash."""

import random
import time
import uuid

from operators import Pipeline
from operators.sinks import JsonLinesSink
from operators.sources import GeneratedSource
from operators.testing import every_crash, run

pipeline = Pipeline("stamps")
orders = pipeline.source("orders", GeneratedSource(lambda p, i: {"order": i}, count=3))


def stamped(record):
    return {**record, "at": time.time(), "dice": random.randint(1, 6), "id": str(uuid.uuid4())}


orders.map("stamp", stamped).sink("out", JsonLinesSink("."))

for crash in every_crash(pipeline):  # a replay that read other values would be an error
    result = run(pipeline, crash=crash)
    print(crash, "recoveries:", result.recoveries, "orders:", [row["order"] for row in result["out"]])
