"""The bare job: one process that does what the keyed count's stages do to each record, and nothing else.

    python -m benchmarks.jobs.bare RECORDS BATCH_ELEMENTS_MAX

Per batch of a source's read: route each row by its key to one of two buckets, through a dict from key to the
bucket's `append` that is filled from the key group once per key.  Per bucket: `encode_records`, `decode_records`,
take the keys, count them in a dict and make the (key, n) rows, `encode_records`, `decode_records`, and the sink's
`encode`.  The functions and the libraries are the pipeline's own; there is no socket, no log, no digest, no
checkpoint, no other process, and no check for a user's errors.  It prints one JSON object.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness.tally import TallySink
from benchmarks.jobs.keyed_count import key_of
from benchmarks.peers.programs import inputs
from causal.config import JobConfig
from causal.records.batch import decode_records, encode_records
from operators.records.keys import key_group, task_of_group

TASKS = 2
GC_THRESHOLD = 50_000
"""The threshold of a worker."""


class Bare:
    """The bare job, a read at a time; `rows` is how many the sink was given."""

    def __init__(self) -> None:
        inputs.table()
        self.rows = 0
        self.counts: list[dict[Any, int]] = [{} for _ in range(TASKS)]
        self._buckets: list[list[Any]] = [[] for _ in range(TASKS)]
        self._appends: dict[Any, Callable[[Any], None]] = {}
        self._encode_rows = TallySink("unused").encode
        self._key_groups = JobConfig("bare", "bare", "bare").key_groups

    def read(self, partition: int, start: int, stop: int) -> None:
        """Rows `start` to `stop` of a partition, through all steps."""
        appends, buckets = self._appends, self._buckets
        for row in inputs.rows(partition, start, stop):
            key = key_of(row)
            append = appends.get(key)
            if append is None:
                task = task_of_group(key_group(key, self._key_groups), TASKS, self._key_groups)
                append = appends[key] = buckets[task].append
            append(row)
        for bucket, counted in zip(buckets, self.counts, strict=True):
            if bucket:
                self._count(bucket, counted)

    def _count(self, bucket: list[Any], counted: dict[Any, int]) -> None:
        """Encode, decode and count a bucket, and what the sink makes of it."""
        arrived = decode_records(encode_records(bucket))
        bucket.clear()
        get, rows = counted.get, list[Any]()
        append = rows.append
        for key in map(key_of, arrived):
            counted[key] = n = get(key, 0) + 1
            append((key, n))
        stored = decode_records(encode_records(rows))
        self._encode_rows(stored)
        self.rows += len(stored)


def run(records: int, batch_elements_max: int) -> dict[str, Any]:
    """Do it; `rows` is how many the sink was given, `top` the highest count: both must be what a count gives."""
    bare = Bare()
    per_partition = records // TASKS
    began, began_cpu = time.perf_counter(), time.process_time()
    for start in range(0, per_partition, batch_elements_max):
        for partition in range(TASKS):
            bare.read(partition, start, min(start + batch_elements_max, per_partition))
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    top = max(max(counts.values(), default=0) for counts in bare.counts)
    return {"rows": bare.rows, "top": top, "rps": records / took_s, "cpu_us": cpu_s / records * 1e6}


if __name__ == "__main__":
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    gc.freeze()
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
